"""The whole trace in one or two lines: how busy the GPU was, what part is on screen, where the steps begin."""

from __future__ import annotations

import numpy as np
from textual import events
from textual.geometry import Size
from textual.strip import Strip

from torchprof_tui.analysis.time.gpu_time import busy_fraction
from torchprof_tui.analysis.time.intervals import Intervals
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Step
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.messages import JumpAsked
from torchprof_tui.ui.common.name_display import cut
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import Painted, Run, line
from torchprof_tui.ui.explorer.lanes.bar_painter import levels


class Overview(Painted):
    """Set `arrange`. A click or a drag says where to go."""

    def __init__(
        self,
        steps: list[Step],
        worked: list[Intervals],
        kind: Kind,
        *,
        id: str | None = None,  # noqa: A002
    ) -> None:
        """`worked`: when each GPU did (their mean is drawn), or when the CPU did where there is no GPU: `kind`."""
        super().__init__(id=id)
        self._steps = steps
        self._worked = worked
        self._kind = kind
        self._left = 0
        self._viewport: Viewport | None = None
        self._whole: Viewport | None = None
        self._graph = ""
        self._marks = ""
        self._graphed: Viewport | None = None
        self._dragging = False

    def show_steps(self, steps: list[Step]) -> None:
        """Those of another rank."""
        if steps is not self._steps:
            self._steps = steps
            self._graphed = None
            self.repaint()

    @property
    def lines_wanted(self) -> int:
        """With room to spare."""
        return 2 if self._steps else 1

    def show(self, viewport: Viewport, left: int) -> None:
        """`left`: the gutter's width."""
        if (viewport, left) != (self._viewport, self._left):
            self._viewport, self._left = viewport, left
            self.repaint()

    def prepare(self, size: Size) -> None:
        view, room = self._viewport, size.width - self._left
        if view is None or room < 1:
            self._whole = None
            return
        whole = Viewport.whole(view.limits, room, margin=0)
        self._whole = whole
        if whole != self._graphed:
            self._graphed = whole
            shares = [busy_fraction(each, whole.t0, whole.t1, room) for each in self._worked]
            mean = np.mean(shares, axis=0) if shares else np.zeros(room)
            self._graph = levels(np.where(mean > 0, mean, np.nan), 0.0, 1.0)
            self._marks = self._step_marks(whole)

    def paint(self, y: int, width: int) -> Strip:
        view, whole, palette = self._viewport, self._whole, self.palette
        if view is None or whole is None:
            return line([], width, palette.text)
        if y:
            return line([(" " * self._left, palette.text), (self._marks, palette.muted)], width, palette.text)
        share = view.span / (whole.t1 - whole.t0)
        label = cut(f" {format_share(share)} shown", self._left - 1).ljust(self._left - 1)
        first = max(whole.cell(view.t0), 0)
        last = min(whole.cell(view.t1 - 1), whole.width - 1)
        graph, ink = self._graph, palette.ink(self._kind)
        shown = self._window(graph[first : last + 1])
        runs: list[Run] = [
            (label, palette.muted),
            ("│", palette.line),
            (graph[:first], ink),
            (shown, ink if view.is_whole else palette.viewport),
            (graph[last + 1 :], ink),
        ]
        return line(runs, width, palette.text)

    def _window(self, part: str) -> str:
        """The part on screen between brackets, so that it is told without colour."""
        if self._viewport is not None and self._viewport.is_whole:
            return part
        return f"[{part[1:-1]}]" if len(part) > 1 else "▯"

    def _step_marks(self, whole: Viewport) -> str:
        cells = [" "] * whole.width
        free = 0
        for step in self._steps:
            at = whole.cell(step.start)
            if not free <= at < whole.width:
                continue
            label = f"╵#{step.number} "
            if at + len(label) > whole.width:
                label = "╵"
            cells[at : at + len(label)] = label
            free = at + len(label)
        return "".join(cells)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        event.stop()
        self._dragging = True
        self.capture_mouse()
        self._jump(event.x)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._dragging:
            self._jump(event.x)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        event.stop()
        self._dragging = False
        self.release_mouse()

    def _jump(self, x: int) -> None:
        if self._whole is not None and x >= self._left:
            self.post_message(JumpAsked(self._whole.middle(min(x - self._left, self._whole.width - 1))))
