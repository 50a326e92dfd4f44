"""Compute row, parent and self time of every event, without a Python step per event.

The rule. Within a lane, events are sorted by start, longest first, then in file order. An event's parent is the
innermost open event that contains it entirely; its row is the lowest one below the parent's that no open event holds.
For nesting only, a duration of zero counts as 1 ns. On a *flat* lane (a stream) nothing has a parent, and an event
takes the lowest free row of all.

How this is computed for millions of events:

* Lanes are concatenated on one time axis, so that all of them are nested at once.
* Where events nest cleanly, the depth of an event is the number of events before it, less those that had ended when it
  began, and its parent is the last event before it that is one less deep.
* Events that cross (overlap without nesting) are few. Once a later event crosses an earlier one, the earlier cannot be
  a parent any more: the later one contains everything that it still contains, and is further in. So ending the earlier
  one where the later one starts changes no parent, and leaves a lane that nests cleanly. One pass over what is left
  after peeling finds all these cuts.
* A crossed event still holds its row until its real end. Only events that begin while such a row is held can be
  pushed down, with all that is nested in them: `pushed_events.py` finds those.

A part may end where every event before has ended: nothing that begins there has a parent, or crosses an event, or finds
a row held, before that point. In a recording with Python frames the outer frames are open all the time; an event
that comes first and ends last contains all others and crosses none, so the events after it are nested as a lane of
their own, one row below it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import cast

import numpy as np

from torchprof_tui.trace.build.pushed_events import CutEvents, find_pushed_events, sum_pushed_rows
from torchprof_tui.trace.core.arrays import I32, I64, Bool, block_slices
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.thread_tasks import (
    accumulate_parallel,
    find_indexes,
    map_blocks,
    run_blocks,
    run_slices,
    run_tasks,
)

_MAX_DEPTH = 12  # levels of enclosing events that are looked through; each reads the times of the lane once
_NONE = np.zeros(0, np.int32)


@record
class LaneParts:
    """k parts of lanes, in the order of the events.

    `first` int64[k + 1]: their bounds; `flat` bool[k]; `row` int64[k]: the row of a part's outermost events; `parent`
    int64[k]: their parent, -1 for none.
    """

    first: I64
    flat: Bool
    row: I64
    parent: I64


def divide_lanes(first: I64, flat: Bool, start: I64, duration: I64, size: int) -> LaneParts:
    """Divide lanes into parts of about `size` events where that is possible. Arguments as of `nest_lanes`."""
    parts: list[tuple[int, bool, int, int]] = []
    for begin, end, is_flat in zip(first[:-1].tolist(), first[1:].tolist(), flat.tolist(), strict=True):
        todo = [(begin, end, 0, -1, 0)]
        while todo:
            begin, end, row, parent, depth = todo.pop()
            if end - begin <= 2 * size or depth == _MAX_DEPTH:
                parts.append((begin, is_flat, row, parent))
                continue
            enclosing = 0 if is_flat else _count_enclosing(start[begin:end], duration[begin:end])
            cuts = _find_cuts(start[begin + enclosing : end], duration[begin + enclosing : end], size)
            if enclosing:
                parts.append((begin, is_flat, row, parent))
                row, parent = row + enclosing, begin + enclosing - 1
            bounds = [begin + enclosing, *(begin + enclosing + cut for cut in cuts), end]
            next_depth = depth + 1 if enclosing or cuts else _MAX_DEPTH
            inner = [(low, high, row, parent, next_depth) for low, high in pairwise(bounds)]
            todo += [part for part in reversed(inner) if part[1] > part[0]]
    columns = list(zip(*parts, strict=True)) or [(), (), (), ()]
    bounds_column = np.array([*columns[0], int(first[-1])], np.int64)
    return LaneParts(
        bounds_column, np.array(columns[1], np.bool_), np.array(columns[2], np.int64), np.array(columns[3], np.int64)
    )


def _count_enclosing(start: I64, duration: I64) -> int:
    """Count the events at the beginning of a lane that each end no earlier than all events after them."""
    head = min(len(start), 1 << 12)
    end = start[:head] + np.maximum(duration[:head], 1)
    later = map_blocks(
        lambda block: int((start[head:][block] + np.maximum(duration[head:][block], 1)).max()), len(start) - head
    )
    # The end of all events after each.
    latest = np.maximum.accumulate(np.append(end[1:], max([int(end[-1]), *later]))[::-1])[::-1]
    shorter = np.flatnonzero(end < latest)
    count = int(shorter[0]) if len(shorter) else head
    return min(count, len(start) - 1)


def _find_cuts(start: I64, duration: I64, size: int) -> list[int]:
    """Find where parts of at least `size` events can end: indexes of events before which all others have ended."""
    open_until = np.empty_like(start)
    run_blocks(lambda block: np.add(start[block], np.maximum(duration[block], 1), out=open_until[block]), len(start))
    accumulate_parallel(np.maximum, open_until)
    fresh = find_indexes(lambda block: start[1:][block] >= open_until[:-1][block], len(start) - 1) + 1
    cuts: list[int] = []
    last = 0
    while True:
        index = int(np.searchsorted(fresh, last + size))
        if index == len(fresh):
            return cuts
        last = int(fresh[index])
        cuts.append(last)


_PART_EVENTS = 1 << 17
"""Number of events that each thread nests at once: short lanes together, long ones in parts. Each batch reuses the
memory of the one before."""

_MAX_PEEL_ROUNDS = 16
_PEELED_SHARE = 0.95
"""Rounds of dropping leaves before the one-by-one pass; each shortens the list to this share of it, or is the last."""

_FEW_EVENTS = 1000  # below it, a pass over single events is as fast as a round


@record
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
    `row`, `parent` int32[n]: allocated for the result; in memory where they are not given.

    Events must be sorted as the rule says. Linear but for two sorts; crossing events n log n.
    """
    row = np.empty(len(start), np.int32) if row is None else row
    parent = np.empty(len(start), np.int32) if parent is None else parent
    parts = divide_lanes(first, flat, start, duration, _PART_EVENTS)
    batches = list(_batch_lanes(parts.first, _PART_EVENTS))
    crossed, crossing = [_NONE] * (len(batches) + 1), [_NONE] * (len(batches) + 1)

    def nest(number: int) -> None:
        lanes = batches[number]
        events = slice(int(parts.first[lanes.start]), int(parts.first[lanes.stop]))
        bounds = parts.first[lanes.start : lanes.stop + 1] - events.start
        batch = _nest_batch(bounds, parts.flat[lanes], start[events], duration[events])
        np.add(batch.parent, np.int32(events.start), out=batch.parent, where=batch.parent >= 0)
        if parts.row[lanes].any():
            sizes = np.diff(bounds)
            np.add(batch.row, _repeat_by_lane(parts.row[lanes], sizes), out=batch.row, casting="unsafe")
            enclosing = _repeat_by_lane(parts.parent[lanes], sizes)
            np.copyto(batch.parent, enclosing, where=batch.parent < 0, casting="unsafe")
        row[events], parent[events] = batch.row, batch.parent
        crossed[number] = batch.crossed + np.int32(events.start)
        crossing[number] = batch.crossing + np.int32(events.start)

    run_tasks([partial(nest, number) for number in range(len(batches))])
    return Nesting(row, parent, np.concatenate(crossed), np.concatenate(crossing))


def _batch_lanes(first: I64, size: int) -> Iterator[slice]:
    """Batch the lanes, up to `size` events or one lane at a time: each batch reuses the memory of the last."""
    begin = 0
    while begin < len(first) - 1:
        end = int(np.searchsorted(first, first[begin] + size, side="right")) - 1
        end = max(end, begin + 1)
        yield slice(begin, end)
        begin = end


def _nest_batch(first: I64, flat: Bool, start: I64, duration: I64) -> Nesting:
    n = len(start)
    row = np.zeros(n, np.int32)
    parent = np.full(n, -1, np.int32)
    begin, end = _concatenate_lane_axes(first, start, duration)
    is_flat = np.zeros(n, np.bool_) if not flat.any() else np.repeat(flat, np.diff(first))
    flat_events = np.flatnonzero(is_flat)
    row[flat_events] = allocate_rows(begin[flat_events], end[flat_events])
    nested = np.flatnonzero(~is_flat)
    if len(flat_events):
        begin, end = begin[nested], end[nested]
    del is_flat, flat_events
    if not len(nested):
        return Nesting(row, parent, _NONE, _NONE)

    depth, above = _nest_without_crossings(begin, end)
    wrong = np.flatnonzero(end > end[above])  # at the top above[i] is i itself, which is never wrong
    crossed = crossing = _NONE
    if len(wrong):
        lane = np.searchsorted(first, nested, side="right")
        has_crossings = np.zeros(len(first) + 1, np.bool_)
        has_crossings[lane[wrong]] = True
        again = np.flatnonzero(has_crossings[lane])
        del lane
        corrected = _nest_crossing_events(begin[again], end[again], depth[again])
        depth[again] = corrected.row
        above[again] = np.where(corrected.parent >= 0, again[corrected.parent], again)
        crossed = nested[again[corrected.crossed]].astype(np.int32)
        crossing = nested[again[corrected.crossing]].astype(np.int32)
    row[nested] = depth
    parent[nested] = np.where(above == np.arange(len(nested), dtype=np.int32), -1, nested[above])
    return Nesting(row, parent, crossed, crossing)


def compute_self_durations(nesting: Nesting, start: I64, duration: I64, out: I64 | None = None) -> I64:
    """Compute self durations, int64[n] ns: the duration less the union of the direct children. Never negative, because
    children are contained. `out`: allocated for the result; in memory where it is not given.

    Children of one parent overlap only where the earlier is crossed by the later; the earlier then counts
    up to there. (If the event that crosses it has another parent, no sibling overlaps it, and it counts whole.)
    """
    crossed, crossing = nesting.crossed, nesting.crossing
    siblings = nesting.parent[crossed] == nesting.parent[crossing]
    cut = crossed[siblings]
    counted = duration
    if len(cut):
        counted = duration.copy()
        counted[cut] = start[crossing[siblings]] - start[cut]
    total = np.empty_like(duration) if out is None else out
    total[:] = duration
    from_other_parts: list[tuple[I32, I64]] = []  # parents in another part than their child, and its duration

    def subtract_children(part: slice) -> None:
        for block in block_slices(part.stop - part.start):
            events = slice(part.start + block.start, part.start + block.stop)
            parent = nesting.parent[events]
            is_here = parent >= part.start
            np.subtract.at(total, parent[is_here], counted[events][is_here])
            elsewhere = (parent >= 0) & ~is_here
            if elsewhere.any():
                from_other_parts.append((parent[elsewhere], counted[events][elsewhere]))

    run_slices(subtract_children, len(total))
    for parent, durations in from_other_parts:
        np.subtract.at(total, parent, durations)
    return total


def allocate_rows(start: I64, end: I64) -> I32:
    """Allocate the rows of a flat lane, int32[n]: the lowest free one each. Events are sorted by start; lanes may be
    concatenated."""
    n = len(start)
    row = np.zeros(n, np.int32)
    if not n:
        return row
    is_fresh = np.empty(n + 1, np.bool_)  # the event begins after all before it have ended
    is_fresh[0] = is_fresh[n] = True
    is_fresh[1:n] = start[1:] >= np.maximum.accumulate(end)[:-1]
    overlapping = np.flatnonzero(~(is_fresh[:-1] & is_fresh[1:]))
    busy: list[tuple[int, int]] = []  # (end, row), soonest first
    free: list[int] = []
    rows = 0
    allocated: list[int] = []
    for begins, ends, fresh in zip(
        start[overlapping].tolist(), end[overlapping].tolist(), is_fresh[overlapping].tolist(), strict=True
    ):
        if fresh:
            busy.clear()
            free.clear()
            rows = 0
        while busy and busy[0][0] <= begins:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lowest = heapq.heappop(free)
        else:
            lowest, rows = rows, rows + 1
        heapq.heappush(busy, (ends, lowest))
        allocated.append(lowest)
    row[overlapping] = allocated
    return row


def _repeat_by_lane(values: I64, sizes: I64) -> I64:
    """Repeat the value of each lane for its events: int64[sum of sizes]. Of one lane a view, which copies nothing."""
    return np.broadcast_to(values, int(sizes[0])) if len(sizes) == 1 else np.repeat(values, sizes)


def find_parents(first: I64, start: I64, duration: I64) -> I32:
    """Find the parent of every event by the rule, int32[n], and nothing else: half the work of `nest_lanes`.

    No lane is flat. Worth it where events are known to cross, because `nest_lanes` would nest those twice.
    """
    if not len(start):
        return np.zeros(0, np.int32)
    begin, end = _concatenate_lane_axes(first, start, duration)
    crossed, crossing = _find_crossings(begin, end)
    end[crossed] = begin[crossing]
    _, above = _nest_without_crossings(begin, end)
    return np.where(above == np.arange(len(above), dtype=np.int32), np.int32(-1), above).astype(np.int32)


def _concatenate_lane_axes(first: I64, start: I64, duration: I64) -> tuple[I64, I64]:
    """Concatenate the lanes on one time axis: starts and ends, a zero duration counting as 1 ns."""
    end = start + np.maximum(duration, 1)
    sizes = np.diff(first)
    filled = np.flatnonzero(sizes)
    if len(filled) < 2:
        return start, end
    bounds = first[filled]
    lows = start[bounds]
    spans = np.maximum.reduceat(end, bounds) - lows
    if float(spans.astype(np.float64).sum()) > 2.0**62:  # times too far apart to add up: nesting needs only their order
        _, ranks = np.unique(np.concatenate([start, end]), return_inverse=True)
        start, end = ranks[: len(start)].astype(np.int64), ranks[len(start) :].astype(np.int64)
        lows = start[bounds]
        spans = np.maximum.reduceat(end, bounds) - lows
    offsets = np.concatenate([[0], np.cumsum(spans)[:-1]]) - lows
    shift = np.repeat(offsets, sizes[filled])
    return start + shift, end + shift


def _nest_without_crossings(start: I64, end: I64) -> tuple[I32, I32]:
    """Compute the depth, and the index of the event above (its own index at the top), if all events nest cleanly.

    If they do not, some event ends after the one above it, which the caller checks. (By induction: as long as no event
    ends after the one above it, the open events are a chain, and the count is its length.)
    """
    n = len(start)
    index = np.arange(n, dtype=np.int32)
    depth = index - _count_ended(start, end)
    # Depth grows by one at a time, so in the order (depth, index) each run of siblings begins with a first
    # child, whose parent is the event just before it; the other siblings have the same parent.
    narrow = depth.astype(np.uint16) if int(depth.max()) < 1 << 16 else depth  # uint16 sorts by radix
    order = np.argsort(narrow, kind="stable").astype(np.int32)
    first_child = np.zeros(n, np.bool_)
    first_child[1:] = depth[1:] > depth[:-1]
    run = np.maximum.accumulate(np.where(first_child[order], index, 0))
    above = np.empty(n, np.int32)
    above[order] = order[run] - 1
    return depth, np.where(depth == 0, index, above)


def _count_ended(start: I64, end: I64) -> I32:
    """Count the events that have ended when each begins, int32[n]; `start` is sorted.

    Ends are almost sorted, and the starts after them are a second run: a stable sort merges such runs in an eighth of
    the time that an unstable sort takes.
    """
    both = np.concatenate([np.sort(end, kind="stable"), start])
    starts = np.flatnonzero(np.argsort(both, kind="stable") >= len(end))  # an end sorts before an equal start
    return (starts - np.arange(len(start))).astype(np.int32)


def _nest_crossing_events(start: I64, end: I64, open_before: I32) -> Nesting:
    """Nest lanes in which events cross. `open_before`: the number of events that are open when each begins."""
    crossed, crossing = _find_crossings(start, end)
    cut_end = end.copy()
    cut_end[crossed] = start[crossing]
    depth, above = _nest_without_crossings(start, cut_end)
    events = CutEvents(start, end, cut_end, depth, above)
    pushed, rows = find_pushed_events(events, crossed, crossing, open_before)
    if len(pushed):
        depth += sum_pushed_rows(events, pushed, rows)
    index = np.arange(len(start), dtype=np.int32)
    return Nesting(depth, np.where(above == index, np.int32(-1), above), crossed, crossing)


def _find_crossings(start: I64, end: I64) -> tuple[I32, I32]:
    """Find each crossed event and the first later one that crosses it.

    That is the next event in order that ends later, if it begins before this one ends. Most events are not involved: a
    leaf (nothing begins inside) is never crossed, and is never the first to cross another if the last event before it
    that is no leaf ends later. Those are peeled off in rounds; the rest are matched with a stack.
    """
    rest = np.arange(len(start), dtype=np.int32)
    for _ in range(_MAX_PEEL_ROUNDS):
        size = len(rest)
        leaf = np.ones(size, np.bool_)
        leaf[:-1] = start[1:] >= end[:-1]
        branch = np.maximum.accumulate(np.where(leaf, -1, np.arange(size)))
        keep = ~leaf | ((branch >= 0) & (end[branch] < end))
        rest, start, end = rest[keep], start[keep], end[keep]
        if len(rest) > _PEELED_SHARE * size or len(rest) < _FEW_EVENTS:
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
