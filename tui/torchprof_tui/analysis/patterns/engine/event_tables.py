"""Event tables that the patterns are decided from: columns of selected events, one row per event."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.patterns.engine.overlap_index import OverlapIndex
from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace


def find_indexes(keep: Bool | I64) -> I64 | slice:
    """Return the indexes that a mask keeps, found once for all columns; indexes are returned as they are: int64[k].

    A slice where a mask keeps neighbours, which needs no copy of the columns.
    """
    if keep.dtype != np.bool_:
        return np.asarray(keep, dtype=np.int64)
    return as_slice(np.flatnonzero(keep))


def as_slice(ascending: I64) -> I64 | slice:
    """Return the slice of these ascending indexes where they have no gap, else the indexes: int64[k]."""
    count = len(ascending)
    if count and int(ascending[-1]) - int(ascending[0]) == count - 1:
        return slice(int(ascending[0]), int(ascending[-1]) + 1)
    return ascending


@dataclass(frozen=True, eq=False)
class EventTable:
    """k events: `row` ascending (so by lane, then start) unless stated otherwise; `start`, `end` in ns."""

    row: I64
    start: I64
    end: I64
    name: I32

    def __len__(self) -> int:
        return len(self.row)

    def select(self, keep: Bool | I64) -> EventTable:
        return self.take(find_indexes(keep))

    def select_overlapping(self, t0: int, t1: int) -> EventTable:
        """Select the events that overlap [t0, t1), ns; an event without duration counts as 1 ns."""
        return self.take(as_slice(self.overlap_index.find(t0, t1)))

    def take(self, keep: I64 | slice) -> EventTable:
        """Take the rows of a slice, or of indexes int64[k]."""
        return EventTable(self.row[keep], self.start[keep], self.end[keep], self.name[keep])

    @cached_property
    def overlap_index(self) -> OverlapIndex:
        """Finds the events that overlap a range; made at the first range and kept with the table."""
        return OverlapIndex(self.start, self.end)

    @cached_property
    def _derived(self) -> dict[Hashable, EventTable]:
        return {}

    def derive_once(self, key: Hashable, derive: Callable[[], EventTable]) -> EventTable:
        """Return a table made from this one, computed at its first use and kept as long as this table."""
        if key not in self._derived:
            self._derived[key] = derive()
        return self._derived[key]

    @property
    def duration(self) -> I64:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class GpuWorkTable:
    """All GPU work by start, over all streams; int32 rows, -1 for none.

    `launch`: the event that launched it, beneath the ops that own it. `call`: the runtime call that handed it to the
    device: `launch`, except on Ascend, where a thread of its own makes the calls of the ops. `kernel_class`:
    `KernelClass`.
    """

    events: EventTable
    kind: U8
    lane: I32
    device: I32
    launch: I32
    call: I32
    kernel_class: U8

    def __len__(self) -> int:
        return len(self.events)

    def select(self, keep: Bool | I64) -> GpuWorkTable:
        return self.take(find_indexes(keep))

    def take(self, keep: I64 | slice) -> GpuWorkTable:
        """Take the rows of a slice, or of indexes int64[k]."""
        return GpuWorkTable(
            self.events.take(keep),
            self.kind[keep],
            self.lane[keep],
            self.device[keep],
            self.launch[keep],
            self.call[keep],
            self.kernel_class[keep],
        )

    def class_mask(self, *classes: KernelClass) -> Bool:
        return _mark_values(self.kernel_class, classes)

    def kind_mask(self, *kinds: Kind) -> Bool:
        return _mark_values(self.kind, kinds)


@dataclass(frozen=True, slots=True)
class StepTable:
    """The steps of the thread with most steps, in time order; `number` is N of ProfilerStep#N."""

    row: I64
    start: I64
    end: I64
    number: I64

    def __len__(self) -> int:
        return len(self.row)

    def index_at(self, times: I64) -> I64:
        """Return the index of the step that contains each time, -1 for none: int64[k]."""
        if not len(self):
            return np.full(len(times), -1, dtype=np.int64)
        index = self.start.searchsorted(times, side="right") - 1
        inside = (index >= 0) & (times < self.end[np.maximum(index, 0)])
        return np.where(inside, index, -1)


def _mark_values(column: U8, wanted: Iterable[int]) -> Bool:
    """Return which values are among a few: bool[k]."""
    marked = np.zeros(len(column), dtype=np.bool_)
    for value in wanted:
        marked |= column == np.uint8(value)
    return marked


def build_event_table(trace: Trace, events: I64 | I32) -> EventTable:
    """Build the table of these events, in their order."""
    row = np.asarray(events, dtype=np.int64)
    start = np.asarray(trace.start[row])
    return EventTable(row, start, start + trace.duration[row], np.asarray(trace.name[row]))
