"""Find the events that a crossed event pushes down, because it holds its row until its real end.

Events are nested as if a crossed event ended where the first later one crosses it (`nesting.py`), but it is drawn to
its real end. An event that would be drawn in such a row moves down to the next free row, with all that is nested in it.

Only few events need to be looked at. An event is in the same row as the sibling before it, unless that one was pushed
down. If the row was free for that sibling, it still is: a row that was taken since then is one below, or it is that of
the sibling itself, and then this event crosses it. What remains are first children, events that cross another, and the
next sibling of each pushed event; a crossed event is looked at to learn its row.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.build.row_allocator import RowAllocator
from torchprof_tui.trace.core.arrays import I32, I64, Bool

_BLOCK = 1 << 14
"""Events that are Python numbers at a time."""

_SMALL_DEPTH = 1 << 16

_NEVER = 2**63


@dataclass(frozen=True, slots=True)
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
    looked_at = np.zeros(len(pushable), np.bool_)
    looked_at[1:] = events.depth[1:] > events.depth[:-1]  # first children
    looked_at[crossing] = True
    looked_at &= pushable
    looked_at |= is_crossed
    placement = _Placement(events, pushable, looked_at)
    later = placement.later
    # The common case, an event in a row that is free, is handled here, because a call would take most of the time.
    for event, begins, deep, hold in _iterate_events(events, is_crossed, looked_at):
        if later and later[0] < event:
            placement.place_siblings(event)
        if placement.shift_end <= begins:
            placement.leave_enclosing(begins)
        row = deep + placement.shift
        if row < placement.held_rows and placement.held_until[row] > begins:
            row = placement.push(event, row, begins)
        if hold:
            placement.hold(row, int(events.end[event]))
    placement.place_siblings(len(pushable))
    pushed, rows = np.array(placement.pushed, np.int64), np.array(placement.rows, np.int64)
    order = np.argsort(pushed)
    return pushed[order], rows[order]


def _iterate_events(events: CutEvents, is_crossed: Bool, looked_at: Bool) -> Iterator[tuple[int, int, int, bool]]:
    """Yield the events to look at: index, start, depth, whether it is crossed."""
    selected = np.flatnonzero(looked_at)
    for first in range(0, len(selected), _BLOCK):
        block = selected[first : first + _BLOCK]
        columns = (events.start, events.depth, is_crossed)
        yield from zip(block.tolist(), *(column[block].tolist() for column in columns), strict=True)


class _Placement:
    """What the events looked at so far leave to the next one.

    `pushed`, `rows`: the events that were pushed down, and how far. `later`: a heap of events to look at that follow
    one of those. `shift`: how far the next event is pushed down with the events that enclose it, if it begins before
    `shift_end`. `held_until`: until when each of the first `held_rows` rows is held by a crossed event.
    """

    def __init__(self, events: CutEvents, pushable: Bool, looked_at: Bool) -> None:
        self.pushed: list[int] = []
        self.rows: list[int] = []
        self.later: list[int] = []
        self.shift, self.shift_end = 0, _NEVER
        self.held_until: list[int] = []
        self.held_rows = 0
        self._events = events
        self._pushable = pushable
        self._looked_at = looked_at
        self._next_sibling = _find_next_siblings(events.depth, events.above)
        self._held = RowAllocator()
        self._enclosing: list[tuple[int, int]] = [(_NEVER, 0)]  # (end, shift) of the pushed events that enclose it

    def leave_enclosing(self, now: int) -> None:
        """Leave the pushed events that have ended."""
        while self._enclosing[-1][0] <= now:
            self._enclosing.pop()
        self.shift_end, self.shift = self._enclosing[-1]

    def push(self, event: int, row: int, begins: int) -> int:
        """Push an event down from a row that is held. Returns its row."""
        free = self._held.find_free_row(row, begins)
        self.pushed.append(event)
        self.rows.append(free - row)
        self.shift, self.shift_end = self.shift + free - row, int(self._events.cut_end[event])
        self._enclosing.append((self.shift_end, self.shift))
        sibling = int(self._next_sibling[event])
        if sibling >= 0 and self._pushable[sibling] and not self._looked_at[sibling]:
            heapq.heappush(self.later, sibling)
        return free

    def hold(self, row: int, until: int) -> None:
        """Hold the row of a crossed event."""
        self._held.hold_row(row, until)
        missing = row + 1 - self.held_rows
        if missing > 0:
            self.held_until += [-_NEVER] * missing
            self.held_rows = row + 1
        self.held_until[row] = until

    def place_siblings(self, before: int) -> None:
        """Place the events that follow a pushed one, up to an event."""
        while self.later and self.later[0] < before:
            event = heapq.heappop(self.later)
            begins = int(self._events.start[event])
            self.leave_enclosing(begins)
            row = int(self._events.depth[event]) + self.shift
            if row < self.held_rows and self.held_until[row] > begins:
                self.push(event, row, begins)


def _find_next_siblings(depth: I32, above: I32) -> I32:
    """Find the next event with the same one above it, int32[n], -1 for none."""
    narrow = depth.astype(np.uint16) if int(depth.max(initial=0)) < _SMALL_DEPTH else depth  # uint16 sorts by radix
    order = np.argsort(narrow, kind="stable").astype(np.int32)
    parent = np.where(depth == 0, np.int32(-1), above)
    first, second = order[:-1], order[1:]
    is_next = (depth[first] == depth[second]) & (parent[first] == parent[second])
    sibling = np.full(len(depth), -1, np.int32)
    sibling[first[is_next]] = second[is_next]
    return sibling
