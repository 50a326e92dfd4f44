"""The visible time range of a trace: how it is panned, zoomed and resized, and what its cells show.

Pure; all times are int ns. What each cell shows is computed exactly, at any zoom. Cell k of a viewport t0..t1 that is
`width` cells wide covers the nanoseconds from `edge[k]` up to, but not including, `edge[k + 1]`, where edge[k] = t0 +
floor((t1 - t0) * k / width), computed in integers: traces with offsets of 10**15 ns lose nothing. Where a cell would be
narrower than 1 ns, it shows the whole nanosecond that contains it.

An event covers its duration, and at least 1 ns. So every event that the viewport touches is in at least one
cell, at every zoom: nothing disappears.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from torchprof_tui.trace.core.arrays import F32, F64, I32, I64, Bool
from torchprof_tui.trace.core.time_format import format_time
from torchprof_tui.trace.model.row_index import RowIndex
from torchprof_tui.trace.model.trace import Counter


@dataclass(frozen=True, slots=True)
class Cells:
    """R rows of W cells.

    `event` int32[R, W]: the event that fills most of the cell (of equals the longest, then the first); -1: none.
    `busy` float32[R, W]: the share of the cell that events cover, 0..1.
    `count` int32[R, W]: the number of events that touch the cell.
    """

    event: I32
    busy: F32
    count: I32


@dataclass(frozen=True, slots=True)
class CounterCells:
    """`low`, `high`, `last` float64[W]: the values that a counter has in each cell; nan before its first point."""

    low: F64
    high: F64
    last: F64


def cell_edges(t0: int, t1: int, width: int) -> I64:
    """Compute the edges of the cells, int64[width + 1] ns, exact. Raises ValueError for an empty range or no cells."""
    if t1 <= t0 or width < 1:
        raise ValueError(f"no cells between {t0} and {t1} ns in {width} columns")
    whole, rest = divmod(t1 - t0, width)
    cell = np.arange(width + 1, dtype=np.int64)
    return t0 + whole * cell + rest * cell // width


def compute_cells(index: RowIndex, rows: I32 | slice, t0: int, t1: int, width: int) -> Cells:
    """Compute what `width` cells between t0 and t1 (ns) show of these rows of the whole trace, in the order of `rows`.

    Costs some binary searches per row and a fixed number of vector operations over R x W, at every zoom.
    """
    chosen = np.arange(index.rows)[rows] if isinstance(rows, slice) else np.asarray(rows, dtype=np.int64)
    if t1 - t0 < width:
        by_nanosecond = compute_cells(index, chosen.astype(np.int32), t0, t1, t1 - t0)
        cell = cell_edges(t0, t1, width)[:-1] - t0
        return Cells(by_nanosecond.event[:, cell], by_nanosecond.busy[:, cell], by_nanosecond.count[:, cell])
    edges = cell_edges(t0, t1, width)
    if not len(chosen) or not len(index.order):
        shape = (len(chosen), width)
        return Cells(np.full(shape, -1, np.int32), np.zeros(shape, np.float32), np.zeros(shape, np.int32))

    offset = _first_offsets_at_edges(index, chosen, edges)
    previous = np.maximum(offset - 1, 0)
    length = index.durations_at(previous)
    start = index.starts[previous]
    overhang = start + length - edges  # ns that the event before an edge extends beyond it
    crosses = (offset > index.first[chosen][:, None]) & (overhang > 0)
    overhang = np.where(crosses, overhang, 0)

    covered = index.sums[offset] - overhang  # ns that the row's events cover before each edge
    busy = (covered[:, 1:] - covered[:, :-1]) / (edges[1:] - edges[:-1])
    count = offset[:, 1:] - offset[:, :-1] + crosses[:, :-1]
    return Cells(
        _find_dominant_events(index, edges, offset, previous, start, length, overhang, crosses),
        busy.astype(np.float32),
        count.astype(np.int32),
    )


def _first_offsets_at_edges(index: RowIndex, rows: I64, edges: I64) -> I64:
    """Find, by row and edge, the offset in the index of the first event that starts there or later: int64[R, W + 1]."""
    out = np.empty((len(rows), len(edges)), dtype=np.int64)
    for number, (first, last) in enumerate(
        zip(index.first[rows].tolist(), index.first[rows + 1].tolist(), strict=True)
    ):
        np.add(index.starts[first:last].searchsorted(edges), first, out=out[number])
    return out


def _find_dominant_events(
    index: RowIndex, edges: I64, offset: I64, previous: I64, start: I64, length: I64, overhang: I64, crosses: Bool
) -> I32:
    """Find the event with the largest part in each cell, int32[R, W].

    It is the one that crosses the left edge, the one that crosses the right edge, or the longest of those that
    are inside. Of equal parts the longest wins: an event that crosses an edge is longer than its part.
    """
    inside_last = offset[:, 1:] - crosses[:, 1:]
    inside_first = np.minimum(offset[:, :-1], inside_last)  # one event may cross both edges
    winner = np.full(inside_first.shape, -1, dtype=np.int64)
    part = np.zeros(inside_first.shape, dtype=np.int64)
    cells = np.nonzero(inside_first < inside_last)
    if len(cells[0]):
        longest = index.find_longest(inside_first[cells], inside_last[cells])
        winner[cells] = longest
        part[cells] = index.durations_at(longest)

    right_part = edges[1:] - np.maximum(start[:, 1:], edges[:-1])
    right = crosses[:, 1:] & (right_part >= part)
    winner = np.where(right, previous[:, 1:], winner)
    part = np.where(right, right_part, part)

    left_part = np.minimum(overhang[:, :-1], edges[1:] - edges[:-1])
    longer = ~right | (length[:, :-1] >= length[:, 1:])
    left = crosses[:, :-1] & ((left_part > part) | ((left_part == part) & longer))
    winner = np.where(left, previous[:, :-1], winner)
    return np.where(winner < 0, -1, index.order[winner]).astype(np.int32)


def compute_counter_cells(counter: Counter, t0: int, t1: int, width: int) -> CounterCells:
    """Compute the values in each cell: those set within it, and the one that holds from the last point before it."""
    if t1 - t0 < width:
        by_nanosecond = compute_counter_cells(counter, t0, t1, t1 - t0)
        cell = cell_edges(t0, t1, width)[:-1] - t0
        return CounterCells(by_nanosecond.low[cell], by_nanosecond.high[cell], by_nanosecond.last[cell])
    edges = cell_edges(t0, t1, width)
    nothing = np.full(width, np.nan)
    if not len(counter.times):
        return CounterCells(nothing, nothing, nothing)
    point = counter.times.searchsorted(edges)
    at_edge = counter.times[np.minimum(point[:-1], len(counter.times) - 1)] == edges[:-1]
    held = ~at_edge & (point[:-1] > 0)
    first, last = point[:-1] - held, point[1:]
    known = np.flatnonzero(first < last)
    if not len(known):
        return CounterCells(nothing, nothing, nothing)
    offset = int(first[known[0]])
    # reduceat takes pairs of bounds, of which every second result is used; the last bound must be a valid index too.
    values = np.append(counter.values[offset : int(last[-1])], 0.0)
    bounds = np.column_stack([first[known], last[known]]).ravel() - offset
    low, high, final = nothing.copy(), nothing.copy(), nothing.copy()
    low[known] = np.minimum.reduceat(values, bounds)[::2]
    high[known] = np.maximum.reduceat(values, bounds)[::2]
    final[known] = counter.values[last[known] - 1]
    return CounterCells(low, high, final)


@dataclass(frozen=True, slots=True)
class FoldedTime:
    """Map times to positions on the axis and back. Build it with `of_ranges`.

    Each hidden range keeps an order-preserving place on the axis, so that every time has a position and every position
    a time: cursors, marks and clicks work inside a seam as they do beside it.

    `starts`, `ends`: the hidden ranges, ascending, without overlap. `positions`: where each seam begins on the axis.
    `widths`: its length there, from 1 ns to the length of the range. `removed`: ns that are gone after each seam.
    """

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    positions: tuple[int, ...]
    widths: tuple[int, ...]
    removed: tuple[int, ...]

    @classmethod
    def of_ranges(cls, ranges: Sequence[tuple[int, int, int]]) -> FoldedTime:
        """Build from (start, end, width of the seam), in any order. Raises ValueError where ranges overlap."""
        ordered = sorted(ranges)
        if any(end <= start for start, end, _ in ordered):
            raise ValueError("a hidden range is at least 1 ns long")
        if any(before[1] > after[0] for before, after in pairwise(ordered)):
            raise ValueError("hidden ranges do not overlap")
        widths = [min(max(width, 1), end - start) for start, end, width in ordered]
        removed = list(accumulate(end - start - width for (start, end, _), width in zip(ordered, widths, strict=True)))
        before = [0, *removed][:-1]
        return cls(
            tuple(start for start, _, _ in ordered),
            tuple(end for _, end, _ in ordered),
            tuple(start - gone for (start, _, _), gone in zip(ordered, before, strict=True)),
            tuple(widths),
            tuple(removed),
        )

    def __len__(self) -> int:
        return len(self.starts)

    def position(self, time: int) -> int:
        """Return the position of a time. Times of a hidden range share the positions of its seam."""
        seam = bisect_right(self.starts, time) - 1
        if seam < 0:
            return time
        start, end = self.starts[seam], self.ends[seam]
        if time < end:
            return self.positions[seam] + (time - start) * self.widths[seam] // (end - start)
        return time - self.removed[seam]

    def time(self, position: int) -> int:
        """Return the first time at a position: `self.position(self.time(p)) == p`."""
        seam = bisect_right(self.positions, position) - 1
        if seam < 0:
            return position
        inside, width = position - self.positions[seam], self.widths[seam]
        if inside < width:
            return self.starts[seam] - (-inside * (self.ends[seam] - self.starts[seam])) // width
        return position + self.removed[seam]

    def find_seam(self, start: int, end: int) -> int:
        """Return the seam that hides all of a range (at least its first ns), -1 for none."""
        seam = bisect_right(self.starts, start) - 1
        return seam if seam >= 0 and max(end, start + 1) <= self.ends[seam] else -1


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
    least = (
        (MIN_LABEL_WIDTH + LABEL_GAP) * viewport.span // viewport.width
    )  # a smaller step leaves no cells for a label
    for power in range(len(str(least)) - 1, 20):
        for factor in (1, 2, 5):
            step = factor * 10**power
            longest = max(len(format_time(time, step, reach)) for time in (viewport.t0, viewport.t1))
            if step * viewport.width >= (longest + LABEL_GAP) * viewport.span:
                linear = (section for section in viewport.list_sections() if section.seam < 0)
                times = (t for part in linear for t in range(-(-part.t0 // step) * step, part.t1, step))
                return [Tick(viewport.cell(time), time, format_time(time, step, reach)) for time in times]
    return []


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


@dataclass(frozen=True, slots=True)
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
