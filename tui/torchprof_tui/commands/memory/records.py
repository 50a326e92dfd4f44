"""The records of `memory --json`: of a trace, and of a snapshot."""

from __future__ import annotations

from typing import Annotated, Literal

from torchprof_tui.commands.common.json_document import Document, Record, about
from torchprof_tui.commands.common.partial_input import ProblemRecord

SCHEMA = "torchprof-tui/memory/1"

PhaseName = Literal["forward", "backward", "optimizer", "outside", "before the recording"]
CategoryName = Literal[
    "parameter", "gradient", "optimizer state", "activation", "input", "temporary", "workspace", "unknown"
]


class PeakRecord(Record, frozen=True, kw_only=True):
    """The peak of a device."""

    time_ns: Annotated[int, about("when most was allocated, the first of several")]
    allocated_bytes: Annotated[int, about("allocated then, as recorded")]
    reserved_bytes: Annotated[int | None, about("got from the driver then; null if not recorded")]


class DevicePeakRecord(Record, frozen=True, kw_only=True):
    """One device of the trace."""

    device: Annotated[str, about("GPU 0, CPU, …")]
    peak: Annotated[PeakRecord, about("its peak")]


class StateRecord(Record, frozen=True, kw_only=True):
    """The time that is answered for."""

    time_ns: Annotated[int, about("from the trace's first event")]
    alive_bytes: Annotated[int, about("allocated then, as recorded")]
    reserved_bytes: Annotated[int | None, about("got from the driver then; null if not recorded")]


class AllocationRecord(Record, frozen=True, kw_only=True):
    """One allocation that is alive."""

    bytes: Annotated[int, about("its size")]
    op: Annotated[str | None, about("op that allocated it; null for none")]
    module: Annotated[str | None, about("path of modules around the op, outermost first; null if not recorded")]
    line: Annotated[str | None, about("file:line function of the program; null if not recorded")]
    phase: Annotated[PhaseName, about("part of training in which it was allocated")]
    category: Annotated[CategoryName, about("what it is for")]
    since_ns: Annotated[int | None, about("when it was allocated; null before the recording")]
    until_ns: Annotated[int | None, about("when it was freed; null if never in the trace")]


class OlderPartRecord(Record, frozen=True, kw_only=True):
    """A part of what was allocated before the recording."""

    category: Annotated[CategoryName, about("what it is for")]
    bytes: Annotated[int, about("its size")]
    rule: Annotated[str, about("how it was estimated")]


class MemoryGroupRecord(Record, frozen=True, kw_only=True):
    """A group of what is alive."""

    label: Annotated[str, about("category, op, module, line, phase or input shapes")]
    bytes: Annotated[int, about("sum of its allocations")]
    share: Annotated[float | None, about("of what is allocated; null if that is 0")]
    allocations: Annotated[int, about("how many; 0 where only the sum is known")]
    since_ns: Annotated[int | None, about("when the first was allocated; null before the recording")]
    until_ns: Annotated[int | None, about("when the last is freed; null if never in the trace")]


class MemoryFindingRecord(Record, frozen=True, kw_only=True):
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


class MemoryTraceDocument(Document, frozen=True, kw_only=True, tag=SCHEMA):
    """What is alive at a time in a trace.

    `alive`, `before_window_bytes`, `rest_bytes` and `unaccounted_bytes` sum to `at.alive_bytes`, and so do `groups` and
    `categories`.
    """

    source: Annotated[Literal["trace"], about("what it was read from")] = "trace"
    device: Annotated[str, about("device that is answered for")]
    devices: Annotated[list[DevicePeakRecord], about("all devices of the trace, and their peaks")]
    peak: Annotated[PeakRecord, about("peak of this device")]
    at: Annotated[StateRecord, about("time that is answered for")]
    by: Annotated[Literal["category", "op", "module", "line", "phase", "shape"], about("what groups are by")]
    groups: Annotated[list[MemoryGroupRecord], about("groups of what is alive, largest first")]
    alive: Annotated[list[AllocationRecord], about("what is alive, largest first; at most --top")]
    rest_bytes: Annotated[int, about("of the allocations beyond --top; 0 without it")]
    categories: Annotated[
        dict[str, int], about("bytes of each category; what is not accounted for is in none", "bytes")
    ]
    rules: Annotated[dict[str, str], about("the rule that decides each category")]
    findings: Annotated[list[MemoryFindingRecord], about("what could be changed, what saves most at the peak first")]
    before_window_bytes: Annotated[int, about("allocated before the recording and never freed in it")]
    before_window: Annotated[list[OlderPartRecord], about("its parts, as far as they can be estimated")]
    unaccounted_bytes: Annotated[int, about("of the recorded total, what the records do not explain; usually 0")]
    cannot_tell: Annotated[
        str | None, about("why allocations are not told apart, and what records it; null if they are")
    ]
    rank: Annotated[int | None, about("rank that is answered for; null without ranks")]
    partial: Annotated[list[ProblemRecord], about("what was lost of the trace; [] for nothing")]


class SegmentRecord(Record, frozen=True, kw_only=True):
    """One segment: memory that the allocator got from the driver."""

    address: Annotated[int, about("where it starts")]
    total_bytes: Annotated[int, about("its size")]
    allocated_bytes: Annotated[int, about("in blocks that are in use")]
    largest_free_bytes: Annotated[int, about("its largest free block")]
    blocks: Annotated[int, about("blocks in it")]
    kind: Annotated[str, about("small or large, as recorded")]
    stream: Annotated[int, about("stream that it belongs to")]
    expandable: Annotated[bool, about("an expandable segment")]


class SnapshotTotalsRecord(Record, frozen=True, kw_only=True):
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


class SnapshotStateRecord(Record, frozen=True, kw_only=True):
    """The allocator at one time. Bytes are as the program requested them."""

    time_ns: Annotated[int, about("from the first entry of the history")]
    requested_bytes: Annotated[int, about("requested by what was alive")]
    reserved_bytes: Annotated[int, about("in segments")]


class SnapshotGroupRecord(Record, frozen=True, kw_only=True):
    """Allocations of one line or stack."""

    label: Annotated[str, about("file:line function; of a stack one frame a line, innermost first")]
    bytes: Annotated[int, about("as requested")]
    allocations: Annotated[int, about("how many")]
    largest_bytes: Annotated[int, about("the largest of them")]


class OutOfMemoryRecord(Record, frozen=True, kw_only=True):
    """An allocation that failed."""

    time_ns: Annotated[int, about("from the first entry of the history")]
    asked_bytes: Annotated[int, about("what the program asked for")]
    device_free_bytes: Annotated[int | None, about("what the device had left; null if not recorded")]
    requested_bytes: Annotated[int, about("requested by what was alive")]
    reserved_bytes: Annotated[int, about("in segments")]
    stack: Annotated[list[str], about("frames, innermost first")]


class SnapshotDocument(Document, frozen=True, kw_only=True, tag=SCHEMA):
    """One device of a snapshot of the allocator. `groups` and `older_bytes` sum to `at.requested_bytes`."""

    source: Annotated[Literal["snapshot"], about("what it was read from")] = "snapshot"
    device: Annotated[str, about("device that is answered for")]
    devices: Annotated[list[str], about("all devices of the snapshot, most reserved bytes first")]
    totals: Annotated[SnapshotTotalsRecord, about("the device when the snapshot was made")]
    peak: Annotated[SnapshotStateRecord | None, about("when most was requested; null without a history")]
    at: Annotated[SnapshotStateRecord | None, about("time that is answered for; null: when the snapshot was made")]
    by: Annotated[Literal["line", "stack"], about("what groups are by")]
    groups: Annotated[list[SnapshotGroupRecord], about("groups of what is alive, largest first; at most --top")]
    rest_bytes: Annotated[int, about("of the groups beyond --top; 0 without it")]
    older_bytes: Annotated[int, about("alive, but allocated before the history begins")]
    segments: Annotated[list[SegmentRecord], about("segments, largest first; at most --top")]
    out_of_memory: Annotated[list[OutOfMemoryRecord], about("allocations that failed, by time")]
    findings: Annotated[list[MemoryFindingRecord], about("what could be changed about it; [] for nothing")]
    history_entries: Annotated[int, about("entries of the allocator's history; 0 if none was recorded")]
