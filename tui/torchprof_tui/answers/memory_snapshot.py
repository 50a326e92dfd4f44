"""The answer about a snapshot of the allocator: what is alive, in which segments, what failed."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from torchprof_tui.analysis.memory.findings.allocator_findings import find_snapshot_findings
from torchprof_tui.analysis.memory.snapshots.device_snapshot import (
    DeviceSnapshot,
    SnapshotGroupBy,
    SnapshotState,
)
from torchprof_tui.answers.memory import SCHEMA, MemoryFinding, build_findings
from torchprof_tui.answers.record import Answer, Record, about


class Segment(Record, frozen=True, kw_only=True):
    """One segment: memory that the allocator got from the driver."""

    address: Annotated[int, about("where it starts")]
    total_bytes: Annotated[int, about("its size")]
    allocated_bytes: Annotated[int, about("in blocks that are in use")]
    largest_free_bytes: Annotated[int, about("its largest free block")]
    blocks: Annotated[int, about("blocks in it")]
    kind: Annotated[str, about("small or large, as recorded")]
    stream: Annotated[int, about("stream that it belongs to")]
    expandable: Annotated[bool, about("an expandable segment")]


class SnapshotTotals(Record, frozen=True, kw_only=True):
    """The device when the snapshot was made. reserved = allocated + pending + free."""

    reserved_bytes: Annotated[int, about("in segments")]
    allocated_bytes: Annotated[int, about("in blocks that the program uses")]
    requested_bytes: Annotated[int, about("of these, what the program asked for: the rest is rounding")]
    pending_bytes: Annotated[int, about("freed by the program, still used by another stream")]
    free_bytes: Annotated[int, about("in free blocks")]
    free_blocks: Annotated[int, about("number of free blocks")]
    largest_free_bytes: Annotated[int, about("the largest free block")]
    unused_segments_bytes: Annotated[int, about("in segments without a block in use: empty_cache() returns them")]
    fragmentation_share: Annotated[float | None, about("of the free bytes, outside of the largest block; null if none")]
    segments: Annotated[int, about("number of segments")]


class SnapshotTime(Record, frozen=True, kw_only=True):
    """The allocator at one time. Bytes are as the program requested them."""

    time_ns: Annotated[int, about("from the first entry of the history")]
    requested_bytes: Annotated[int, about("requested by what was alive")]
    reserved_bytes: Annotated[int, about("in segments")]


class SnapshotGroup(Record, frozen=True, kw_only=True):
    """Allocations of one line or stack."""

    label: Annotated[str, about("file:line function; of a stack one frame a line, innermost first")]
    bytes: Annotated[int, about("as requested")]
    allocations: Annotated[int, about("how many")]
    largest_bytes: Annotated[int, about("the largest of them")]


class OutOfMemory(Record, frozen=True, kw_only=True):
    """An allocation that failed."""

    time_ns: Annotated[int, about("from the first entry of the history")]
    asked_bytes: Annotated[int, about("what the program asked for")]
    device_free_bytes: Annotated[int | None, about("what the device had left; null if not recorded")]
    requested_bytes: Annotated[int, about("requested by what was alive")]
    reserved_bytes: Annotated[int, about("in segments")]
    stack: Annotated[list[str], about("frames, innermost first")]


class Snapshot(Answer, frozen=True, kw_only=True, tag=SCHEMA):
    """One device of a snapshot of the allocator. `groups` and `older_bytes` sum to `at.requested_bytes`."""

    source: Annotated[Literal["snapshot"], about("what it was read from")]
    device: Annotated[str, about("device that is answered for")]
    devices: Annotated[list[str], about("all devices of the snapshot, most reserved bytes first")]
    totals: Annotated[SnapshotTotals, about("the device when the snapshot was made")]
    peak: Annotated[SnapshotTime | None, about("when most was requested; null without a history")]
    at: Annotated[SnapshotTime | None, about("time that is answered for; null: when the snapshot was made")]
    by: Annotated[Literal["line", "stack"], about("what groups are by")]
    groups: Annotated[list[SnapshotGroup], about("groups of what is alive, largest first; at most --top")]
    rest_bytes: Annotated[int, about("of the groups beyond --top; 0 without it")]
    older_bytes: Annotated[int, about("alive, but allocated before the history begins")]
    segments: Annotated[list[Segment], about("segments, largest first; at most --top")]
    out_of_memory: Annotated[list[OutOfMemory], about("allocations that failed, by time")]
    findings: Annotated[list[MemoryFinding], about("what could be changed about it; [] for nothing")]
    history_entries: Annotated[int, about("entries of the allocator's history; 0 if none was recorded")]


def build_snapshot(
    devices: list[DeviceSnapshot],
    device: DeviceSnapshot,
    state: SnapshotState | None,
    by: SnapshotGroupBy,
    limit: int | None,
) -> Snapshot:
    """Build the document of one device of a snapshot; `state` None: when it was made."""
    totals = device.totals
    groups = device.group_blocks(by) if state is None else device.group_alive(state, by)
    history = device.history
    peak = None if history is None else device.find_state(device.find_peak())
    return Snapshot(
        source="snapshot",
        device=device.label,
        devices=[each.label for each in devices],
        totals=SnapshotTotals(
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
            SnapshotGroup(label=group.label, bytes=group.bytes, allocations=group.count, largest_bytes=group.largest)
            for group in groups[:limit]
        ],
        rest_bytes=sum(group.bytes for group in groups[len(groups[:limit]) :]),
        older_bytes=0 if state is None else state.older,
        segments=_build_segments(device, limit),
        out_of_memory=[
            OutOfMemory(
                time_ns=failure.time,
                asked_bytes=failure.size,
                device_free_bytes=failure.device_free if failure.device_free >= 0 else None,
                requested_bytes=failure.requested,
                reserved_bytes=failure.reserved,
                stack=failure.stack.splitlines(),
            )
            for failure in device.list_failures()
        ],
        findings=build_findings(find_snapshot_findings(device)),
        history_entries=0 if history is None else len(history),
    )


def _build_snapshot_state(state: SnapshotState) -> SnapshotTime:
    return SnapshotTime(time_ns=state.time, requested_bytes=state.requested, reserved_bytes=state.reserved)


def _build_segments(device: DeviceSnapshot, limit: int | None) -> list[Segment]:
    segments = device.snapshot.segments
    return [
        Segment(
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
