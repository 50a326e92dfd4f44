"""Find the events that a crossed event pushes down, because it holds its row until its real end.

Events are nested as if a crossed event ended where the first later one crosses it (`nesting.py`), but it is drawn to
its real end. An event that would be drawn in such a row moves down to the next free row, with all that is nested in it.

Only few events need to be looked at. An event is in the same row as the sibling before it, unless that one was pushed
down. If the row was free for that sibling, it still is: a row that was taken since then is one below, or it is that of
the sibling itself, and then this event crosses it. What remains are first children, events that cross another, and the
next sibling of each pushed event; a crossed event is looked at to learn its row.

A plain scan would be quadratic on a lane where every event crosses the one before.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import partial

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.core.records import record

_FREE = -(2**63)
_FIRST_ROWS = 64  # rows that a tree of rows has at first; a power of two


class RowAllocator:
    """Rows, each held until some time; calls must be in order of time."""

    __slots__ = ("_size", "_tree")

    def __init__(self) -> None:
        self._size = _FIRST_ROWS
        self._tree = [_FREE] * (2 * self._size)

    def hold_row(self, row: int, until: int) -> None:
        while row >= self._size:
            leaves = self._tree[self._size :]
            self._size *= 2
            self._tree = [_FREE] * self._size + leaves + [_FREE] * (self._size - len(leaves))
            for parent in range(self._size - 1, 0, -1):
                self._tree[parent] = min(self._tree[2 * parent], self._tree[2 * parent + 1])
        tree, node = self._tree, self._size + row
        tree[node] = until
        while node > 1:
            node >>= 1
            left, right = tree[2 * node], tree[2 * node + 1]
            tree[node] = left if left < right else right

    def find_free_row(self, row: int, now: int) -> int:
        """Find the first row >= `row` that is not held at `now`."""
        if row >= self._size:
            return row
        tree, node = self._tree, self._size + row
        while tree[node] > now:
            while node & 1:  # a right child: go up until there is a sibling to the right
                node >>= 1
            if node == 0:
                return self._size
            node += 1
        while node < self._size:
            node *= 2
            if tree[node] > now:
                node += 1
        return node - self._size


_BLOCK = 1 << 14  # events that are Python numbers at a time

_NEVER = 2**63

_MAX_SCANNED_ROWS = 16  # rows in which a free one is searched one by one; beyond, a tree of the rows is kept

_MAX_ROUNDS = 4
"""Rounds of placing only events in rows that are held, as far as known; then all that may be pushed are placed."""


@record
class CutEvents:
    """n events in order: times, the end of each if it is cut, its depth, the event above it (itself at the top)."""

    start: I64
    end: I64
    cut_end: I64
    depth: I32
    above: I32


def find_pushed_events(events: CutEvents, crossed: I32, crossing: I32, open_before: I32) -> tuple[I64, I64]:
    """Find the events that are pushed down, and by how many rows: int64[k] each, events that enclose them not included.

    Event `crossed[i]` overlaps the later `crossing[i]`; `open_before` int32[n]: the events open when each begins.
    """
    pushable = open_before > events.depth  # an event is open that is no ancestor
    is_crossed = np.zeros(len(pushable), np.bool_)
    is_crossed[crossed] = True
    may_be_pushed = np.zeros(len(pushable), np.bool_)
    may_be_pushed[1:] = events.depth[1:] > events.depth[:-1]  # first children
    may_be_pushed[crossing] = True
    may_be_pushed &= pushable
    may_be_pushed |= is_crossed
    candidates = np.flatnonzero(may_be_pushed)
    by_order = np.sort(crossed)
    place = partial(_place_events, events, _find_next_siblings(events.depth, events.above), pushable, is_crossed)
    looked_at = is_crossed.copy()
    looked_at[_find_held(events, candidates, by_order, events.depth)] = True
    for _ in range(_MAX_ROUNDS):
        if 2 * np.count_nonzero(looked_at) > len(candidates):
            break  # several rounds would take longer than one with all candidates
        pushed, rows = place(looked_at)
        held = _find_held(events, candidates, by_order, events.depth + sum_pushed_rows(events, pushed, rows))
        held = held[~looked_at[held]]
        if not len(held):  # placing any other event would have changed nothing
            return pushed, rows
        looked_at[held] = True
    return place(may_be_pushed)


def sum_pushed_rows(events: CutEvents, pushed: I64, rows: I64) -> I32:
    """Sum up by how many rows each event is pushed down, with the events that enclose it: int32[n]."""
    step = np.zeros(len(events.start) + 1, np.int32)
    np.add.at(step, pushed, rows)
    np.subtract.at(step, np.searchsorted(events.start, events.cut_end[pushed], side="left"), rows)
    sums: I32 = np.cumsum(step[:-1], dtype=np.int32)
    return sums


def _find_held(events: CutEvents, candidates: I64, crossed: I32, row: I32) -> I64:
    """Find the candidates that begin in a row which the last crossed event there still holds. `crossed`: ascending.

    `row` int32[n]: the row of each event.
    """
    holders = row[crossed].astype(np.int64) << 32 | crossed
    order = np.argsort(holders)
    holders, holder_end = holders[order], events.end[crossed[order]]
    last = np.searchsorted(holders, row[candidates].astype(np.int64) << 32 | candidates) - 1
    is_held = (last >= 0) & (holders[last] >> 32 == row[candidates]) & (holder_end[last] > events.start[candidates])
    held: I64 = candidates[is_held]
    return held


def _place_events(
    events: CutEvents, next_sibling: I32, pushable: Bool, is_crossed: Bool, looked_at: Bool
) -> tuple[I64, I64]:
    """Find the events that are pushed down among those `looked_at` and the siblings after a pushed one."""
    placement = _Placement(events, next_sibling, pushable, looked_at)
    later, held_until = placement.later, placement.held_until
    # The common case, an event in a row that is free, is handled here, because a call would take most of the time.
    for event, begins, deep, hold, ends in _iterate_events(events, is_crossed, looked_at):
        if later and later[0] < event:
            placement.place_siblings(event)
        if placement.shift_end <= begins:
            placement.leave_enclosing(begins)
        row = deep + placement.shift
        if row < len(held_until) and held_until[row] > begins:
            row = placement.push(event, row, begins)
        if hold:
            placement.hold(row, ends)
    placement.place_siblings(len(pushable))
    pushed, rows = np.array(placement.pushed, np.int64), np.array(placement.rows, np.int64)
    order = np.argsort(pushed)
    return pushed[order], rows[order]


def _iterate_events(events: CutEvents, is_crossed: Bool, looked_at: Bool) -> Iterator[tuple[int, int, int, bool, int]]:
    """Yield the events to look at: index, start, depth, whether it is crossed, end."""
    selected = np.flatnonzero(looked_at)
    for first in range(0, len(selected), _BLOCK):
        block = selected[first : first + _BLOCK]
        columns = (events.start, events.depth, is_crossed, events.end)
        yield from zip(block.tolist(), *(column[block].tolist() for column in columns), strict=True)


class _Placement:
    """What the events looked at so far leave to the next one.

    `pushed`, `rows`: the events that were pushed down, and how far. `later`: a heap of events to look at that follow
    one of those. `shift`: how far the next event is pushed down with the events that enclose it, if it begins before
    `shift_end`. `held_until`: until when each of the first rows is held by a crossed event.
    """

    def __init__(self, events: CutEvents, next_sibling: I32, pushable: Bool, looked_at: Bool) -> None:
        self.pushed: list[int] = []
        self.rows: list[int] = []
        self.later: list[int] = []
        self.shift, self.shift_end = 0, _NEVER
        self.held_until: list[int] = []
        self._events = events
        self._waits = pushable & ~looked_at
        self._next_sibling = next_sibling
        self._held: RowAllocator | None = None  # the same as `held_until`, once a free row was far from one that is not
        self._enclosing: list[tuple[int, int]] = [(_NEVER, 0)]  # (end, shift) of the pushed events that enclose it

    def leave_enclosing(self, now: int) -> None:
        """Leave the pushed events that have ended."""
        while self._enclosing[-1][0] <= now:
            self._enclosing.pop()
        self.shift_end, self.shift = self._enclosing[-1]

    def push(self, event: int, row: int, begins: int) -> int:
        """Push an event down from a row that is held. Returns its row."""
        free = self._find_free_row(row, begins)
        self.pushed.append(event)
        self.rows.append(free - row)
        self.shift, self.shift_end = self.shift + free - row, int(self._events.cut_end[event])
        self._enclosing.append((self.shift_end, self.shift))
        sibling = int(self._next_sibling[event])
        if sibling >= 0 and self._waits[sibling]:
            heapq.heappush(self.later, sibling)
        return free

    def _find_free_row(self, row: int, now: int) -> int:
        """Find the first row from a held one on that is not held."""
        if self._held is None:
            for free in range(row + 1, row + _MAX_SCANNED_ROWS):
                if free >= len(self.held_until) or self.held_until[free] <= now:
                    return free
            self._held = RowAllocator()
            for held, until in enumerate(self.held_until):
                self._held.hold_row(held, until)
        return self._held.find_free_row(row, now)

    def hold(self, row: int, until: int) -> None:
        if self._held is not None:
            self._held.hold_row(row, until)
        missing = row + 1 - len(self.held_until)
        if missing > 0:
            self.held_until += [-_NEVER] * missing
        self.held_until[row] = until

    def place_siblings(self, before: int) -> None:
        """Place the events that follow a pushed one, up to an event."""
        while self.later and self.later[0] < before:
            event = heapq.heappop(self.later)
            begins = int(self._events.start[event])
            self.leave_enclosing(begins)
            row = int(self._events.depth[event]) + self.shift
            if row < len(self.held_until) and self.held_until[row] > begins:
                self.push(event, row, begins)


def _find_next_siblings(depth: I32, above: I32) -> I32:
    """Find the next event with the same one above it, int32[n], -1 for none."""
    narrow = depth.astype(np.uint16) if int(depth.max(initial=0)) < 1 << 16 else depth  # uint16 sorts by radix
    order = np.argsort(narrow, kind="stable").astype(np.int32)
    parent = np.where(depth == 0, np.int32(-1), above)
    first, second = order[:-1], order[1:]
    is_next = (depth[first] == depth[second]) & (parent[first] == parent[second])
    sibling = np.full(len(depth), -1, np.int32)
    sibling[first[is_next]] = second[is_next]
    return sibling
