"""Sum the `[memory]` records by operator, and find each device's peak.

The profiler books a free on the operator during which it happens, and so does the memory column of `key_averages()`:
"net inside" is that sum. It is negative for an operator that frees what others allocated. "held at end" answers the
question behind it: how much of what this operator allocated was never freed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor
from torchprof_tui.analysis.memory.device_memory import (
    MemoryLifetimes,
    find_enclosing_events,
    format_device,
    match_frees,
)
from torchprof_tui.analysis.table.counted_calls import Calls
from torchprof_tui.analysis.table.sheets import NAME_FIELD, Field, MemoryTotals, Sheet, Unit, group_events
from torchprof_tui.trace.core.arrays import F64, I64, Bool
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import MemoryEvents, Trace

OUTSIDE_CALLS = "(outside of all calls)"

_FIELDS = (
    NAME_FIELD,
    Field("device", "on", Unit.TEXT),
    Field("allocations", "allocations", Unit.COUNT),
    Field("allocated", "allocated", Unit.BYTES),
    Field("held", "held at end", Unit.BYTES),
    Field("frees", "frees inside", Unit.COUNT),
    Field("freed", "freed inside", Unit.BYTES),
    Field("net", "net inside", Unit.BYTES),
    Field("largest", "largest", Unit.BYTES),
)


@record
class MemoryPeak:
    """The peak of a device in the trace: bytes, and when (ns); -1 bytes where not recorded."""

    device: str
    allocated: int
    allocated_at: int
    reserved: int
    reserved_at: int


def build_memory_sheet(trace: Trace, calls: Calls, event_mask: Bool | None = None) -> Sheet:
    """Sum allocations and frees by the innermost enclosing call, separately for each device.

    `held`: bytes of the row's allocations that no operator frees before the trace ends, NaN without recorded addresses.
    The other columns equal sums of torch's: `net` over the rows of an operator is its own memory usage.
    `event_mask` (bool[n]) restricts to records inside such calls. Members are the calls' events. Empty without records.
    """
    memory = trace.memory
    if memory is None:
        return Sheet(
            "Memory",
            _FIELDS,
            {field.key: [] if field.unit is Unit.TEXT else np.zeros(0, np.int64) for field in _FIELDS},
            np.zeros(0, np.int32),
            np.zeros(1, np.int64),
            sums=MemoryTotals(0, 0, 0, 0, None, 0),
        )
    name_of_event = np.full(len(trace) + 1, -1, np.int32)  # the last is for owner -1: a trace may have no event at all
    name_of_event[calls.event] = calls.name
    owner = find_enclosing_events(trace, memory)
    no_call = np.flatnonzero((owner >= 0) & (name_of_event[owner] < 0))
    owner[no_call] = find_nearest_ancestor(trace.parent, owner[no_call], name_of_event[:-1] >= 0)
    lifetimes = match_frees(trace, memory)
    kept = np.arange(len(owner))
    if event_mask is not None:
        kept = np.flatnonzero(owner >= 0)
        kept = kept[event_mask[owner[kept]]]
    owner = owner[kept]
    name_id = name_of_event[owner].astype(np.int64)
    device = (memory.device_type[kept] << 16) + memory.device_id[kept]
    keys, row = np.unique(np.stack([name_id, device]), axis=1, return_inverse=True)
    row = row.ravel()
    row_count = keys.shape[1]
    _, _, sums = group_events(row, row_count, owner)
    members, first, _ = group_events(row[owner >= 0], row_count, owner[owner >= 0])
    sizes = memory.bytes[kept]
    allocated, freed = np.maximum(sizes, 0), np.maximum(-sizes, 0)
    largest = np.zeros(row_count, np.int64)
    np.maximum.at(largest, row, allocated)
    record_of_row = np.zeros(row_count, np.int64)
    record_of_row[row] = np.arange(len(row))
    example_records = kept[record_of_row]
    held = sums(np.where(lifetimes.is_held[kept], sizes, 0)).astype(np.float64)
    held[~lifetimes.has_address[example_records]] = np.nan
    columns: dict[str, Sequence[str] | I64 | F64] = {
        "name": [calls.names[name] if name >= 0 else OUTSIDE_CALLS for name in keys[0].tolist()],
        "device": [_format_device(memory, record) for record in example_records.tolist()],
        "allocations": sums((sizes > 0).astype(np.int64)),
        "allocated": sums(allocated),
        "held": held,
        "frees": sums((sizes < 0).astype(np.int64)),
        "freed": sums(freed),
        "net": sums(sizes),
        "largest": largest,
    }
    return Sheet("Memory", _FIELDS, columns, members, first, *_sum_totals(memory, lifetimes, sizes, held))


def _sum_totals(
    memory: MemoryEvents, lifetimes: MemoryLifetimes, sizes: I64, held: F64
) -> tuple[tuple[str, ...], MemoryTotals]:
    """Sum the counted records, and format what "held at end" leaves out.

    `sizes` int64[k]: their bytes, negative for frees; `held`: bytes by row, NaN unknown.
    """
    without_address = np.flatnonzero(~lifetimes.has_address).tolist()
    totals = MemoryTotals(
        allocations=int((sizes > 0).sum()),
        allocated=int(np.maximum(sizes, 0).sum()),
        frees=int((sizes < 0).sum()),
        freed=int(np.maximum(-sizes, 0).sum()),
        held=None if np.isnan(held).all() else int(np.nansum(held)),
        freed_foreign=-int(memory.bytes[lifetimes.is_foreign].sum()),
        unknown_devices=tuple(sorted({_format_device(memory, record) for record in without_address})),
    )
    lines = []
    if totals.unknown_devices:
        lines.append(f"held at end is unknown for {', '.join(totals.unknown_devices)}: this trace records no addresses")
    if totals.freed_foreign:
        lines.append(f"{totals.freed_foreign / 2**20:,.1f} MiB freed here were allocated before the recording")
    return tuple(lines), totals


def find_memory_peaks(trace: Trace) -> list[MemoryPeak]:
    """Find the peak of each device with memory records, the CPU first."""
    memory = trace.memory
    if memory is None:
        return []
    peaks = []
    devices = sorted(set(zip(memory.device_type.tolist(), memory.device_id.tolist(), strict=True)))
    for device_type, device_id in devices:
        records = np.flatnonzero((memory.device_type == device_type) & (memory.device_id == device_id))
        numbers = []
        for column in (memory.allocated, memory.reserved):
            peak = records[np.argmax(column[records])]
            numbers += [int(column[peak]), int(memory.time[peak])]
        peaks.append(MemoryPeak(format_device(device_type, device_id), *numbers))
    return peaks


def _format_device(memory: MemoryEvents, record: int) -> str:
    return format_device(int(memory.device_type[record]), int(memory.device_id[record]))
