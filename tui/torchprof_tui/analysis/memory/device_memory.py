"""The memory of each device over time: the curve as recorded, and the lifetimes of its allocations."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_ancestor_ending_after
from torchprof_tui.analysis.memory.lifetimes import Lifetimes, pair_records, select_paired, split_by_device
from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.model.trace import MemoryEvents, Trace


def find_enclosing_events(trace: Trace, memory: MemoryEvents) -> I32:
    """Find the innermost event around each record on its own thread: int32[records]; -1 for none."""
    owner = np.full(len(memory.time), -1, np.int32)
    for lane in np.unique(memory.lane[memory.lane >= 0]).tolist():
        first, last = trace.lanes[lane].first, trace.lanes[lane].last
        records = np.flatnonzero(memory.lane == lane)
        index = first + np.searchsorted(trace.start[first:last], memory.time[records], side="right") - 1
        owner[records] = np.where(index >= first, index, -1)
    has_owner = np.flatnonzero(owner >= 0)
    end = trace.start + trace.duration
    owner[has_owner] = find_ancestor_ending_after(trace.parent, end, owner[has_owner], memory.time[has_owner])
    return owner


def format_device(device_type: int, device_id: int) -> str:
    """Format a device as the tables name it: "CPU", "GPU 0"."""
    return "CPU" if device_type == CPU_DEVICE_TYPE else f"GPU {device_id}" if device_id >= 0 else "GPU"


CPU_DEVICE_TYPE = 0


UNKNOWN_BYTES = -1
"""For allocated and reserved bytes that are not recorded."""


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of one device in one process. Times are ns of the trace, sizes bytes.

    `records` int64[m]: its rows of `Trace.memory`, ascending. `time`, `allocated`, `reserved` int64[m]: a step
    function, the state after each record; `reserved` is UNKNOWN_BYTES where it is not recorded. `has_totals`: allocated
    bytes are recorded; else they are summed since the start. `lifetimes`: None where no addresses are recorded.
    `base`: bytes that were allocated before the first record. `held_before`: of these, the bytes that are never freed.
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
        inside, index = position >= 0, np.maximum(position, 0)
        return np.where(inside, self.allocated[index], self.base), np.where(
            inside, self.reserved[index], np.int64(UNKNOWN_BYTES)
        )

    def sum_alive(self) -> I64:
        """Sum what the lifetimes and `held_before` account for after each record: int64[m]. Equals `allocated`.

        A difference means that records are missing or out of order. Zeros where there are no addresses.
        """
        if self.lifetimes is None:
            return np.zeros(len(self.records), np.int64)
        begin = np.searchsorted(self.records, self.lifetimes.begin)  # 0 also for what is older than all records
        begin[self.lifetimes.begin < 0] = 0
        end = np.searchsorted(self.records, self.lifetimes.end)
        change = np.zeros(len(self.records) + 1, np.int64)
        np.add.at(change, begin, self.lifetimes.bytes)
        np.subtract.at(change, end, self.lifetimes.bytes)
        return self.held_before + np.cumsum(change)[:-1]


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
        base = max(older, -min(int(summed.min()), 0))
    lane = int(memory.lane[records[0]])
    return DeviceMemory(
        label=format_device(int(memory.device_type[records[0]]), int(memory.device_id[records[0]])),
        device_type=int(memory.device_type[records[0]]),
        device_id=int(memory.device_id[records[0]]),
        process=trace.lanes[lane].pid if lane >= 0 else "",
        records=records,
        time=memory.time[records],
        allocated=np.where(recorded >= 0, recorded, base + summed),
        reserved=_read_reserved(memory, records),
        has_totals=has_totals,
        lifetimes=lifetimes,
        base=base,
        held_before=max(base - older, 0),
    )


def _read_reserved(memory: MemoryEvents, records: I64) -> I64:
    """Read the reserved bytes; all unknown where none are above 0: the CPU has no such pool, and records 0."""
    reserved = memory.reserved[records]
    return reserved if (reserved > 0).any() else np.full(len(records), UNKNOWN_BYTES, np.int64)
