"""Memory by operator: who allocated how much, from the `[memory]` records; and each device's peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_ancestor_ending_after, find_nearest_ancestor
from torchprof_tui.analysis.table.calls import Calls
from torchprof_tui.analysis.table.sheets import NAME_FIELD, Field, Sheet, Unit, group_events
from torchprof_tui.trace.core.arrays import F64, I32, I64, Bool
from torchprof_tui.trace.model.trace import MemoryEvents, Trace

OUTSIDE_CALLS = "(outside of all calls)"
CPU_DEVICE_TYPE = 0

_FIELDS = (
    NAME_FIELD,
    Field("device", "on", Unit.TEXT),
    Field("allocations", "allocations", Unit.COUNT),
    Field("allocated", "allocated", Unit.BYTES),
    Field("frees", "frees", Unit.COUNT),
    Field("freed", "freed", Unit.BYTES),
    Field("net", "net", Unit.BYTES),
    Field("largest", "largest", Unit.BYTES),
)


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """The most that a device held in the trace: bytes, and when (ns); -1 bytes where it was not recorded."""

    device: str
    allocated: int
    allocated_at: int
    reserved: int
    reserved_at: int


def build_memory_sheet(trace: Trace, calls: Calls, event_mask: Bool | None = None) -> Sheet:
    """Allocations and frees by the innermost call that they were made in, apart for each device.

    `only` (bool[n]) restricts to those inside such calls. Members are the calls' events. Empty without records.
    """
    memory = trace.memory
    if memory is None:
        return Sheet(
            "Memory",
            _FIELDS,
            {field.key: _empty_column(field) for field in _FIELDS},
            _no_events(),
            np.zeros(1, np.int64),
        )
    owner = _find_owners(trace, calls, memory)
    kept = (
        np.arange(len(owner)) if event_mask is None else np.flatnonzero((owner >= 0) & event_mask[np.maximum(owner, 0)])
    )
    owner = owner[kept]
    name = np.full(len(trace), -1, np.int32)
    name[calls.event] = calls.name
    code = np.where(owner >= 0, name[np.maximum(owner, 0)], -1).astype(np.int64)
    device = (memory.device_type[kept] << 16) + memory.device_id[kept]
    pairs, row = np.unique(np.stack([code, device]), axis=1, return_inverse=True)
    row = row.ravel()
    size = pairs.shape[1]
    _, _, sums = group_events(row, size, owner)
    members, first, _ = group_events(row[owner >= 0], size, owner[owner >= 0])
    bytes_ = memory.bytes[kept]
    allocated, freed = np.maximum(bytes_, 0), np.maximum(-bytes_, 0)
    largest = np.zeros(size, np.int64)
    np.maximum.at(largest, row, allocated)
    spots = np.zeros(size, np.int64)
    spots[row] = np.arange(len(row))
    places = kept[spots]
    columns: dict[str, Sequence[str] | I64 | F64] = {
        "name": [calls.names[each] if each >= 0 else OUTSIDE_CALLS for each in pairs[0].tolist()],
        "device": [_format_device(memory, place) for place in places.tolist()],
        "allocations": sums((bytes_ > 0).astype(np.int64)),
        "allocated": sums(allocated),
        "frees": sums((bytes_ < 0).astype(np.int64)),
        "freed": sums(freed),
        "net": sums(bytes_),
        "largest": largest,
    }
    return Sheet("Memory", _FIELDS, columns, members, first)


def find_memory_peaks(trace: Trace) -> list[MemoryPeak]:
    """One for each device that memory was recorded of, the CPU first."""
    memory = trace.memory
    if memory is None:
        return []
    found = []
    devices = sorted(set(zip(memory.device_type.tolist(), memory.device_id.tolist(), strict=True)))
    for kind, number in devices:
        mine = np.flatnonzero((memory.device_type == kind) & (memory.device_id == number))
        most, reserved = mine[np.argmax(memory.allocated[mine])], mine[np.argmax(memory.reserved[mine])]
        found.append(
            MemoryPeak(
                _format_device(memory, int(mine[0])),
                int(memory.allocated[most]),
                int(memory.time[most]),
                int(memory.reserved[reserved]),
                int(memory.time[reserved]),
            )
        )
    return found


def _find_owners(trace: Trace, calls: Calls, memory: MemoryEvents) -> I32:
    """int32[records]: the event of the innermost call on the record's own thread, -1 for none."""
    is_call = np.zeros(len(trace), np.bool_)
    is_call[calls.event] = True
    owner = np.full(len(memory.time), -1, np.int32)
    for lane in np.unique(memory.lane[memory.lane >= 0]).tolist():
        first, last = trace.lanes[lane].first, trace.lanes[lane].last
        mine = np.flatnonzero(memory.lane == lane)
        place = first + np.searchsorted(trace.start[first:last], memory.time[mine], side="right") - 1
        owner[mine] = np.where(place >= first, place, -1)
    inside = np.flatnonzero(owner >= 0)
    end = trace.start + trace.duration
    owner[inside] = find_ancestor_ending_after(trace.parent, end, owner[inside], memory.time[inside])
    others = np.flatnonzero((owner >= 0) & ~is_call[owner])
    owner[others] = find_nearest_ancestor(trace.parent, owner[others], is_call)
    return owner


def _format_device(memory: MemoryEvents, place: int) -> str:
    kind, number = int(memory.device_type[place]), int(memory.device_id[place])
    return "CPU" if kind == CPU_DEVICE_TYPE else f"GPU {number}" if number >= 0 else "GPU"


def _empty_column(field: Field) -> Sequence[str] | I64:
    return [] if field.unit is Unit.TEXT else np.zeros(0, np.int64)


def _no_events() -> I32:
    return np.zeros(0, np.int32)
