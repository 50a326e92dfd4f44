"""Level of detail: what each cell of a viewport shows, at any zoom, exactly.

Cell k of a viewport t0..t1 that is `width` cells wide covers the nanoseconds from `edge[k]` up to, not with,
`edge[k + 1]`, where edge[k] = t0 + floor((t1 - t0) * k / width), computed in integers: traces with offsets of
10**15 ns lose nothing. Where a cell would be narrower than 1 ns, it shows the whole nanosecond that it lies in.

An event covers its duration, and at least 1 ns. So every event that the viewport touches is in at least one
cell, whatever the zoom: nothing disappears.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import F32, F64, I32, I64, Bool
from torchprof_tui.trace.model.row_index import RowIndex
from torchprof_tui.trace.model.trace import Counter


@dataclass(frozen=True, slots=True)
class Cells:
    """R rows of W cells.

    `event` int32[R, W]: the event that fills most of the cell (of equals the longest, then the first); -1: none.
    `busy` float32[R, W]: the share of the cell that events cover, 0..1.
    `count` int32[R, W]: how many events touch the cell.
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
    """int64[width + 1] ns, exact. Raises ValueError for an empty range or no cells."""
    if t1 <= t0 or width < 1:
        raise ValueError(f"no cells between {t0} and {t1} ns in {width} columns")
    whole, rest = divmod(t1 - t0, width)
    cell = np.arange(width + 1, dtype=np.int64)
    return t0 + whole * cell + rest * cell // width


def compute_cells(index: RowIndex, rows: I32 | slice, t0: int, t1: int, width: int) -> Cells:
    """What `width` cells between t0 and t1 (ns) show of these rows of the whole trace, in the order given.

    Costs some binary searches per row and a fixed number of vector operations over R x W, at every zoom.
    """
    chosen = np.arange(index.rows)[rows] if isinstance(rows, slice) else np.asarray(rows, dtype=np.int64)
    if t1 - t0 < width:
        by_nanosecond = compute_cells(index, chosen.astype(np.int32), t0, t1, t1 - t0)
        lies_in = cell_edges(t0, t1, width)[:-1] - t0
        return Cells(by_nanosecond.event[:, lies_in], by_nanosecond.busy[:, lies_in], by_nanosecond.count[:, lies_in])
    edges = cell_edges(t0, t1, width)
    if not len(chosen) or not len(index.order):
        shape = (len(chosen), width)
        return Cells(np.full(shape, -1, np.int32), np.zeros(shape, np.float32), np.zeros(shape, np.int32))

    place = _first_offsets_at_edges(index, chosen, edges)
    before = np.maximum(place - 1, 0)
    length = index.durations_at(before)
    start = index.starts[before]
    sticks_out = start + length - edges  # how far the event before an edge reaches beyond it
    crosses = (place > index.first[chosen][:, None]) & (sticks_out > 0)
    sticks_out = np.where(crosses, sticks_out, 0)

    covered = index.sums[place] - sticks_out  # by the row's events before each edge
    busy = (covered[:, 1:] - covered[:, :-1]) / (edges[1:] - edges[:-1])
    count = place[:, 1:] - place[:, :-1] + crosses[:, :-1]
    return Cells(
        _find_dominant_events(index, edges, place, before, start, length, sticks_out, crosses),
        busy.astype(np.float32),
        count.astype(np.int32),
    )


def _first_offsets_at_edges(index: RowIndex, rows: I64, edges: I64) -> I64:
    """int64[R, W + 1]: for each row and edge the first place of an event that starts at the edge or later."""
    out = np.empty((len(rows), len(edges)), dtype=np.int64)
    for number, (first, last) in enumerate(
        zip(index.first[rows].tolist(), index.first[rows + 1].tolist(), strict=True)
    ):
        np.add(index.starts[first:last].searchsorted(edges), first, out=out[number])
    return out


def _find_dominant_events(
    index: RowIndex, edges: I64, place: I64, before: I64, start: I64, length: I64, sticks_out: I64, crosses: Bool
) -> I32:
    """int32[R, W]: the event with the largest part in each cell.

    It is the one that crosses the left edge, the one that crosses the right edge, or the longest of those that
    lie inside. Of equal parts the longest wins: an event that crosses an edge is longer than its part.
    """
    inside_last = place[:, 1:] - crosses[:, 1:]
    inside_first = np.minimum(place[:, :-1], inside_last)  # one event may cross both edges
    winner = np.full(inside_first.shape, -1, dtype=np.int64)
    part = np.zeros(inside_first.shape, dtype=np.int64)
    some = np.nonzero(inside_first < inside_last)
    if len(some[0]):
        longest = index.find_longest(inside_first[some], inside_last[some])
        winner[some] = longest
        part[some] = index.durations_at(longest)

    right_part = edges[1:] - np.maximum(start[:, 1:], edges[:-1])
    right = crosses[:, 1:] & (right_part >= part)
    winner = np.where(right, before[:, 1:], winner)
    part = np.where(right, right_part, part)

    left_part = np.minimum(sticks_out[:, :-1], edges[1:] - edges[:-1])
    longer = ~right | (length[:, :-1] >= length[:, 1:])
    left = crosses[:, :-1] & ((left_part > part) | ((left_part == part) & longer))
    winner = np.where(left, before[:, :-1], winner)
    return np.where(winner < 0, -1, index.order[winner]).astype(np.int32)


def compute_counter_cells(counter: Counter, t0: int, t1: int, width: int) -> CounterCells:
    """A value holds until the next point, so a cell has the value that it starts with and those set within it."""
    if t1 - t0 < width:
        fine = compute_counter_cells(counter, t0, t1, t1 - t0)
        lies_in = cell_edges(t0, t1, width)[:-1] - t0
        return CounterCells(fine.low[lies_in], fine.high[lies_in], fine.last[lies_in])
    edges = cell_edges(t0, t1, width)
    nothing = np.full(width, np.nan)
    if not len(counter.times):
        return CounterCells(nothing, nothing, nothing)
    place = counter.times.searchsorted(edges)
    at_edge = counter.times[np.minimum(place[:-1], len(counter.times) - 1)] == edges[:-1]
    held = ~at_edge & (place[:-1] > 0)
    first, last = place[:-1] - held, place[1:]
    known = np.flatnonzero(first < last)
    if not len(known):
        return CounterCells(nothing, nothing, nothing)
    offset = int(first[known[0]])
    # reduceat takes pairs of bounds, of which every second result is wanted; the last bound must be a place as well.
    values = np.append(counter.values[offset : int(last[-1])], 0.0)
    bounds = np.column_stack([first[known], last[known]]).ravel() - offset
    low, high, final = nothing.copy(), nothing.copy(), nothing.copy()
    low[known] = np.minimum.reduceat(values, bounds)[::2]
    high[known] = np.maximum.reduceat(values, bounds)[::2]
    final[known] = counter.values[last[known] - 1]
    return CounterCells(low, high, final)
