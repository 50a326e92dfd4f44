"""Build the JSON documents of `memory --json`."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.memory.categories import RULES, Category
from torchprof_tui.analysis.memory.device_memory import UNKNOWN_BYTES, DeviceMemory
from torchprof_tui.analysis.memory.findings.allocator_findings import find_snapshot_findings
from torchprof_tui.analysis.memory.findings.list_findings import list_memory_findings
from torchprof_tui.analysis.memory.findings.memory_finding import MemoryFinding
from torchprof_tui.analysis.memory.memory_history import (
    DeviceHistory,
    GroupBy,
    MemoryHistory,
    MemoryState,
    explain_missing_addresses,
)
from torchprof_tui.analysis.memory.passes import Phase
from torchprof_tui.analysis.memory.snapshots.device_snapshot import (
    DeviceSnapshot,
    SnapshotGroupBy,
    SnapshotState,
)
from torchprof_tui.commands.common.partial_input import build_partial
from torchprof_tui.commands.memory.records import (
    AllocationRecord,
    DevicePeakRecord,
    MemoryFindingRecord,
    MemoryGroupRecord,
    MemoryTraceDocument,
    OlderPartRecord,
    OutOfMemoryRecord,
    PeakRecord,
    SegmentRecord,
    SnapshotDocument,
    SnapshotGroupRecord,
    SnapshotStateRecord,
    SnapshotTotalsRecord,
    StateRecord,
)
from torchprof_tui.trace.core.arrays import I64


def build_trace_document(
    history: MemoryHistory,
    device: DeviceHistory,
    state: MemoryState,
    by: GroupBy,
    limit: int | None,
    rank: int | None,
) -> MemoryTraceDocument:
    """Build the document of one device at one time. Raises OSError, LookupError by shape."""
    shown = state.alive[:limit]
    groups = device.group_state(state, by)
    categories = {each.label: 0 for each in Category}
    for group in device.group_state(state, GroupBy.CATEGORY):
        if group.label in categories:
            categories[group.label] += group.bytes
    return MemoryTraceDocument(
        device=device.memory.label,
        devices=[DevicePeakRecord(device=each.memory.label, peak=_build_peak(each.memory)) for each in history.devices],
        peak=_build_peak(device.memory),
        at=StateRecord(
            time_ns=state.time, alive_bytes=state.allocated, reserved_bytes=_none_if_unknown(state.reserved)
        ),
        by=by.value,
        groups=[
            MemoryGroupRecord(
                label=group.label,
                bytes=group.bytes,
                share=group.bytes / state.allocated if state.allocated else None,
                allocations=len(group.lifetimes),
                since_ns=group.since,
                until_ns=group.until,
            )
            for group in groups
        ],
        alive=_build_allocations(device, shown),
        rest_bytes=int(device.lifetimes.bytes[state.alive[len(shown) :]].sum()),
        categories=categories,
        rules={category.label: rule for category, rule in RULES.items()},
        findings=_build_findings(list_memory_findings(device)),
        before_window_bytes=state.older.bytes,
        before_window=[
            OlderPartRecord(category=part.category.label, bytes=part.bytes, rule=part.rule)  # type: ignore[arg-type]
            for part in state.older.parts
        ],
        unaccounted_bytes=state.unaccounted,
        cannot_tell=explain_missing_addresses(device.memory),
        rank=rank,
        partial=build_partial(history.trace),
    )


def _build_findings(findings: list[MemoryFinding]) -> list[MemoryFindingRecord]:
    return [
        MemoryFindingRecord(
            id=each.id,
            seen=each.seen,
            saved_bytes=each.saved,
            time_ns=each.time,
            action=each.action,
            code=each.code,
        )
        for each in findings
    ]


def _build_peak(memory: DeviceMemory) -> PeakRecord:
    return PeakRecord(
        time_ns=int(memory.time[memory.peak]),
        allocated_bytes=int(memory.allocated[memory.peak]),
        reserved_bytes=_none_if_unknown(int(memory.reserved[memory.peak])),
    )


def _none_if_unknown(size: int) -> int | None:
    return None if size == UNKNOWN_BYTES else size


def _build_allocations(device: DeviceHistory, lifetimes: I64) -> list[AllocationRecord]:
    texts = {}
    for by in (GroupBy.OP, GroupBy.MODULE, GroupBy.LINE):
        index, labels = device.label_lifetimes(lifetimes, by)
        texts[by] = [labels[number] or None for number in index.tolist()]
    return [
        AllocationRecord(
            bytes=int(device.lifetimes.bytes[lifetime]),
            op=texts[GroupBy.OP][row],
            module=texts[GroupBy.MODULE][row],
            line=texts[GroupBy.LINE][row],
            phase=Phase(int(device.phase[lifetime])).label,  # type: ignore[arg-type]
            category=Category(int(device.category[lifetime])).label,  # type: ignore[arg-type]
            since_ns=device.since(lifetime),
            until_ns=device.until(lifetime),
        )
        for row, lifetime in enumerate(lifetimes.tolist())
    ]


def build_snapshot_document(
    devices: list[DeviceSnapshot],
    device: DeviceSnapshot,
    state: SnapshotState | None,
    by: SnapshotGroupBy,
    limit: int | None,
) -> SnapshotDocument:
    """Build the document of one device of a snapshot; `state` None: when it was made."""
    totals = device.totals
    groups = device.group_blocks(by) if state is None else device.group_alive(state, by)
    history = device.history
    peak = None if history is None else device.find_state(device.find_peak())
    return SnapshotDocument(
        device=device.label,
        devices=[each.label for each in devices],
        totals=SnapshotTotalsRecord(
            reserved_bytes=totals.reserved,
            allocated_bytes=totals.allocated,
            requested_bytes=totals.requested,
            pending_bytes=totals.pending,
            free_bytes=totals.free,
            free_blocks=totals.free_blocks,
            largest_free_bytes=totals.largest_free,
            unused_segments_bytes=totals.unused,
            fragmentation_share=totals.fragmentation,
            segments=totals.segments,
        ),
        peak=None if peak is None else _build_snapshot_state(peak),
        at=None if state is None else _build_snapshot_state(state),
        by=by.value,
        groups=[
            SnapshotGroupRecord(
                label=group.label, bytes=group.bytes, allocations=group.count, largest_bytes=group.largest
            )
            for group in groups[:limit]
        ],
        rest_bytes=sum(group.bytes for group in groups[len(groups[:limit]) :]),
        older_bytes=0 if state is None else state.older,
        segments=_build_segments(device, limit),
        out_of_memory=[
            OutOfMemoryRecord(
                time_ns=failure.time,
                asked_bytes=failure.size,
                device_free_bytes=failure.device_free if failure.device_free >= 0 else None,
                requested_bytes=failure.requested,
                reserved_bytes=failure.reserved,
                stack=failure.stack.splitlines(),
            )
            for failure in device.list_failures()
        ],
        findings=_build_findings(find_snapshot_findings(device)),
        history_entries=0 if history is None else len(history),
    )


def _build_snapshot_state(state: SnapshotState) -> SnapshotStateRecord:
    return SnapshotStateRecord(time_ns=state.time, requested_bytes=state.requested, reserved_bytes=state.reserved)


def _build_segments(device: DeviceSnapshot, limit: int | None) -> list[SegmentRecord]:
    segments = device.snapshot.segments
    return [
        SegmentRecord(
            address=int(segments.address[row]),
            total_bytes=int(segments.size[row]),
            allocated_bytes=int(device.segment_allocated[row]),
            largest_free_bytes=int(device.segment_largest_free[row]),
            blocks=int(np.diff(segments.first)[row]),
            kind=segments.kind[row],
            stream=int(segments.stream[row]),
            expandable=bool(segments.is_expandable[row]),
        )
        for row in device.segments[:limit].tolist()
    ]
