"""The curve of a memory snapshot's history: what the program requested, and what was reserved for it."""

from __future__ import annotations

import numpy as np
from rich.cells import cell_len
from textual import events
from textual.geometry import Size
from textual.strip import Strip

from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.number_format import format_value
from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun, build_strip
from torchprof_tui.ui.common.strip_chart import LEVELS
from torchprof_tui.ui.lanes.mouse_gestures import JumpAsked
from torchprof_tui.ui.memory.memory_chart import CURSOR, FULL, LEVEL_COUNT, RESERVED
from torchprof_tui.ui.memory.snapshot_rows import ShownSnapshot

GUTTER = 12
"""Cells left of the curve."""


class SnapshotChart(PaintedWidget):
    """Paint the curve. The first line names the peak, the last one the times at the edges."""

    DEFAULT_CSS = "SnapshotChart { height: 8; }"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._shown: ShownSnapshot | None = None
        self._viewport: Viewport | None = None
        self._cursor = 0
        self._requested = np.zeros(0, np.int64)
        self._reserved = np.zeros(0, np.int64)

    def show(self, shown: ShownSnapshot | None, viewport: Viewport, cursor: int) -> None:
        """Set what is shown; `cursor`: ns from the first entry."""
        self._shown, self._viewport, self._cursor = shown, viewport, cursor
        self.repaint()

    def prepare(self, size: Size) -> None:
        if self._shown is not None and self._viewport is not None and len(self._shown.time):
            self._requested, self._reserved = measure_cells(self._shown, self._viewport)

    def paint(self, y: int, width: int) -> Strip:
        shown, view, palette = self._shown, self._viewport, self.palette
        if shown is None or view is None or width <= GUTTER or not len(shown.time):
            return build_strip([], width, palette.text)
        rows = self.size.height - 2
        gutter = {0: shown.device.label, 1: format_value(self._highest, "bytes"), rows: "0 B" if rows > 1 else ""}
        runs: list[TextRun] = [(f"{gutter.get(y, '')[: GUTTER - 2]:>{GUTTER - 2}} ", palette.muted)]
        if y > rows:
            return build_strip([*runs, (f" {self._format_times(view)}", palette.muted)], width, palette.text)
        runs.append((CURSOR, palette.line))
        runs += self._paint_peak(shown, view) if y == 0 else self._paint_cells(rows - y, view)
        return build_strip(runs, width, palette.text)

    @property
    def _highest(self) -> int:
        return max(int(self._requested.max(initial=0)), int(self._reserved.max(initial=0)), 1)

    @staticmethod
    def _format_times(view: Viewport) -> str:
        start, end = format_duration(view.t0), format_duration(view.t1)
        return f"{start}{end:>{max(view.width - cell_len(start), 1)}}"

    def _paint_peak(self, shown: ShownSnapshot, view: Viewport) -> list[TextRun]:
        """Paint the mark of the peak above its cell, with its size, or the side on which it is off the screen."""
        size = f"peak {format_value(int(shown.device.requested_curve[shown.peak]), 'bytes')} requested"
        cell = view.cell(int(shown.time[shown.peak]))
        if cell < 0:
            return [(f"◀ {size}", self.palette.strong)]
        if cell >= view.width:
            return [(f"{size} ▶".rjust(view.width), self.palette.strong)]
        is_left = cell + 2 + len(size) > view.width
        text = f"{size} ▼" if is_left else f"▼ {size}"
        return [
            (" " * (max(cell + 1 - len(text), 0) if is_left else cell), self.palette.text),
            (text, self.palette.strong),
        ]

    def _paint_cells(self, row: int, view: Viewport) -> list[TextRun]:
        """Paint a line of the curve; `row` counts from the bottom."""
        palette, scale = self.palette, (self.size.height - 2) * LEVEL_COUNT / self._highest
        levels = np.ceil(self._requested * scale - 1e-9).astype(np.int64) - row * LEVEL_COUNT
        line = (np.ceil(self._reserved * scale - 1e-9).astype(np.int64) - 1) // LEVEL_COUNT
        cursor, ink = view.cell(self._cursor), palette.ink(Kind.KERNEL)
        runs: list[TextRun] = []
        for cell, level in enumerate(levels.tolist()):
            if cell == cursor:
                runs.append((CURSOR, palette.fill(Kind.KERNEL) if level > 0 else palette.line))
            elif level >= LEVEL_COUNT:
                runs.append((FULL, ink))
            elif level > 0:
                runs.append((LEVELS[level - 1], ink))
            else:
                runs.append((RESERVED if line[cell] == row else " ", palette.line))
        return runs

    def on_click(self, event: events.Click) -> None:
        event.stop()
        cell = event.x - GUTTER
        if self._viewport is not None and 0 <= cell < self._viewport.width:
            self.post_message(JumpAsked(self._viewport.middle(cell)))


def measure_cells(shown: ShownSnapshot, view: Viewport) -> tuple[I64, I64]:
    """Return (requested, reserved) bytes of each cell at its highest moment: int64[w] each.

    A cell without an entry has the state that it begins with.
    """
    requested, reserved = shown.device.requested_curve, shown.device.reserved_curve
    edges = np.array([view.time(cell) for cell in range(view.width + 1)], np.int64)
    first = np.searchsorted(shown.time, edges[:-1], side="left")
    last = np.searchsorted(shown.time, edges[1:], side="left")
    before = np.maximum(first - 1, 0)
    sums = []
    for curve in (requested, reserved):
        highest = curve[before].copy()
        inside = np.flatnonzero(last > first)
        if len(inside):
            end = int(last[inside[-1]])
            peaks = np.maximum.reduceat(curve[:end], first[inside])
            highest[inside] = np.maximum(peaks, np.where(first[inside] > 0, highest[inside], 0))
        sums.append(highest)
    return sums[0], sums[1]
