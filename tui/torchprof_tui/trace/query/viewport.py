"""The visible time range of a trace and its marks: how it is panned, zoomed and resized. Pure; times are int ns."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from torchprof_tui.trace.core.arrays import F64, I32
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_time
from torchprof_tui.trace.model.row_index import RowIndex
from torchprof_tui.trace.model.trace import Counter
from torchprof_tui.trace.query.cells import Cells, compute_cells, compute_counter_cells
from torchprof_tui.trace.query.folded_time import FoldedTime

SPAN_MARGIN = 0.02
"""Margin before the first and after the last event when the whole trace is shown, as a share of its span, so that both
ends are visible as such."""

FIT_MARGIN = 0.05
"""Margin around a fitted range, as a share of its length, so that what precedes and follows it stays visible."""


class Section(NamedTuple):
    """Cells `first` to `end` (not included) that show t0 to t1. `seam`: index in the fold, -1 for a linear part."""

    first: int
    end: int
    t0: int
    t1: int
    seam: int


@record
class Viewport:
    """`width` cells between t0 and t1 (ns), never less than 1 ns a cell.

    Moves return a new viewport. `limits` are the trace's span with a margin: panning and zooming are clamped to them.
    Only a range that is requested (`fit`, `reveal`) may be outside: a profiler's own mark long before the trace. Limits
    of less than 1 ns a cell (a trace of a few ns) are widened. With a `fold` cells are equal parts of the folded axis:
    t0, t1 and all arguments stay times of the trace, `span` is the length on the axis.
    """

    t0: int
    t1: int
    width: int
    limits: tuple[int, int]
    fold: FoldedTime | None = None

    @classmethod
    def whole(cls, span: tuple[int, int], width: int, margin: float = SPAN_MARGIN) -> Viewport:
        """Show all of `span` (a trace's, ns), with a margin. Raises ValueError if `width` is less than 1."""
        if width < 1:
            raise ValueError("a viewport has at least one cell")
        start, end = min(span), max(span)
        padding = round((end - start) * margin)
        low, high = _widen_to_cells(start - padding, end + padding, width)
        return cls(low, high, width, (low, high))

    @property
    def span(self) -> int:
        return self.measure(self.t0, self.t1)

    @property
    def is_whole(self) -> bool:
        return (self.t0, self.t1) == self.limits

    @property
    def ns_per_cell(self) -> float:
        return self.span / self.width

    def measure(self, start: int, end: int) -> int:
        """Return the length of a range on the axis: without a fold its duration, ns."""
        return self._position(end) - self._position(start)

    def midpoint(self, start: int, end: int) -> int:
        """Return the time in the middle of a range, as it is drawn."""
        return self._time((self._position(start) + self._position(end)) // 2)

    def cell(self, time: int) -> int:
        """Compute the cell that contains a time, as `compute_cells` does; off the screen if not in 0..width-1."""
        # The largest k with floor(span * k / width) <= time - t0.
        return ((self.measure(self.t0, time) + 1) * self.width - 1) // self.span

    def time(self, cell: int) -> int:
        """Compute the first nanosecond of a cell, which may be off the screen."""
        return self._time(self._position(self.t0) + self.span * cell // self.width)

    def middle(self, cell: int) -> int:
        """Compute the nanosecond in the middle of a cell."""
        low, span = self._position(self.t0), self.span
        return self._time((2 * low + span * cell // self.width + span * (cell + 1) // self.width) // 2)

    def pan(self, ns: int) -> Viewport:
        """Move later by `ns` (earlier where negative)."""
        return self._clamp_to_limits(self._position(self.t0) + ns, self.span)

    def pan_cells(self, count: int) -> Viewport:
        """Move by whole cells, each at least 1 ns, so that a key always moves something."""
        return self.pan(self.span * count // self.width)

    def zoom(self, anchor: float, factor: float) -> Viewport:
        """Multiply the span by `factor` (below 1: closer), with the time `anchor` staying in its cell."""
        start = self._position(self.t0)
        fixed = self._position(min(max(round(anchor), self.t0), self.t1))
        span = min(max(round(self.span * factor), self.width), max(self.measure(*self.limits), self.span))
        return self._clamp_to_limits(fixed - (fixed - start) * span // self.span, span)

    def fit(self, start: int, end: int, margin: float = FIT_MARGIN) -> Viewport:
        """Show just this range, with a margin around it, in the middle of the screen."""
        padding = round(self.measure(start, end) * margin)
        low, high = _widen_to_cells(self._position(start) - padding, self._position(end) + padding, self.width)
        return self._clamp_to_limits(low, high - low, (start, end))

    def fit_limits(self) -> Viewport:
        """Show the whole trace."""
        return replace(self, t0=self.limits[0], t1=self.limits[1])

    def reveal(self, start: int, end: int) -> Viewport:
        """Pan as little as needed to show the range; of a range that is longer than the screen, its start.

        The viewport is unchanged if the range already covers all of it.
        """
        if start <= self.t0 and end >= self.t1:
            return self
        span, length = self.span, self.measure(start, end)
        padding = min(round(span * FIT_MARGIN), max(span - length, 0))
        if length >= span or start < self.t0:
            return self._clamp_to_limits(self._position(start) - padding, span, (start, end))
        if end > self.t1:
            return self._clamp_to_limits(self._position(end) + padding - span, span, (start, end))
        return self

    def centre(self, time: float) -> Viewport:
        """Pan so that a time is in the middle."""
        return self._clamp_to_limits(self._position(round(time)) - self.span // 2, self.span)

    def place(self, time: int, distance: int, span: int) -> Viewport:
        """Show `span` of the axis from `distance` after a time on (both ns on the axis, `distance` may be negative)."""
        return self._clamp_to_limits(self._position(time) + distance, span)

    def resize(self, width: int) -> Viewport:
        """Show the same time range in more or fewer cells. Raises ValueError if `width` is less than 1."""
        if width < 1:
            raise ValueError("a viewport has at least one cell")
        limits = _widen_to_cells(*self.limits, width)
        wider = replace(self, width=width, limits=limits)
        if self.is_whole:
            return replace(wider, t0=limits[0], t1=limits[1])
        low, high = _widen_to_cells(self._position(self.t0), self._position(self.t1), width)
        return wider._clamp_to_limits(low, high - low)

    def list_sections(self) -> list[Section]:
        """List the linear parts and the seams on screen, left to right; a cell that a seam touches belongs to it."""
        sections: list[Section] = []
        column = 0
        fold = self.fold
        for seam in range(len(fold) if fold is not None else 0):
            assert fold is not None
            start, end = fold.starts[seam], fold.ends[seam]
            if end <= self.t0 or start >= self.t1:
                continue
            first, last = max(self.cell(start), column), min(self.cell(end - 1), self.width - 1)
            if last < first:  # it has only a part of the cell of the seam before
                continue
            if first > column:
                sections.append(Section(column, first, self.time(column), self.time(first), -1))
            sections.append(Section(first, last + 1, start, end, seam))
            column = last + 1
        if column < self.width:
            sections.append(Section(column, self.width, self.time(column), self.t1, -1))
        return sections

    def _position(self, time: int) -> int:
        return time if self.fold is None else self.fold.position(time)

    def _time(self, position: int) -> int:
        return position if self.fold is None else self.fold.time(position)

    def _clamp_to_limits(self, low: int, span: int, shown: tuple[int, int] | None = None) -> Viewport:
        """Show `span` from `low` on (both on the axis), clamped to what limits, viewport and `shown` cover together."""
        start, end = shown or (self.t0, self.t1)
        least = self._position(min(self.limits[0], self.t0, start))
        most = self._position(max(self.limits[1], self.t1, end))
        span = min(span, most - least)
        low = min(max(low, least), most - span)
        return replace(self, t0=self._time(low), t1=self._time(low + span))


def _widen_to_cells(start: int, end: int, width: int) -> tuple[int, int]:
    """Widen a range around its middle so that it has at least 1 ns for each cell."""
    lacking = max(width - (end - start), 0)
    return start - lacking // 2, end + lacking - lacking // 2


def compute_viewport_cells(index: RowIndex, rows: I32, viewport: Viewport) -> Cells:
    """Compute what the cells of a viewport show of these rows, in the order of `rows`; nothing in its seams."""
    if viewport.fold is None:
        return compute_cells(index, rows, viewport.t0, viewport.t1, viewport.width)
    shape = (len(rows), viewport.width)
    cells = Cells(np.full(shape, -1, np.int32), np.zeros(shape, np.float32), np.zeros(shape, np.int32))
    for first, end, t0, t1, seam in viewport.list_sections():
        if seam < 0:
            part = compute_cells(index, rows, t0, t1, end - first)
            columns = slice(first, end)
            cells.event[:, columns], cells.busy[:, columns] = part.event, part.busy
            cells.count[:, columns] = part.count
    return cells


def compute_highest_values(counter: Counter, viewport: Viewport) -> F64:
    """Compute the highest value of a counter in each cell: float64[width], nan where it has none and in seams."""
    if viewport.fold is None:
        return compute_counter_cells(counter, viewport.t0, viewport.t1, viewport.width).high
    high = np.full(viewport.width, np.nan)
    for first, end, t0, t1, seam in viewport.list_sections():
        if seam < 0:
            high[first:end] = compute_counter_cells(counter, t0, t1, end - first).high
    return high


LABEL_GAP = 5
MIN_LABEL_WIDTH = len("0 s")
"""Cells between two labels of the ruler: a tick, a space on both sides, and two cells of the rule, so that labels stay
apart."""


class Tick(NamedTuple):
    """A labelled mark on the ruler, in the cell that contains its time."""

    cell: int
    time: int
    label: str


def compute_ticks(viewport: Viewport) -> list[Tick]:
    """Compute ticks at round times (1, 2 or 5 times a power of ten ns), as close as their labels allow, left to right.

    Times count from the trace's first event. No two labels are equal.
    """
    reach = max(abs(viewport.t0), abs(viewport.t1))
    # A smaller step leaves no cells for a label.
    least = (MIN_LABEL_WIDTH + LABEL_GAP) * viewport.span // viewport.width
    for power in range(len(str(least)) - 1, 20):
        for factor in (1, 2, 5):
            step = factor * 10**power
            longest = max(len(format_time(time, step, reach)) for time in (viewport.t0, viewport.t1))
            if step * viewport.width >= (longest + LABEL_GAP) * viewport.span:
                linear = (section for section in viewport.list_sections() if section.seam < 0)
                times = (t for part in linear for t in range(-(-part.t0 // step) * step, part.t1, step))
                return [Tick(viewport.cell(time), time, format_time(time, step, reach)) for time in times]
    return []
