"""Row, parent and self time of every event, without a Python step per event.

The rule. Within a lane, events are sorted by start, longest first, then as the file has them. An event's
parent is the innermost open event that contains it whole; its row is the lowest one below the parent's that
no open event holds. For nesting only, a duration of zero counts as 1 ns. On a *flat* lane (a stream) nothing
has a parent, and an event takes the lowest free row of all.

How it is found for millions of events:

* Lanes are laid end to end on one time axis, so all of them are settled at once.
* Where events nest cleanly, depth is "events before me, less those that had ended when I began", and the
  parent is the last event before me that was one less deep.
* Events that cross (overlap without nesting) are few. Once a later event crosses an earlier one, the earlier
  can be nobody's parent any more: whatever it still contains, the later one contains too, and is more inner.
  So ending the earlier one where the later one starts changes no parent, and leaves a lane that nests
  cleanly. One pass over what is left after peeling finds all these cuts.
* A crossed event still holds its row until its real end. Only events that begin while such a row is held can
  be pushed down, with all that lies beneath them: those are settled one by one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np

from torchprof_tui.trace.build.row_allocator import RowAllocator
from torchprof_tui.trace.core.arrays import I32, I64, Bool, block_slices

_BATCH_EVENTS = 1 << 20
"""Events of lanes that are nested at once: a lane at a time would be slow where there are thousands."""

_MAX_PEEL_ROUNDS = 12
"""Rounds of dropping leaves before the one-by-one pass; each halves the list, or peeling stops."""


@dataclass(frozen=True, slots=True)
class Nesting:
    """`row`, `parent` int32[n]. Event `crossed[k]` overlaps the later `crossing[k]`, the first to do so."""

    row: I32
    parent: I32
    crossed: I32
    crossing: I32


def nest_lanes(
    first: I64, flat: Bool, start: I64, duration: I64, row: I32 | None = None, parent: I32 | None = None
) -> Nesting:
    """Nest every lane. `first` int64[lanes + 1]: the lanes' bounds; `flat` bool[lanes]; times int64[n] ns.
    `row`, `parent`: where those are to lie.

    Events must be sorted as the module says. Linear but for two sorts; crossing events n log n.
    """
    row = np.empty(len(start), np.int32) if row is None else row
    parent = np.empty(len(start), np.int32) if parent is None else parent
    crossed, crossing = [_empty_indexes()], [_empty_indexes()]
    for lanes in _batch_lanes(first):
        events = slice(int(first[lanes.start]), int(first[lanes.stop]))
        part = _nest_batch(
            first[lanes.start : lanes.stop + 1] - first[lanes.start], flat[lanes], start[events], duration[events]
        )
        row[events] = part.row
        np.add(part.parent, np.int32(events.start), out=part.parent, where=part.parent >= 0)
        parent[events] = part.parent
        crossed.append(part.crossed + np.int32(events.start))
        crossing.append(part.crossing + np.int32(events.start))
    return Nesting(row, parent, np.concatenate(crossed), np.concatenate(crossing))


def _batch_lanes(first: I64) -> Iterator[slice]:
    """All lanes, as many together as have _TOGETHER events, or one: what one takes in memory can serve the next."""
    begin = 0
    while begin < len(first) - 1:
        end = int(np.searchsorted(first, first[begin] + _BATCH_EVENTS, side="right")) - 1
        end = max(end, begin + 1)
        yield slice(begin, end)
        begin = end


def _nest_batch(first: I64, flat: Bool, start: I64, duration: I64) -> Nesting:
    """As `nest`."""
    n = len(start)
    row = np.zeros(n, np.int32)
    parent = np.full(n, -1, np.int32)
    begin, end = _concatenate_lane_axes(first, start, duration)
    is_flat = np.repeat(flat, np.diff(first))
    level = np.flatnonzero(is_flat)
    row[level] = allocate_rows(begin[level], end[level])
    deep = np.flatnonzero(~is_flat)
    if len(level):
        begin, end = begin[deep], end[deep]
    del is_flat, level
    if not len(deep):
        return Nesting(row, parent, _empty_indexes(), _empty_indexes())

    depth, above = _nest_without_crossings(begin, end)
    wrong = np.flatnonzero(end > end[above])  # above[i] is i itself at the top, so never wrong there
    crossed = crossing = _empty_indexes()
    if len(wrong):
        lane_of_deep = np.searchsorted(first, deep, side="right")
        dirty_lanes = np.zeros(len(first) + 1, np.bool_)
        dirty_lanes[lane_of_deep[wrong]] = True
        dirty = np.flatnonzero(dirty_lanes[lane_of_deep])
        del lane_of_deep
        found = _nest_crossing_events(begin[dirty], end[dirty], depth[dirty])
        depth[dirty] = found.row
        above[dirty] = np.where(found.parent >= 0, dirty[found.parent], dirty)
        crossed, crossing = (deep[dirty[found.crossed]].astype(np.int32), deep[dirty[found.crossing]].astype(np.int32))
    row[deep] = depth
    parent[deep] = np.where(above == np.arange(len(deep), dtype=np.int32), -1, deep[above])
    return Nesting(row, parent, crossed, crossing)


def compute_self_durations(nesting: Nesting, start: I64, duration: I64, out: I64 | None = None) -> I64:
    """Duration less the union of the direct children, int64[n] ns; never negative: children lie inside. `own`: where
    they are to lie.

    Children of one parent overlap only where the earlier is crossed by the later; the earlier then counts
    up to there. (If what crosses it has another parent, no sibling overlaps it, and it counts whole.)
    """
    crossed, crossing = nesting.crossed, nesting.crossing
    siblings = nesting.parent[crossed] == nesting.parent[crossing]
    cut = crossed[siblings]
    spent = duration
    if len(cut):
        spent = duration.copy()
        spent[cut] = start[crossing[siblings]] - start[cut]
    out = np.empty_like(duration) if out is None else out
    out[:] = duration
    for block in block_slices(len(out)):
        parent = nesting.parent[block]
        child = parent >= 0
        np.subtract.at(out, parent[child], spent[block][child])
    return out


def allocate_rows(start: I64, end: I64) -> I32:
    """Rows of a flat lane: the lowest one that is free. Sorted by start; lanes may be laid end to end."""
    n = len(start)
    row = np.zeros(n, np.int32)
    if not n:
        return row
    alone = np.empty(n + 1, np.bool_)  # event i begins after all before it have ended
    alone[0] = alone[n] = True
    alone[1:n] = start[1:] >= np.maximum.accumulate(end)[:-1]
    crowded = np.flatnonzero(~(alone[:-1] & alone[1:]))
    busy: list[tuple[int, int]] = []  # (end, row), soonest first
    free: list[int] = []
    rows = 0
    settled: list[int] = []
    for begins, ends, fresh in zip(
        start[crowded].tolist(), end[crowded].tolist(), alone[crowded].tolist(), strict=True
    ):
        if fresh:
            busy.clear()
            free.clear()
            rows = 0
        while busy and busy[0][0] <= begins:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            mine = heapq.heappop(free)
        else:
            mine, rows = rows, rows + 1
        heapq.heappush(busy, (ends, mine))
        settled.append(mine)
    row[crowded] = settled
    return row


def _empty_indexes() -> I32:
    return np.zeros(0, np.int32)


def find_parents(first: I64, start: I64, duration: I64) -> I32:
    """int32[n]: the parent of every event by the module's rule, and nothing else: half the work of `nest`.

    No lane is flat. Worth it where events are known to cross, as then `nest` would go through them twice.
    """
    if not len(start):
        return np.zeros(0, np.int32)
    begin, end = _concatenate_lane_axes(first, start, duration)
    crossed, crossing = _find_crossings(begin, end)
    end[crossed] = begin[crossing]
    _, above = _nest_without_crossings(begin, end)
    return np.where(above == np.arange(len(above), dtype=np.int32), np.int32(-1), above).astype(np.int32)


def _concatenate_lane_axes(first: I64, start: I64, duration: I64) -> tuple[I64, I64]:
    """Starts and ends with the lanes laid end to end, a zero duration counting as 1 ns."""
    end = start + np.maximum(duration, 1)
    sizes = np.diff(first)
    filled = np.flatnonzero(sizes)
    if not len(filled):
        return start, end
    bounds = first[filled]
    lows = start[bounds]
    spans = np.maximum.reduceat(end, bounds) - lows
    if float(spans.astype(np.float64).sum()) > 2.0**62:  # absurd times: nesting needs only their order
        _, ranks = np.unique(np.concatenate([start, end]), return_inverse=True)
        start, end = ranks[: len(start)].astype(np.int64), ranks[len(start) :].astype(np.int64)
        lows = start[bounds]
        spans = np.maximum.reduceat(end, bounds) - lows
    offsets = np.concatenate([[0], np.cumsum(spans)[:-1]]) - lows
    shift = np.repeat(offsets, sizes[filled])
    return start + shift, end + shift


def _nest_without_crossings(start: I64, end: I64) -> tuple[I32, I32]:
    """Depth, and index of the event above (its own index at the top), if all events nest cleanly.

    If they do not, some event ends after the one above it: that is how the caller finds out. (By induction:
    as long as no event outlives the one above it, the open events are a chain, and the count is its length.)
    """
    n = len(start)
    index = np.arange(n, dtype=np.int32)
    depth = index - _count_ended(start, end)
    # Depth grows by one at a time, so in the order (depth, index) each run of siblings begins with a first
    # child, whose parent is the event just before it; the other siblings take theirs from it.
    narrow = depth.astype(np.uint16) if int(depth.max()) < 1 << 16 else depth  # uint16 sorts by radix
    order = np.argsort(narrow, kind="stable").astype(np.int32)
    first_child = np.zeros(n, np.bool_)
    first_child[1:] = depth[1:] > depth[:-1]
    run = np.maximum.accumulate(np.where(first_child[order], index, 0))
    above = np.empty(n, np.int32)
    above[order] = order[run] - 1
    return depth, np.where(depth == 0, index, above)


def _count_ended(start: I64, end: I64) -> I32:
    """How many of the events have ended when each begins, int32[n]; `start` is sorted.

    Ends are almost sorted, and starts behind them are a second run: a stable sort takes what is in order as it is and
    merges the rest, in an eighth of the time that one takes which looks for no order.
    """
    both = np.concatenate([np.sort(end, kind="stable"), start])
    starts = np.flatnonzero(np.argsort(both, kind="stable") >= len(end))  # an end stands before an equal start
    return (starts - np.arange(len(start))).astype(np.int32)


def _nest_crossing_events(start: I64, end: I64, open_before: I32) -> Nesting:
    """Nest lanes in which events cross. `open_before`: how many events are open when each begins."""
    crossed, crossing = _find_crossings(start, end)
    cut_end = end.copy()
    cut_end[crossed] = start[crossing]
    depth, above = _nest_without_crossings(start, cut_end)
    index = np.arange(len(start), dtype=np.int32)
    pushed = open_before > depth  # something is open that is no ancestor
    is_crossed = np.zeros(len(start), np.bool_)
    is_crossed[crossed] = True

    held = RowAllocator()
    lower: list[tuple[int, int]] = []  # (end, how much lower) of the pushed events that enclose this one
    at: list[int] = []
    by: list[int] = []
    special = np.flatnonzero(pushed | is_crossed)
    columns = (special, start[special], end[special], cut_end[special], depth[special])
    flags = (pushed[special].tolist(), is_crossed[special].tolist())
    for event, begins, ends, cut, deep, is_pushed, holds in zip(*(c.tolist() for c in columns), *flags, strict=True):
        while lower and lower[-1][0] <= begins:
            lower.pop()
        shift = lower[-1][1] if lower else 0
        row = deep + shift
        if is_pushed:
            free = held.find_free_row(row, begins)
            if free > row:
                at.append(event)
                by.append(free - row)
                lower.append((cut, shift + free - row))
                row = free
        if holds:
            held.hold_row(row, ends)
    if at:
        where = np.array(at)
        step = np.zeros(len(start) + 1, np.int32)
        np.add.at(step, where, by)
        np.subtract.at(step, np.searchsorted(start, cut_end[where], side="left"), by)
        depth += np.cumsum(step[:-1], dtype=np.int32)
    return Nesting(depth, np.where(above == index, -1, above).astype(np.int32), crossed, crossing)


def _find_crossings(start: I64, end: I64) -> tuple[I32, I32]:
    """Each crossed event with the first later one that crosses it.

    That is the next event in order that ends later, if it begins before this one ends. Most events have no
    part in it: a leaf (nothing begins inside) is never crossed, and crosses nobody for the first time if the
    last event before it that is no leaf outlives it. Those are peeled off in rounds; the rest go on a stack.
    """
    rest = np.arange(len(start), dtype=np.int32)
    for _ in range(_MAX_PEEL_ROUNDS):
        size = len(rest)
        leaf = np.ones(size, np.bool_)
        leaf[:-1] = start[1:] >= end[:-1]
        branch = np.maximum.accumulate(np.where(leaf, -1, np.arange(size)))
        keep = ~leaf | ((branch >= 0) & (end[branch] < end))
        rest, start, end = rest[keep], start[keep], end[keep]
        if len(rest) > 0.7 * size or len(rest) < 1000:
            break
    starts, ends = cast("list[int]", start.tolist()), cast("list[int]", end.tolist())
    stack: list[int] = []
    crossed: list[int] = []
    crossing: list[int] = []
    for event, ends_at in enumerate(ends):
        while stack and ends[stack[-1]] < ends_at:
            earlier = stack.pop()
            if starts[event] < ends[earlier]:
                crossed.append(earlier)
                crossing.append(event)
        stack.append(event)
    return rest[np.array(crossed, np.int64)], rest[np.array(crossing, np.int64)]
