"""The curves of memory over time: of a trace, stacked by category, and of a snapshot; with the peak and the cursor."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.strip import Strip

from torchprof_tui.analysis.memory.categories import Category
from torchprof_tui.analysis.memory.memory_history import BANDS, find_highest_positions, read_reserved
from torchprof_tui.answers.pictures.steps import draw_steps
from torchprof_tui.answers.pictures.svg import Canvas
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.event_styles import ColorSupport
from torchprof_tui.ui.common.number_format import format_value
from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun, build_strip
from torchprof_tui.ui.common.picture_widget import PictureWidget, color_of
from torchprof_tui.ui.common.text_charts import LEVELS
from torchprof_tui.ui.lanes.mouse_gestures import JumpAsked
from torchprof_tui.ui.memory.memory_worker import ShownDevice
from torchprof_tui.ui.memory.snapshot_rows import ShownSnapshot

BAND_KINDS = {
    Category.PARAMETER: Kind.OP,
    Category.GRADIENT: Kind.COPY,
    Category.OPTIMIZER_STATE: Kind.RUNTIME,
    Category.ACTIVATION: Kind.KERNEL,
    Category.INPUT: Kind.ANNOTATION,
    Category.TEMPORARY: Kind.COLLECTIVE,
    Category.WORKSPACE: Kind.MEMSET,
    Category.UNKNOWN: Kind.PROFILER,
}
"""The colour of each category: that of a kind of events."""

LETTERS = "pgoaitwu?"  # what the bands are filled with where the terminal has no colours

FULL, CURSOR, RESERVED = "█", "│", "╌"
LEVEL_COUNT = len(LEVELS)


def band_kind(band: int) -> Kind:
    """Return the kind whose colour a band has; the rest has that of unknown memory."""
    return BAND_KINDS[Category(min(band, int(Category.UNKNOWN)))]


@cache
def _boundary_style(low: Style, high: Style | None, blank: Style) -> Style:
    """Return the style of a cell with `low` in its lower part and `high`, or nothing, above."""
    return Style(color=low.bgcolor, bgcolor=blank.bgcolor if high is None else high.bgcolor)


def list_edges(view: Viewport) -> I64:
    """List the times at the edges of the cells: int64[w + 1]."""
    return np.array([view.time(cell) for cell in range(view.width + 1)], np.int64)


class CurveChart(PictureWidget):
    """A curve over time, right of `_gutter_width` cells. The first line names the peak; a click posts `JumpAsked`.

    The curve is stacked columns, one for each cell of time; a picture has one for each pixel. `letters`: what the bands
    are filled with without colours; without letters, blocks.
    """

    _viewport: Viewport | None = None
    _gutter_width = 0
    _cursor = 0
    _levels = np.zeros((0, 2), np.int64)  # by cell: the upper edge of each band, in eighths
    _reserved_line = np.zeros(0, np.int64)
    _highest = 1
    letters = ""

    def measure(self, view: Viewport) -> tuple[I64, I64]:
        """Return the bytes by band of each cell, int64[w, bands], and those that are reserved, int64[w]."""
        raise NotImplementedError

    def _kind(self, band: int) -> Kind:
        """Return the kind whose colour a band has."""
        return band_kind(band)

    def _prepare_columns(self, shown: object, view: Viewport, rows: int) -> None:
        sums, reserved = self.measure(view)
        self._highest = max(int(sums.sum(axis=1).max(initial=0)), int(reserved.max(initial=0)), 1)
        scale = rows * LEVEL_COUNT / self._highest
        self._levels = np.zeros((len(sums), sums.shape[1] + 1), np.int64)
        self._levels[:, 1:] = np.ceil(np.cumsum(sums, axis=1) * scale - 1e-9)
        height = np.ceil(reserved * scale - 1e-9).astype(np.int64)
        self._reserved_line = np.where(reserved > 0, (height - 1) // LEVEL_COUNT, -1)
        self.request_picture((id(shown), view), view.width, rows, partial(self._draw_curve, view))

    def _draw_curve(self, view: Viewport, canvas: Canvas) -> str:
        sums, reserved = self.measure(view.resize(canvas.pixel_width))
        colors = [color_of(self.palette.ink(self._kind(band))) for band in range(sums.shape[1])]
        return draw_steps(canvas, sums.T, reserved, self._highest, colors)

    def _mark_peak(self, size: str, time: int, view: Viewport) -> list[TextRun]:
        """Paint the mark of the peak above its cell, with its size, or the side on which it is off the screen."""
        palette, cell = self.palette, view.cell(time)
        if cell < 0:
            return [(f"◀ {size}", palette.strong)]
        if cell >= view.width:
            text = f"{size} ▶"
            return [(" " * max(view.width - cell_len(text), 0), palette.text), (text, palette.strong)]
        is_left = cell + 2 + len(size) > view.width
        text = f"{size} ▼" if is_left else f"▼ {size}"
        start = max(cell + 1 - len(text), 0) if is_left else cell
        return [(" " * start, palette.text), (text, palette.strong)]

    def _paint_cells(self, row: int, view: Viewport) -> list[TextRun]:
        """Paint a line of the columns; `row` counts from the bottom."""
        cursor = view.cell(self._cursor)
        low, high = row * LEVEL_COUNT, (row + 1) * LEVEL_COUNT
        edges = self._levels[: view.width]
        bands = np.argmax(edges[:, 1:] > low, axis=1)  # the band at the lower edge of the cell
        tops = edges[np.arange(len(edges)), bands + 1].tolist()
        above = np.argmax(edges[:, 1:] >= np.minimum(high, edges[:, -1])[:, None], axis=1).tolist()
        kinds = [self._kind(band) for band in range(edges.shape[1] - 1)]
        fills, inks = [list(map(style, kinds)) for style in (self.palette.fill, self.palette.ink)]
        has_letters = bool(self.letters) and self.palette.color_support is ColorSupport.NONE
        runs: list[TextRun] = []
        for cell, (band, top, end) in enumerate(zip(bands.tolist(), tops, edges[:, -1].tolist(), strict=True)):
            if end <= low:
                mark = RESERVED if self._reserved_line[cell] == row else " "
                runs.append((CURSOR if cell == cursor else mark, self.palette.line))
            elif cell == cursor:
                runs.append((CURSOR, fills[band]))
            elif has_letters:
                runs.append((self.letters[band], self.palette.text))
            elif top >= high:
                runs.append((FULL, inks[band]))
            else:  # the band up to some eighths, the next one over it, or nothing
                style = _boundary_style(fills[band], None if end < high else fills[above[cell]], self.palette.text)
                runs.append((LEVELS[max(top - low, 1) - 1], style))
        return runs

    def _paint_line(self, line: int, cells: list[TextRun], view: Viewport) -> list[TextRun]:
        """Paint a line of the picture with the cursor; the cells where there is none. `line` counts from the top."""
        cursor, blank = min(max(view.cell(self._cursor), -1), view.width), self.palette.text
        before = self.picture_cells(line, 0, max(cursor, 0), blank)
        after = self.picture_cells(line, cursor + 1, view.width, blank)
        if before is None or after is None:
            return cells
        return [before, *cells[max(cursor, 0) : cursor + 1], after]

    def on_click(self, event: events.Click) -> None:
        event.stop()
        cell = event.x - self._gutter_width
        if self._viewport is not None and 0 <= cell < self._viewport.width:
            self.post_message(JumpAsked(self._viewport.middle(cell)))


class MemoryChart(CurveChart):
    """Paint the curve of a device, stacked by category."""

    DEFAULT_CSS = "MemoryChart { height: 8; }"

    _shown: ShownDevice | None = None
    letters = LETTERS

    def show(self, shown: ShownDevice | None, viewport: Viewport, gutter_width: int, cursor: int) -> None:
        """Set what is shown; `cursor`: ns."""
        before = (self._shown, self._viewport, self._gutter_width)
        is_moved = self._viewport is None or viewport.cell(cursor) != viewport.cell(self._cursor)
        self._shown, self._viewport, self._gutter_width, self._cursor = shown, viewport, gutter_width, cursor
        if before != (shown, viewport, gutter_width) or is_moved:
            self.repaint()

    def prepare(self, size: Size) -> None:
        shown, view = self._shown, self._viewport
        if shown is not None and view is not None and size.height > 1:
            self._prepare_columns(shown, view, size.height - 1)

    def measure(self, view: Viewport) -> tuple[I64, I64]:
        assert self._shown is not None
        positions = find_highest_positions(self._shown.history, list_edges(view))
        reserved = read_reserved(self._shown.history, positions)
        return np.maximum(self._shown.totals.sum_at(positions), 0), np.maximum(reserved, 0)

    def paint(self, y: int, width: int) -> Strip:
        shown, view, palette = self._shown, self._viewport, self.palette
        if shown is None or view is None or width <= self._gutter_width:
            return build_strip([], width, palette.text)
        memory, rows = shown.history.memory, self.size.height - 1
        gutter = {rows: "0 B"}
        if rows >= 5:
            gutter[1 + rows // 2] = format_value(self._highest * (rows - rows // 2) // rows, "bytes")
        gutter |= {1: format_value(self._highest, "bytes"), 0: memory.label}
        runs: list[TextRun] = [(gutter.get(y, "").rjust(self._gutter_width - 2) + " ", palette.muted)]
        runs.append((CURSOR, palette.line))
        if y == 0:
            size = f"peak {format_value(int(memory.allocated[memory.peak]), 'bytes')}"
            runs += self._mark_peak(size, int(memory.time[memory.peak]), view)
        else:
            runs += self._paint_line(y - 1, self._paint_cells(rows - y, view), view)
        return build_strip(runs, width, palette.text)


class Legend(PaintedWidget):
    """Paint the bands at the cursor, largest first: a patch of colour, the name, the bytes; then the dashed line."""

    _sums: I64 = np.zeros(len(BANDS), np.int64)
    _has_lifetimes, _has_reserved = True, False

    def show(self, sums: I64, has_lifetimes: bool, has_reserved: bool) -> None:
        """Set the bytes of each band, int64[bands]."""
        self._sums, self._has_lifetimes, self._has_reserved = sums, has_lifetimes, has_reserved
        self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        palette, sums = self.palette, self._sums
        if not self._has_lifetimes:
            text = " all memory: allocations are not told apart"
            return build_strip([(text, palette.muted)], width, palette.text)
        runs: list[TextRun] = [(" ", palette.text)]
        used = 1
        is_plain = palette.color_support is ColorSupport.NONE
        bands = [band for band in np.argsort(-sums, kind="stable").tolist() if sums[band]]
        for left, band in zip(range(len(bands), 0, -1), bands, strict=True):
            text = f" {BANDS[band]} {format_value(int(sums[band]), 'bytes')}  "
            if used + 2 + cell_len(text) + (8 if left > 1 else 0) > width:
                runs.append((f"+{left} more  ", palette.muted))
                break
            ink = palette.text if is_plain else palette.ink(band_kind(band))
            runs += [((LETTERS[band] if is_plain else FULL) * 2, ink), (text, palette.text)]
            used += 2 + cell_len(text)
        if self._has_reserved:
            runs.append((f"{RESERVED}{RESERVED} reserved", palette.muted))
        return build_strip(runs, width, palette.text)


GUTTER = 12  # cells left of the curve


class SnapshotChart(CurveChart):
    """Paint the curve. The first line names the peak, the last one the times at the edges."""

    DEFAULT_CSS = "SnapshotChart { height: 8; }"

    _shown: ShownSnapshot | None = None
    _gutter_width = GUTTER

    def show(self, shown: ShownSnapshot | None, viewport: Viewport, cursor: int) -> None:
        """Set what is shown; `cursor`: ns from the first entry."""
        self._shown, self._viewport, self._cursor = shown, viewport, cursor
        self.repaint()

    def prepare(self, size: Size) -> None:
        if self._shown is not None and self._viewport is not None and len(self._shown.time):
            self._prepare_columns(self._shown, self._viewport, max(size.height - 2, 1))

    def measure(self, view: Viewport) -> tuple[I64, I64]:
        assert self._shown is not None
        requested, reserved = measure_cells(self._shown, view)
        return requested[:, None], reserved

    def _kind(self, band: int) -> Kind:
        return Kind.KERNEL

    def paint(self, y: int, width: int) -> Strip:
        shown, view, palette = self._shown, self._viewport, self.palette
        if shown is None or view is None or width <= GUTTER or not len(shown.time):
            return build_strip([], width, palette.text)
        rows = self.size.height - 2
        gutter = {0: shown.device.label, 1: format_value(self._highest, "bytes"), rows: "0 B" if rows > 1 else ""}
        runs: list[TextRun] = [(f"{gutter.get(y, '')[: GUTTER - 2]:>{GUTTER - 2}} ", palette.muted)]
        if y > rows:
            start, end = format_duration(view.t0), format_duration(view.t1)
            times = f" {start}{end:>{max(view.width - cell_len(start), 1)}}"
            return build_strip([*runs, (times, palette.muted)], width, palette.text)
        runs.append((CURSOR, palette.line))
        if y == 0:
            size = f"peak {format_value(int(shown.device.requested_curve[shown.peak]), 'bytes')} requested"
            runs += self._mark_peak(size, int(shown.time[shown.peak]), view)
        else:
            runs += self._paint_line(y - 1, self._paint_cells(rows - y, view), view)
        return build_strip(runs, width, palette.text)


def measure_cells(shown: ShownSnapshot, view: Viewport) -> tuple[I64, I64]:
    """Return (requested, reserved) bytes of each cell at its highest moment: int64[w] each.

    A cell without an entry has the state that it begins with.
    """
    requested, reserved = shown.device.requested_curve, shown.device.reserved_curve
    edges = list_edges(view)
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
