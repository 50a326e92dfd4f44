"""Event tables that the patterns are decided from: columns of selected events, one row per event."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import classify_names
from torchprof_tui.analysis.time.gpu_time import UNKNOWN_DEVICE, work_mask
from torchprof_tui.analysis.time.intervals import Intervals, find_range_at, union
from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

_BLOCK_SIZE = 512
"""Events of a block. Larger blocks hold more events outside the range, smaller ones are more blocks to compare."""


class OverlapIndex:
    """The first start and the last end of each block of events, so that whole blocks outside a range are skipped.

    `start`, `end`: int64[n], ns, in any order; a range costs little where events of like times are near each other, as
    they are by lane and start. An event without duration counts as 1 ns.
    """

    def __init__(self, start: I64, end: I64) -> None:
        self._start, self._end = start, end
        blocks = np.arange(0, len(start), _BLOCK_SIZE)
        self._first, self._last = start, end
        if len(start):
            self._first = np.minimum.reduceat(start, blocks)
            self._last = np.maximum(np.maximum.reduceat(end, blocks), np.maximum.reduceat(start, blocks) + 1)

    def find(self, t0: int, t1: int) -> I64:
        """Find the events that overlap [t0, t1): their indexes, ascending, int64[k]."""
        blocks = np.flatnonzero((self._first < t1) & (self._last > t0))
        if not len(blocks):
            return blocks
        if 2 * len(blocks) > len(self._first):  # most blocks: fewer steps than block by block
            first, last = int(blocks[0]) * _BLOCK_SIZE, (int(blocks[-1]) + 1) * _BLOCK_SIZE
            start, end = self._start[first:last], self._end[first:last]
            found: I64 = np.flatnonzero((start < t1) & (np.maximum(end, start + 1) > t0))
            found += first
            return found
        indexes = (blocks[:, None] * _BLOCK_SIZE + np.arange(_BLOCK_SIZE)).ravel()
        if blocks[-1] == len(self._first) - 1:
            indexes = indexes[: len(indexes) - len(self._first) * _BLOCK_SIZE + len(self._start)]
        start, end = self._start[indexes], self._end[indexes]
        overlapping: I64 = indexes[(start < t1) & (np.maximum(end, start + 1) > t0)]
        return overlapping


def as_slice(ascending: I64) -> I64 | slice:
    """Return the slice of these ascending indexes where they have no gap, else the indexes: int64[k]."""
    count = len(ascending)
    if count and int(ascending[-1]) - int(ascending[0]) == count - 1:
        return slice(int(ascending[0]), int(ascending[-1]) + 1)
    return ascending


@record(slots=False, eq=False)
class EventTable:
    """k events: `row` ascending (so by lane, then start) unless stated otherwise; `start`, `end` in ns."""

    row: I64
    start: I64
    end: I64
    name: I32

    def __len__(self) -> int:
        return len(self.row)

    def select(self, keep: Bool | I64) -> EventTable:
        return self.take(as_slice(np.flatnonzero(keep)) if keep.dtype == np.bool_ else np.asarray(keep, np.int64))

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
    def intervals(self) -> Intervals:
        """The time that the events cover."""
        return union(self.start, self.end)

    @property
    def duration(self) -> I64:
        return self.end - self.start


@record
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
        return self.take(as_slice(np.flatnonzero(keep)) if keep.dtype == np.bool_ else np.asarray(keep, np.int64))

    def take(self, keep: I64 | slice) -> GpuWorkTable:
        """Take the rows of a slice, or of indexes int64[k]."""
        kind, lane, device = self.kind[keep], self.lane[keep], self.device[keep]
        launch, call, kernel_class = self.launch[keep], self.call[keep], self.kernel_class[keep]
        return GpuWorkTable(self.events.take(keep), kind, lane, device, launch, call, kernel_class)

    def class_mask(self, *classes: KernelClass) -> Bool:
        return _mark_values(self.kernel_class, classes)

    def kind_mask(self, *kinds: Kind) -> Bool:
        return _mark_values(self.kind, kinds)


@record
class StepTable:
    """The steps of the thread with most steps, in time order; `number` is N of ProfilerStep#N."""

    row: I64
    start: I64
    end: I64
    number: I64

    def __len__(self) -> int:
        return len(self.row)

    def select(self, keep: Bool) -> StepTable:
        return StepTable(self.row[keep], self.start[keep], self.end[keep], self.number[keep])

    def index_at(self, times: I64) -> I64:
        """Return the index of the step that contains each time, -1 for none: int64[k]."""
        return find_range_at(self.start, self.end, times)


def _mark_values(column: U8, wanted: Iterable[int]) -> Bool:
    marked = np.zeros(len(column), dtype=np.bool_)
    for value in wanted:
        marked |= column == np.uint8(value)
    return marked


def build_event_table(trace: Trace, events: I64 | I32) -> EventTable:
    """Build the table of these events, in their order."""
    row = np.asarray(events, dtype=np.int64)
    start = np.asarray(trace.start[row])
    return EventTable(row, start, start + trace.duration[row], np.asarray(trace.name[row]))


_FEW_MATCHES = 16
"""Fewer events than this part of a table are found by the order of names, more by a pass over the table."""


class NameIndex:
    """The events of one table by name. `names`: those of the trace, by number."""

    def __init__(self, names: list[str], table: EventTable) -> None:
        self._names, self._table = names, table
        counts = np.bincount(table.name, minlength=1)
        present = np.flatnonzero(counts)
        self._present: list[int] = present.tolist()
        self._bounds: list[int] = np.append(0, np.cumsum(counts[present])).tolist()  # of each name in `_order`

    @cached_property
    def _order(self) -> I64:
        """int64[k]: the indices into the table by name, then in the table's order."""
        is_short = len(self._names) <= np.iinfo(np.uint16).max  # numpy sorts 16 bits by radix, in linear time
        return np.argsort(self._table.name.astype(np.uint16 if is_short else np.int32), kind="stable")

    def _find_names(self, pattern: str) -> list[int]:
        matches = re.compile(pattern).match
        return [index for index, number in enumerate(self._present) if matches(self._names[number])]

    def flag_names(self, pattern: str) -> Bool:
        """Flag the names of the trace that events of the table have, and that match the pattern: bool[names]."""
        is_chosen = np.zeros(len(self._names), dtype=np.bool_)
        is_chosen[[self._present[index] for index in self._find_names(pattern)]] = True
        return is_chosen

    def match(self, pattern: str) -> EventTable:
        """Select the events whose name matches the pattern at its start."""
        table, bounds = self._table, self._bounds
        chosen = self._find_names(pattern)
        if len(chosen) == len(self._present):
            return table
        count = sum(bounds[index + 1] - bounds[index] for index in chosen)
        if count * _FEW_MATCHES > len(table):
            return table.select(self.flag_names(pattern)[table.name])
        if not count:
            return table.select(np.empty(0, dtype=np.int64))
        parts = [self._order[bounds[index] : bounds[index + 1]] for index in chosen]
        return table.select(np.sort(np.concatenate(parts)))


def build_gpu_work_table(trace: Trace) -> GpuWorkTable:
    """Build the table of all GPU work by start, over all streams."""
    row = np.flatnonzero(work_mask(np.asarray(trace.kind)))
    row = row[np.argsort(trace.start[row], kind="stable")]
    events = build_event_table(trace, row)
    lane = np.asarray(trace.lane[row])
    device_of_lane = np.array(
        [UNKNOWN_DEVICE if lane.device is None else lane.device for lane in trace.lanes], dtype=np.int32
    )
    classes = np.zeros(len(trace.names), dtype=np.uint8)
    used_names = sorted_unique(events.name)
    classes[used_names] = classify_names([trace.names[name_id] for name_id in used_names.tolist()])
    device = device_of_lane[lane] if len(trace.lanes) else np.empty(0, dtype=np.int32)
    links = trace.links
    launch = call = np.asarray(links.launch_of[row])
    if len(links.called_work):
        call_of = np.full(len(trace), -1, np.int32)
        call_of[links.called_work] = links.work_call
        call = np.where(call_of[row] >= 0, call_of[row], launch)
    return GpuWorkTable(events, np.asarray(trace.kind[row]), lane, device, launch, call, classes[events.name])


def intervals_by_device(work: GpuWorkTable, devices: Sequence[int]) -> dict[int, Intervals]:
    """Return when any of this work ran: by device, `devices` ascending. Sorts once, however many devices there are."""
    order = np.argsort(work.device, kind="stable")
    sorted_device, start, end = work.device[order], work.events.start[order], work.events.end[order]
    first, last = (np.searchsorted(sorted_device, devices, side=side).tolist() for side in ("left", "right"))
    return {
        device: union(start[first_index:end_index], end[first_index:end_index])
        for device, first_index, end_index in zip(devices, first, last, strict=True)
    }


def launch_shapes(trace: Trace, rows: I64) -> I64:
    """Return grid and block of each event, -1 where not recorded: int64[k, 6]."""
    shapes: I64 = np.full((6, len(rows)), -1, np.int64).T  # each column in one piece of memory
    for number, arg in enumerate(("grid", "block")):
        sparse = trace.args.get(arg)
        if sparse is not None:
            shapes[:, 3 * number : 3 * number + 3] = sparse.values_at(rows)
    return shapes


def factorize_launches(name: I32, shape: I64) -> I64:
    """Return a group number for each pair of name and shape (int64[k, m]): int64[k]."""
    # Hash into 64 bits with odd multipliers: sorting one column takes a tenth of the time of sorting seven.
    mixed = name.astype(np.uint64)
    for column in range(shape.shape[1]):
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
        mixed = mixed + shape[:, column].astype(np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
    group: I64 = np.unique(mixed, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return group


def transfer_sizes(trace: Trace, rows: I64) -> I64:
    """Return the bytes of each copy, -1 where not recorded: int64[k]."""
    return trace.numbers_at("bytes", rows)
