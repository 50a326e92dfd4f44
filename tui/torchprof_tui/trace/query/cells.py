"""What the cells of rows show: the event with the most time in each, and the values of counters.

Pure; all times are int ns. What each cell shows is computed exactly, at any zoom. Cell k of a viewport t0..t1 that is
`width` cells wide covers the nanoseconds from `edge[k]` up to, but not including, `edge[k + 1]`, where edge[k] = t0 +
floor((t1 - t0) * k / width), computed in integers: traces with offsets of 10**15 ns lose nothing. Where a cell would be
narrower than 1 ns, it shows the whole nanosecond that contains it.

An event covers its duration, and at least 1 ns. So every event that the viewport touches is in at least one
cell, at every zoom: nothing disappears.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import F32, F64, I32, I64, Bool
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.row_index import RowIndex
from torchprof_tui.trace.model.trace import Counter


@record
class Cells:
    """R rows of W cells.

    `event` int32[R, W]: the event that fills most of the cell (of equals the longest, then the first); -1: none.
    `busy` float32[R, W]: the share of the cell that events cover, 0..1.
    `count` int32[R, W]: the number of events that touch the cell.
    """

    event: I32
    busy: F32
    count: I32


@record
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

    offset = np.empty((len(chosen), len(edges)), dtype=np.int64)  # in the index, of the first event from an edge on
    bounds = zip(index.first[chosen].tolist(), index.first[chosen + 1].tolist(), strict=True)
    for number, (low, high) in enumerate(bounds):
        np.add(index.starts[low:high].searchsorted(edges), low, out=offset[number])
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
