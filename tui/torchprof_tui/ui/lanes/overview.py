"""The overview: the whole trace in one or two lines, with GPU use, the visible part and the starts of the steps."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.strip import Strip

from torchprof_tui.analysis.time.gpu_time import compute_busy_fraction
from torchprof_tui.analysis.time.intervals import Intervals
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Step
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.name_display import truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import TextRun, build_strip
from torchprof_tui.ui.common.picture_widget import PictureWidget, color_of
from torchprof_tui.ui.lanes.bar_painter import draw_level_graph
from torchprof_tui.ui.lanes.mouse_gestures import MIN_DRAG_CELLS, DragMessage, JumpAsked, TimeWheel
from torchprof_tui.ui.lanes.step_labels import abbreviate_serving

if TYPE_CHECKING:
    from torchprof_tui.answers.pictures.svg import Canvas


@dataclass
class ViewDragged(DragMessage):
    """A range of the overview was dragged over: show it."""

    start: float
    end: float
    is_continued: bool = False


def _draw_busy(busy_intervals: list[Intervals], whole: Viewport, color: str, canvas: Canvas) -> str:
    """Draw the mean of the busy shares, a step for each pixel, at least a pixel high where there is work."""
    shares = [compute_busy_fraction(busy, whole.t0, whole.t1, canvas.pixel_width) for busy in busy_intervals]
    mean = np.mean(shares or np.zeros((1, 1)), axis=0, keepdims=True)
    permille = np.ceil(np.where(mean > 0, np.maximum(mean, 1 / canvas.pixel_height), 0) * 1000).astype(np.int64)
    steps = importlib.import_module("torchprof_tui.answers.pictures.steps")  # most terminals never need it
    drawn: str = steps.draw_steps(canvas, permille, np.zeros(1, np.int64), 1000, [color])
    return drawn


class Overview(TimeWheel, PictureWidget):
    """Paint the overview of `show_viewport`; post `JumpAsked` for a click, or where its visible part is dragged."""

    def __init__(
        self,
        steps: list[Step],
        busy_intervals: list[Intervals],
        kind: Kind,
        *,
        id: str | None = None,  # noqa: A002
    ) -> None:
        """Draw the mean of `busy_intervals`: of each GPU; without GPUs those of the CPU. `kind` sets the colour."""
        super().__init__(id=id)
        self._steps = steps
        self._busy_intervals = busy_intervals
        self._kind = kind
        self._whole_viewport: Viewport | None = None
        self._graph = ""
        self._step_labels = ""
        self._graph_viewport: Viewport | None = None
        self._press_column: int | None = None  # of a press that goes on
        self._is_moved = False
        self._grabbed_at: float | None = None  # ns from the pressed time to the middle of the visible part

    def show_steps(self, steps: list[Step]) -> None:
        """Set the steps, which differ from rank to rank."""
        if steps is not self._steps:
            self._steps = steps
            self._graph_viewport = None
            self.repaint()

    @property
    def preferred_lines(self) -> int:
        """The lines that the overview fills where there is room for them."""
        return 2 if self._steps else 1

    def show_viewport(self, viewport: Viewport, gutter_width: int) -> None:
        """Set the visible part; `gutter_width` in cells."""
        if (viewport, gutter_width) != (self._viewport, self._gutter_width):
            self._viewport, self._gutter_width = viewport, gutter_width
            self.repaint()

    def prepare(self, size: Size) -> None:
        viewport, width = self._viewport, size.width - self._gutter_width
        if viewport is None or width < 1:
            self._whole_viewport = None
            return
        whole = Viewport.whole(viewport.limits, width, margin=0)
        self._whole_viewport = whole
        if whole != self._graph_viewport:
            self._graph_viewport = whole
            shares = [compute_busy_fraction(busy, whole.t0, whole.t1, width) for busy in self._busy_intervals]
            mean = np.mean(shares, axis=0) if shares else np.zeros(width)
            self._graph = draw_level_graph(np.where(mean > 0, mean, np.nan), 0.0, 1.0)
            labels, free = [" "] * width, 0
            for step in self._steps:
                column = whole.cell(step.start)
                if not free <= column < width:
                    continue
                said = step.serving
                label = f"╵#{step.number} " if said is None else f"╵#{step.number} {abbreviate_serving(said)} "
                if column + len(label) > width:
                    label = "╵"
                labels[column : column + len(label)] = label
                free = column + len(label)
            self._step_labels = "".join(labels)
        draw = partial(_draw_busy, self._busy_intervals, whole, color_of(self.palette.ink(self._kind)))
        self.request_picture(whole, width, 1, draw)

    def paint(self, y: int, width: int) -> Strip:
        view, whole, palette = self._viewport, self._whole_viewport, self.palette
        if view is None or whole is None:
            return build_strip([], width, palette.text)
        if y:
            return build_strip(
                [(" " * self._gutter_width, palette.text), (self._step_labels, palette.muted)], width, palette.text
            )
        share = view.span / (whole.t1 - whole.t0)
        label = truncate(f" {format_share(share)} shown", self._gutter_width - 1).ljust(self._gutter_width - 1)
        first = max(whole.cell(view.t0), 0)
        last = min(whole.cell(view.t1 - 1), whole.width - 1)
        ink = palette.ink(self._kind)
        runs: list[TextRun] = [(label, palette.muted), ("│", palette.line), self._paint_graph(0, first, ink)]
        if view.is_whole:
            runs.append(self._paint_graph(first, last + 1, ink))
        elif last == first:
            runs.append(("▯", palette.viewport))
        else:  # in brackets, so that it can be seen without colour
            visible = self._paint_graph(first + 1, last, palette.viewport)
            runs += [("[", palette.viewport), visible, ("]", palette.viewport)]
        runs.append(self._paint_graph(last + 1, whole.width, ink))
        return build_strip(runs, width, palette.text)

    def _paint_graph(self, first: int, last: int, style: Style) -> TextRun:
        return self.picture_cells(0, first, last, style) or (self._graph[first:last], style)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        event.stop()
        whole, view, column = self._whole_viewport, self._viewport, event.x - self._gutter_width
        if whole is None or view is None or column < 0:
            return
        self.capture_mouse()
        self._press_column, self._is_moved = column, False
        within = not view.is_whole and whole.cell(view.t0) <= column <= whole.cell(view.t1 - 1)
        self._grabbed_at = (view.t0 + view.t1) / 2 - whole.middle(column) if within else None

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Drag the visible part where the press was on it; elsewhere show the range between press and pointer."""
        whole = self._whole_viewport
        if self._press_column is None or whole is None:
            return
        column = min(max(event.x - self._gutter_width, 0), whole.width - 1)
        was_moved = self._is_moved
        self._is_moved = was_moved or abs(column - self._press_column) >= MIN_DRAG_CELLS
        if not self._is_moved:
            return
        if self._grabbed_at is not None:
            self.post_message(JumpAsked(whole.middle(column) + self._grabbed_at, is_continued=was_moved))
        else:
            first, last = sorted((self._press_column, column))
            self.post_message(ViewDragged(whole.time(first), whole.time(last + 1), is_continued=was_moved))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        event.stop()
        self.release_mouse()
        if self._press_column is not None and not self._is_moved and self._whole_viewport is not None:
            self.post_message(JumpAsked(self._whole_viewport.middle(self._press_column)))
        self._press_column = None

    def wheel_column(self, x: int) -> int:
        """Return the middle of the screen: the pointer is at a column of the whole trace."""
        return self._viewport.width // 2 if self._viewport is not None else 0
