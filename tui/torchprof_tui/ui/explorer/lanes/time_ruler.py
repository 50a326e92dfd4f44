"""The time over the lanes: round times, what one cell is worth, the steps, a marked range, the zoom cursor."""

from __future__ import annotations

from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.strip import Strip

from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Step
from torchprof_tui.trace.query.time_axis import ticks
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.messages import ZoomAsked
from torchprof_tui.ui.common.name_display import cut
from torchprof_tui.ui.common.painted_widget import Painted, Run, line

CURSOR = "▼"


class Ruler(Painted):
    """One line of times; with steps in the trace, a line of them above. Set `arrange`."""

    def __init__(self, steps: list[Step], *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._steps = steps
        self._left = 0
        self._viewport: Viewport | None = None
        self._marked: tuple[int, int] | None = None
        self._cursor = 0

    def show_steps(self, steps: list[Step]) -> None:
        """Those of another rank."""
        if steps is not self._steps:
            self._steps = steps
            self.repaint()

    @property
    def lines_wanted(self) -> int:
        return 2 if self._steps else 1

    def show(self, viewport: Viewport, left: int, cursor: int, marked: tuple[int, int] | None) -> None:
        """`left`: the gutter's width. `cursor` and `marked` in ns."""
        column = viewport.cell(cursor)
        if (viewport, left, marked) != (self._viewport, self._left, self._marked):
            self._viewport, self._left, self._marked, self._cursor = viewport, left, marked, column
            self.repaint()
        else:
            self.point_at(cursor)

    def point_at(self, cursor: int) -> None:
        """Only the zoom cursor moves: one line to repaint."""
        if self._viewport is not None and self._viewport.cell(cursor) != self._cursor:
            self._cursor = self._viewport.cell(cursor)
            self.repaint([self.size.height - 1])

    def prepare(self, size: Size) -> None:
        room = size.width - self._left
        if self._viewport is not None and room > 0 and self._viewport.width != room:
            self._viewport = self._viewport.resize(room)

    def paint(self, y: int, width: int) -> Strip:
        view, palette = self._viewport, self.palette
        if view is None or width <= self._left:
            return line([], width, palette.text)
        if y < self.size.height - 1:
            label: Run = (" steps".ljust(self._left - 1), palette.muted)
            return line([label, ("│", palette.line), *self._step_runs(view)], width, palette.text)
        worth = f" 1 cell = {format_duration(view.ns_per_cell)}"
        if cell_len(worth) >= self._left:
            worth = f" {format_duration(view.ns_per_cell)}/cell"
        runs: list[Run] = [(cut(worth, self._left - 1).ljust(self._left - 1), palette.muted), ("├", palette.line)]
        return line([*runs, *self._tick_runs(view)], width, palette.line)

    def _step_runs(self, view: Viewport) -> list[Run]:
        """Each step as a band with its number and how long it took; two shades, so that neighbours stay apart."""
        runs: list[Run] = []
        at = 0
        for number, step in enumerate(self._steps):
            first = max(view.cell(step.start), at)
            last = min(view.cell(step.start + max(step.duration, 1) - 1), view.width - 1)
            if last < first or first >= view.width:
                continue
            room = last - first + 1
            text = edge = "▏" if step.start >= view.t0 else " "
            if room >= 3:
                text = f"{edge}#{step.number}"
                if cell_len(text) + 14 <= room:
                    text += f" {format_duration(step.duration)}"
                text = cut(text, room)
            if first > at:
                runs.append((" " * (first - at), self.palette.text))
            runs.append((text.ljust(room), self.palette.bands[number % 2]))
            at = last + 1
        return runs

    def _tick_runs(self, view: Viewport) -> list[Run]:
        cells: list[tuple[str, Style]] = [("─", self.palette.line)] * view.width
        for tick in ticks(view):
            label = f"┬ {tick.label} "
            if tick.cell >= 0 and tick.cell + len(label) <= view.width:
                for place, character in enumerate(label, tick.cell):
                    cells[place] = (character, self.palette.text if character != "┬" else self.palette.line)
            elif 0 <= tick.cell < view.width:
                cells[tick.cell] = ("┬", self.palette.line)
        if self._marked is not None:
            self._mark(view, cells, self._marked)
        if 0 <= self._cursor < view.width:
            character = cells[self._cursor][0]
            # A label stays legible: the cursor is then the cell that stands out.
            cells[self._cursor] = (CURSOR, self.palette.key) if character in "─┬ " else (character, self.palette.active)
        return cells

    def _mark(self, view: Viewport, cells: list[tuple[str, Style]], marked: tuple[int, int]) -> None:
        first = max(view.cell(marked[0]), 0)
        last = min(view.cell(marked[1] - 1), view.width - 1)
        if last < first:
            return
        room = last - first + 1
        text = format_duration(marked[1] - marked[0])
        if room >= len(text) + 4:
            text = f"├{f' {text} '.center(room - 2, '─')}┤"
        else:
            text = "├" + "─" * (room - 2) + "┤" if room >= 2 else "│"
        for place, character in enumerate(text, first):
            cells[place] = (character, self.palette.marked)
        beyond = format_duration(marked[1] - marked[0])
        if room < len(beyond) + 4 and last + len(beyond) + 2 < view.width:
            for place, character in enumerate(f" {beyond} ", last + 1):
                cells[place] = (character, self.palette.marked)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, -1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, 1)

    def _wheel(self, event: events.MouseEvent, steps: int) -> None:
        event.stop()
        if self._viewport is not None and event.x >= self._left:
            self.post_message(ZoomAsked(self._viewport.middle(event.x - self._left), steps))
