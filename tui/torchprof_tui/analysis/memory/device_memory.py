"""The memory of each device over time: the curve as recorded, and the lifetimes of its allocations.

Allocations and frees are paired into lifetimes by address. The profiler records a free where it happens, which is
rarely the operator that allocated: an activation is allocated in the forward pass and freed in the backward pass. Only
the address tells whose memory it was.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_ancestor_ending_after
from torchprof_tui.trace.core.arrays import I32, I64, NONE, Bool, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import MemoryEvents, Trace

NOT_RECORDED = -1  # for the record of an allocation or a free that is not in the trace


@record
class Lifetimes:
    """k lifetimes, in the order of their allocation; those older than the recording come first.

    `allocated_by`, `freed_by` int64[k]: records (rows of `Trace.memory`), NOT_RECORDED for memory that was allocated
    before the recording (or whose allocation is lost), and for memory that is never freed in it. `begin`, `end`
    int64[k]: the lifetime is alive after each record r with begin <= r < end. `bytes` int64[k].
    """

    allocated_by: I64
    freed_by: I64
    begin: I64
    end: I64
    bytes: I64

    def __len__(self) -> int:
        return len(self.bytes)

    @property
    def is_older(self) -> Bool:
        """bool[k]: allocated before the recording, and freed in it."""
        return np.asarray(self.allocated_by == NONE)

    @property
    def is_freed(self) -> Bool:
        """bool[k]: False for memory that is never freed in the trace."""
        return np.asarray(self.freed_by != NONE)

    def find_alive(self, record: int) -> I64:
        """Find the lifetimes that are alive after a record, the largest first: int64[a]. -1: before the first one."""
        alive = np.flatnonzero((self.begin <= record) & (self.end > record))
        return alive[np.argsort(-self.bytes[alive], kind="stable")]

    def sum_alive(self, records: I64) -> I64:
        """Sum the bytes that are alive after each of these records: int64[m]. `records` int64[m]: ascending rows."""
        begin = np.where(self.begin < 0, 0, np.searchsorted(records, self.begin))  # 0 for what is older than all
        change = np.zeros(len(records) + 1, np.int64)
        np.add.at(change, begin, self.bytes)
        np.subtract.at(change, np.searchsorted(records, self.end), self.bytes)
        return np.cumsum(change)[:-1]

    def select(self, rows: I64) -> Lifetimes:
        """Select some of them: rows int64[s]."""
        columns = (self.allocated_by, self.freed_by, self.begin, self.end, self.bytes)
        return Lifetimes(*(column[rows] for column in columns))


@record
class MemoryLifetimes:
    """What the lifetimes say about each of k records.

    `is_held` bool[k]: allocations that are not freed before the end of the trace. `has_address` bool[k]: the records
    of this device carry addresses; without them `is_held` is False and means nothing. `is_foreign` bool[k]: frees of
    memory that was allocated before the recording.
    """

    is_held: Bool
    has_address: Bool
    is_foreign: Bool


def pair_records(address: I64, sizes: I64, numbers: I64, end: int) -> Lifetimes:
    """Pair the records of one device, in the order of time.

    `address`, `sizes` int64[m]: sizes are negative for frees. `numbers` int64[m]: the rows of the records, ascending.
    `end`: a row after the last record. A free ends the latest allocation of its address. An address that is allocated
    again must have been free: its earlier allocation has ended there, although its free is not recorded.
    """
    order = np.argsort(address, kind="stable")
    same = np.zeros(len(order) + 1, np.bool_)  # whether a record has the address of the one before it
    same[1:-1] = address[order][1:] == address[order][:-1]
    is_allocation = sizes[order] > 0
    number = numbers[order]
    has_next, has_previous = same[1:], same[:-1]
    next_number = np.full(len(order), end, np.int64)
    next_number[:-1][has_next[:-1]] = number[1:][has_next[:-1]]
    next_is_free = np.zeros(len(order), np.bool_)
    next_is_free[:-1] = has_next[:-1] & ~is_allocation[1:]
    after_allocation = np.zeros(len(order), np.bool_)
    after_allocation[1:] = has_previous[1:] & is_allocation[:-1]

    born = np.flatnonzero(is_allocation)
    lost = np.flatnonzero((sizes[order] < 0) & ~after_allocation)  # frees without an allocation
    previous = np.where(has_previous[lost], number[lost - 1], np.int64(NONE))
    allocated_by = np.concatenate([np.full(len(lost), NOT_RECORDED, np.int64), number[born]])
    freed_by = np.concatenate([number[lost], np.where(next_is_free[born], next_number[born], NOT_RECORDED)])
    begin = np.concatenate([previous, number[born]])
    finish = np.concatenate([number[lost], next_number[born]])
    size = np.concatenate([-sizes[order][lost], sizes[order][born]])
    by_begin = np.lexsort((freed_by, begin))
    return Lifetimes(allocated_by[by_begin], freed_by[by_begin], begin[by_begin], finish[by_begin], size[by_begin])


def match_frees(trace: Trace, memory: MemoryEvents) -> MemoryLifetimes:
    """Find which records are never freed, or free what is older, for the records of all devices together."""
    count = len(memory.time)
    held, foreign, has_address = (np.zeros(count, np.bool_) for _ in range(3))
    for records in split_by_device(trace, memory):
        known = select_paired(memory, records)
        has_address[records] = len(known) > 0
        lifetimes = pair_records(memory.address[known], memory.bytes[known], known, count)
        held[lifetimes.allocated_by[lifetimes.end == count]] = True
        foreign[lifetimes.freed_by[lifetimes.is_older]] = True
    return MemoryLifetimes(held, has_address, foreign)


def select_paired(memory: MemoryEvents, records: I64) -> I64:
    """Select the records (rows) that can be paired: those with an address that change anything. int64[p]."""
    kept: I64 = records[(memory.address[records] != 0) & (memory.bytes[records] != 0)]
    return kept


def split_by_device(trace: Trace, memory: MemoryEvents) -> list[I64]:
    """Split the records by process and device, each in the order of time: one int64[m] for each address space."""
    count = len(memory.time)
    numbers: dict[tuple[int | None, str], int] = {}
    for lane in trace.lanes:
        if lane.role is Role.THREAD:
            numbers.setdefault((lane.rank, lane.pid), len(numbers))
    # A record of a thread without events, of lane -1, belongs to the only process.
    processes = [numbers.get((lane.rank, lane.pid), NONE) for lane in trace.lanes]
    process = np.array([*processes, 0 if len(numbers) == 1 else NONE], np.int64)[memory.lane]
    space = np.zeros(count, np.int64)
    for column in (process, memory.device_type, memory.device_id):
        values = sorted_unique(column)
        # Number the distinct keys in ascending order; few are distinct, so that a search beats an argsort.
        keys = space * len(values) + np.searchsorted(values, column)
        space = np.searchsorted(sorted_unique(keys), keys).astype(np.int64)
    order = np.argsort(space, kind="stable")
    return [part.astype(np.int64) for part in np.split(order, np.cumsum(np.bincount(space))[:-1])] if count else []


def find_enclosing_events(trace: Trace, memory: MemoryEvents) -> I32:
    """Find the innermost event around each record on its own thread: int32[records]; -1 for none."""
    owner = np.full(len(memory.time), NONE, np.int32)
    for lane in sorted_unique(memory.lane[memory.lane != NONE]).tolist():
        first, last = trace.lanes[lane].first, trace.lanes[lane].last
        records = np.flatnonzero(memory.lane == lane)
        index = first + np.searchsorted(trace.start[first:last], memory.time[records], side="right") - 1
        owner[records] = np.where(index >= first, index, NONE)
    has_owner = np.flatnonzero(owner != NONE)
    end = trace.start + trace.duration
    owner[has_owner] = find_ancestor_ending_after(trace.parent, end, owner[has_owner], memory.time[has_owner])
    return owner


def format_device(device_type: int, device_id: int) -> str:
    """Format a device as the tables name it: "CPU", "GPU 0"."""
    return "CPU" if device_type == CPU_DEVICE_TYPE else f"GPU {device_id}" if device_id >= 0 else "GPU"


CPU_DEVICE_TYPE = 0


UNKNOWN_BYTES = -1  # for allocated and reserved bytes that are not recorded


@record(slots=False)
class DeviceMemory:
    """The memory of one device in one process. Times are ns of the trace, sizes bytes.

    `records` int64[m]: its rows of `Trace.memory`, ascending. `time`, `allocated`, `reserved` int64[m]: a step
    function, the state after each record; `reserved` is UNKNOWN_BYTES where it is not recorded. `has_totals`: allocated
    bytes are recorded; else they are summed since the start. `lifetimes`: None where no addresses are recorded.
    `base`: bytes that were allocated before the first record. `held_before`: of these, the bytes that are never freed;
    with the lifetimes they sum to `allocated`.
    """

    label: str
    device_type: int
    device_id: int
    process: str
    records: I64
    time: I64
    allocated: I64
    reserved: I64
    has_totals: bool
    lifetimes: Lifetimes | None
    base: int
    held_before: int

    @property
    def is_cpu(self) -> bool:
        return self.device_type == CPU_DEVICE_TYPE

    @cached_property
    def peak(self) -> int:
        """The position in `records` after which most bytes are allocated, the first of several."""
        return int(np.argmax(self.allocated))

    def find_position(self, time: int) -> int:
        """Find the last position at or before a time, -1 for a time before the first record."""
        return int(np.searchsorted(self.time, time, side="right")) - 1

    def read_curve(self, times: I64) -> tuple[I64, I64]:
        """Read (allocated, reserved) bytes at these times: int64[t] each; before the records `base` and unknown."""
        position = np.searchsorted(self.time, times, side="right") - 1
        inside = position != NONE
        allocated = np.where(inside, self.allocated[position], self.base)
        return allocated, np.where(inside, self.reserved[position], np.int64(UNKNOWN_BYTES))


def build_device_memory(trace: Trace, memory: MemoryEvents) -> list[DeviceMemory]:
    """Build the memory of each process and device: GPUs first, those with the highest peak first."""
    devices = [_build_device(trace, memory, records) for records in split_by_device(trace, memory)]
    labels = Counter(device.label for device in devices)
    devices = [
        replace(device, label=f"{device.label} (process {device.process})") if labels[device.label] > 1 else device
        for device in devices
    ]
    return sorted(devices, key=lambda device: (device.is_cpu, -int(device.allocated[device.peak])))


def _build_device(trace: Trace, memory: MemoryEvents, records: I64) -> DeviceMemory:
    sizes, recorded = memory.bytes[records], memory.allocated[records]
    known = select_paired(memory, records)
    lifetimes = None
    if len(known):
        lifetimes = pair_records(memory.address[known], memory.bytes[known], known, len(memory.time))
    older = 0 if lifetimes is None else int(lifetimes.bytes[lifetimes.begin < 0].sum())
    has_totals = bool((recorded >= 0).any())
    summed = np.cumsum(sizes)
    if has_totals:
        first = int(np.argmax(recorded >= 0))
        base = max(int(recorded[first] - summed[first]), 0)
    else:
        base = max(older, -int(summed.min()))
    lane = int(memory.lane[records[0]])
    reserved = memory.reserved[records]
    if not (reserved > 0).any():  # the CPU has no such pool, and records 0
        reserved = np.full(len(records), UNKNOWN_BYTES, np.int64)
    return DeviceMemory(
        label=format_device(int(memory.device_type[records[0]]), int(memory.device_id[records[0]])),
        device_type=int(memory.device_type[records[0]]),
        device_id=int(memory.device_id[records[0]]),
        process=trace.lanes[lane].pid if lane != NONE else "",
        records=records,
        time=memory.time[records],
        allocated=np.where(recorded >= 0, recorded, base + summed),
        reserved=reserved,
        has_totals=has_totals,
        lifetimes=lifetimes,
        base=base,
        held_before=max(base - older, 0),
    )
