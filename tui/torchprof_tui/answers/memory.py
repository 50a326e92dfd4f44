"""The answers about memory: what is alive on one device of a trace at one time, or in a snapshot of the allocator."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from torchprof_tui.analysis.memory.categories import RULES, Category
from torchprof_tui.analysis.memory.device_memory import UNKNOWN_BYTES, DeviceMemory
from torchprof_tui.analysis.memory.findings.allocator_findings import find_snapshot_findings
from torchprof_tui.analysis.memory.findings.lifetime_findings import list_memory_findings
from torchprof_tui.analysis.memory.memory_history import (
    BANDS,
    CategoryTotals,
    DeviceHistory,
    GroupBy,
    MemoryHistory,
    MemoryState,
    explain_missing_addresses,
    find_highest_positions,
    read_reserved,
)
from torchprof_tui.analysis.memory.producers import Phase
from torchprof_tui.analysis.memory.snapshots.device_snapshot import DeviceSnapshot, SnapshotGroupBy, SnapshotState
from torchprof_tui.answers import html
from torchprof_tui.answers.losses import Problem, build_losses
from torchprof_tui.answers.record import Answer, Record, about, fill
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.trace import Trace

SCHEMA = "torchprof-tui/memory/1"

PhaseName = Literal["forward", "backward", "optimizer", "outside", "before the recording"]
CategoryName = Literal[
    "parameter", "gradient", "optimizer state", "activation", "input", "temporary", "workspace", "unknown"
]


class Peak(Record, frozen=True, kw_only=True):
    """The peak of a device."""

    time_ns: Annotated[int, about("when most was allocated, the first of several")]
    allocated_bytes: Annotated[int, about("allocated then, as recorded")]
    reserved_bytes: Annotated[int | None, about("got from the driver then; null if not recorded")]


class DevicePeak(Record, frozen=True, kw_only=True):
    """One device of the trace."""

    device: Annotated[str, about("GPU 0, CPU, …")]
    peak: Annotated[Peak, about("its peak")]


class MemoryTime(Record, frozen=True, kw_only=True):
    """The time that is answered for."""

    time_ns: Annotated[int, about("from the trace's first event")]
    alive_bytes: Annotated[int, about("allocated then, as recorded")]
    reserved_bytes: Annotated[int | None, about("got from the driver then; null if not recorded")]


class Allocation(Record, frozen=True, kw_only=True):
    """One allocation that is alive."""

    bytes: Annotated[int, about("its size")]
    op: Annotated[str | None, about("op that allocated it; null for none")]
    module: Annotated[str | None, about("path of modules around the op, outermost first; null if not recorded")]
    line: Annotated[str | None, about("file:line function of the program; null if not recorded")]
    phase: Annotated[PhaseName, about("part of training in which it was allocated")]
    category: Annotated[CategoryName, about("what it is for")]
    since_ns: Annotated[int | None, about("when it was allocated; null before the recording")]
    until_ns: Annotated[int | None, about("when it was freed; null if never in the trace")]
    event: Annotated[int | None, about("number of that op in the trace, from 0; null for none")]


class OlderPart(Record, frozen=True, kw_only=True):
    """A part of what was allocated before the recording."""

    category: Annotated[CategoryName, about("what it is for")]
    bytes: Annotated[int, about("its size")]
    rule: Annotated[str, about("how it was estimated")]


class MemoryGroup(Record, frozen=True, kw_only=True):
    """A group of what is alive."""

    label: Annotated[str, about("category, op, module, line, phase or input shapes")]
    bytes: Annotated[int, about("sum of its allocations")]
    share: Annotated[float | None, about("of what is allocated; null if that is 0")]
    allocations: Annotated[int, about("how many; 0 where only the sum is known")]
    since_ns: Annotated[int | None, about("when the first was allocated; null before the recording")]
    until_ns: Annotated[int | None, about("when the last is freed; null if never in the trace")]


class MemoryFinding(Record, frozen=True, kw_only=True):
    """What could be changed about memory."""

    id: Annotated[str, about("stable name of the finding")]
    seen: Annotated[str, about("this recording's numbers")]
    saved_bytes: Annotated[int, about("what the action saves at the peak, at most; 0 where it saves none")]
    time_ns: Annotated[
        int | None,
        about("activation-memory: what the action costs a step; allocator-retries: what was lost; else null"),
    ]
    action: Annotated[str, about("what to do about it")]
    code: Annotated[str, about("a line to paste; empty where no line helps")]


class AliveMemory(Answer, frozen=True, kw_only=True, tag=SCHEMA):
    """What is alive at a time in a trace.

    `alive`, `before_window_bytes`, `rest_bytes` and `unaccounted_bytes` sum to `at.alive_bytes`, and so do `groups` and
    `categories`.
    """

    source: Annotated[Literal["trace"], about("what it was read from")]
    device: Annotated[str, about("device that is answered for")]
    devices: Annotated[list[DevicePeak], about("all devices of the trace, and their peaks")]
    peak: Annotated[Peak, about("peak of this device")]
    at: Annotated[MemoryTime, about("time that is answered for")]
    by: Annotated[Literal["category", "op", "module", "line", "phase", "shape"], about("what groups are by")]
    groups: Annotated[list[MemoryGroup], about("groups of what is alive, largest first")]
    alive: Annotated[list[Allocation], about("what is alive, largest first; at most --top")]
    rest_bytes: Annotated[int, about("of the allocations beyond --top; 0 without it")]
    categories: Annotated[
        dict[str, int], about("bytes of each category; what is not accounted for is in none", "bytes")
    ]
    rules: Annotated[dict[str, str], about("the rule that decides each category")]
    findings: Annotated[list[MemoryFinding], about("what could be changed, what saves most at the peak first")]
    before_window_bytes: Annotated[int, about("allocated before the recording and never freed in it")]
    before_window: Annotated[list[OlderPart], about("its parts, as far as they can be estimated")]
    unaccounted_bytes: Annotated[int, about("of the recorded total, what the records do not explain; usually 0")]
    cannot_tell: Annotated[
        str | None, about("why allocations are not told apart, and what records it; null if they are")
    ]
    rank: Annotated[int | None, about("rank that is answered for; null without ranks")]
    partial: Annotated[list[Problem], about("what was lost of the trace; [] for nothing")]

    def _repr_html_(self) -> str:
        groups = ((each.label, each.bytes, html.format_share(each.share), each.allocations) for each in self.groups)
        findings = [(each.id, each.saved_bytes, each.seen, each.action) for each in self.findings]
        return html.build_block(
            f"{self.device}: {self.at.alive_bytes:,} bytes alive, {self.peak.allocated_bytes:,} at the peak",
            [self.cannot_tell or ""],
            html.build_table((self.by, "bytes", "share", "allocations"), groups),
            html.build_table(("finding", "saves bytes", "seen", "do"), findings) if findings else "",
        )


def build_alive_memory(
    history: MemoryHistory,
    device: DeviceHistory,
    state: MemoryState,
    by: GroupBy,
    limit: int | None,
    rank: int | None,
    first: int = 0,
) -> AliveMemory:
    """Build the answer about one device at one time. `first`: number of the trace's first event of all ranks'."""
    shown = state.alive[:limit]
    groups = device.group_state(state, by)
    categories = {each.label: 0 for each in Category}
    for group in device.group_state(state, GroupBy.CATEGORY):
        if group.label in categories:
            categories[group.label] += group.bytes
    return AliveMemory(
        source="trace",
        device=device.memory.label,
        devices=[DevicePeak(device=each.memory.label, peak=_build_peak(each.memory)) for each in history.devices],
        peak=_build_peak(device.memory),
        at=MemoryTime(time_ns=state.time, alive_bytes=state.allocated, reserved_bytes=_none_if_unknown(state.reserved)),
        by=by.value,
        groups=[
            fill(
                MemoryGroup,
                group,
                share=group.bytes / state.allocated if state.allocated else None,
                allocations=len(group.lifetimes),
            )
            for group in groups
        ],
        alive=_build_allocations(device, shown, first),
        rest_bytes=int(device.lifetimes.bytes[state.alive[len(shown) :]].sum()),
        categories=categories,
        rules={category.label: rule for category, rule in RULES.items()},
        findings=[fill(MemoryFinding, each) for each in list_memory_findings(device)],
        before_window_bytes=state.older.bytes,
        before_window=[
            OlderPart(category=part.category.label, bytes=part.bytes, rule=part.rule)  # type: ignore[arg-type]
            for part in state.older.parts
        ],
        unaccounted_bytes=state.unaccounted,
        cannot_tell=explain_missing_addresses(device.memory),
        rank=rank,
        partial=build_losses(history.trace),
    )


def _build_peak(memory: DeviceMemory) -> Peak:
    return Peak(
        time_ns=int(memory.time[memory.peak]),
        allocated_bytes=int(memory.allocated[memory.peak]),
        reserved_bytes=_none_if_unknown(int(memory.reserved[memory.peak])),
    )


def _none_if_unknown(size: int) -> int | None:
    return None if size == UNKNOWN_BYTES else size


def _build_allocations(device: DeviceHistory, lifetimes: I64, first: int) -> list[Allocation]:
    texts = {}
    for by in (GroupBy.OP, GroupBy.MODULE, GroupBy.LINE):
        index, labels = device.label_lifetimes(lifetimes, by)
        texts[by] = [labels[number] or None for number in index.tolist()]
    return [
        Allocation(
            bytes=int(device.lifetimes.bytes[lifetime]),
            op=texts[GroupBy.OP][row],
            module=texts[GroupBy.MODULE][row],
            line=texts[GroupBy.LINE][row],
            phase=Phase(int(device.phase[lifetime])).label,  # type: ignore[arg-type]
            category=Category(int(device.category[lifetime])).label,  # type: ignore[arg-type]
            since_ns=device.since(lifetime),
            until_ns=device.until(lifetime),
            event=int(device.op[lifetime]) + first if device.op[lifetime] >= 0 else None,
        )
        for row, lifetime in enumerate(lifetimes.tolist())
    ]


class Band(Record, frozen=True, kw_only=True):
    """One band of a stacked curve."""

    name: Annotated[str, about("a category, or what is not accounted for")]
    bytes: Annotated[list[int], about("in each interval, when most is allocated in it", "bytes")]
    peak_bytes: Annotated[int, about("at the peak")]


class StackedCurve(Record, frozen=True, kw_only=True):
    """The memory of a device over equal intervals of the trace, each at its highest. `bands` sum to `allocated`."""

    trace: Annotated[str, about("name of the trace")]
    device: Annotated[str, about("GPU 0, CPU, …")]
    start_ns: Annotated[int, about("where the first interval begins")]
    end_ns: Annotated[int, about("where the last interval ends")]
    bands: Annotated[list[Band], about("from the bottom")]
    allocated_bytes: Annotated[list[int], about("by interval")]
    reserved_bytes: Annotated[list[int | None], about("by interval; null if not recorded")]
    peak: Annotated[Peak, about("of the whole trace")]
    cannot_tell: Annotated[str | None, about("why allocations are not told apart; null if they are")]


def build_stacked_curve(trace: Trace, device: DeviceHistory, intervals: int) -> StackedCurve:
    """Build the curve of a device over the whole trace."""
    memory, totals = device.memory, CategoryTotals(device)
    first, last = trace.span
    start, end = min(first, int(memory.time[0])), max(last, int(memory.time[-1])) + 1
    edges = [start + (end - start) * number // intervals for number in range(intervals + 1)]
    positions = find_highest_positions(device, np.array(edges, np.int64))
    sums, at_peak = totals.sum_at(positions), totals.sum_at(np.array([memory.peak]))[0]
    return StackedCurve(
        trace=trace.label,
        device=memory.label,
        start_ns=start,
        end_ns=end,
        bands=[
            Band(name=name, bytes=column.tolist(), peak_bytes=int(size))
            for name, column, size in zip(BANDS, sums.T, at_peak, strict=True)
        ],
        allocated_bytes=sums.sum(axis=1).tolist(),
        reserved_bytes=[_none_if_unknown(size) for size in read_reserved(device, positions).tolist()],
        peak=_build_peak(memory),
        cannot_tell=explain_missing_addresses(memory),
    )


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
        totals=fill(
            SnapshotTotals, totals, unused_segments_bytes=totals.unused, fragmentation_share=totals.fragmentation
        ),
        peak=None if peak is None else fill(SnapshotTime, peak),
        at=None if state is None else fill(SnapshotTime, state),
        by=by.value,
        groups=[
            SnapshotGroup(label=group.label, bytes=group.bytes, allocations=group.count, largest_bytes=group.largest)
            for group in groups[:limit]
        ],
        rest_bytes=sum(group.bytes for group in groups[len(groups[:limit]) :]),
        older_bytes=0 if state is None else state.older,
        segments=_build_segments(device, limit),
        out_of_memory=[
            fill(
                OutOfMemory,
                failure,
                asked_bytes=failure.size,
                device_free_bytes=failure.device_free if failure.device_free >= 0 else None,
                stack=failure.stack.splitlines(),
            )
            for failure in device.list_failures()
        ],
        findings=[fill(MemoryFinding, each) for each in find_snapshot_findings(device)],
        history_entries=0 if history is None else len(history),
    )


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
