"""The records of `info --json`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, UnsetType, field

from torchprof_tui.analysis.collectives.communication_waiting import WaitingSource
from torchprof_tui.analysis.doctor.remark import Section
from torchprof_tui.analysis.graphs.captured_ops import OpSource
from torchprof_tui.commands.common.json_document import Document, Record, about
from torchprof_tui.commands.common.partial_input import ProblemRecord
from torchprof_tui.commands.common.serving_records import ServingRecord
from torchprof_tui.commands.common.time_tree import TimeRecord
from torchprof_tui.trace.model.communication_kernels import Operation
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.ranks import AlignmentMethod
from torchprof_tui.trace.model.serving_names import StepKind

SCHEMA = "torchprof-tui/info/1"


class StepRecord(Record, frozen=True, kw_only=True):
    """One step of the program."""

    name: Annotated[str, about("as recorded: ProfilerStep#3")]
    start_ns: Annotated[int, about("from the trace's first event")]
    duration_ns: Annotated[int, about("on the CPU")]
    kind: Annotated[StepKind | None, about("of a step of a serving engine; null for others")] = None
    batch: Annotated[int | None, about("requests served; null if not recorded")] = None
    tokens: Annotated[int | None, about("computed; null if not recorded")] = None
    kv_length: Annotated[int | None, about("tokens in the KV cache, over all requests; null if not recorded")] = None
    rank: Annotated[int | UnsetType, about("rank; only with several")] = UNSET


class LaneRecord(Record, frozen=True, kw_only=True):
    """A thread, a stream or a counter."""

    kind: Annotated[Literal["cpu", "gpu", "async", "counter", "profiler"], about("what runs on it")]
    role: Annotated[Role, about("the kind in more detail")]
    pid: Annotated[str, about("process, as recorded")]
    tid: Annotated[str, about("thread or stream, as recorded")]
    label: Annotated[str, about("name that the app shows")]
    group: Annotated[str, about("heading above it: CPU, GPU 0 …")]
    events: Annotated[int, about("events on it; 0 for counters")]
    rows: Annotated[int, about("levels of nesting")]
    rank: Annotated[int | UnsetType, about("rank; only with several")] = UNSET


class DeviceRecord(Record, frozen=True, kw_only=True):
    """A GPU."""

    id: Annotated[int, about("number in its process")]
    name: Annotated[str, about("as recorded; empty if unknown")]


class CommunicationTimes(Record, frozen=True, kw_only=True):
    """Time of collectives. hidden + exposed = total, waiting + transfer = total."""

    total_ns: Annotated[int, about("in which any collective ran")]
    hidden_ns: Annotated[int, about("while kernels computed")]
    exposed_ns: Annotated[int, about("while none did")]
    waiting_ns: Annotated[int, about("waiting for other ranks")]
    transfer_ns: Annotated[int, about("the rest: moving data")]
    exposed_waiting_ns: Annotated[int, about("waiting while nothing computed")]
    undecided_ns: Annotated[int, about("part of the transfer whose waiting is unknown")]


class DeviceCommunicationRecord(CommunicationTimes, frozen=True, kw_only=True):
    """Communication of one GPU."""

    id: Annotated[int, about("number of the device")]


class OperationRecord(Record, frozen=True, kw_only=True):
    """One kind of collective; times are sums over its kernels."""

    operation: Annotated[Operation, about("kind of collective")]
    libraries: Annotated[list[str], about("libraries that ran it")]
    count: Annotated[int, about("kernels")]
    time_ns: Annotated[int, about("of these kernels")]
    waiting_ns: Annotated[int, about("part of it: waiting for other ranks")]
    waiting_source: Annotated[WaitingSource | None, about("how waiting was decided; null if it could not be")]
    bytes: Annotated[int, about("of the messages whose size is known")]
    sized: Annotated[int, about("kernels whose message size is known")]
    algorithm_gb_s: Annotated[float | None, about("bytes / time, waiting included")]
    bus_gb_s: Annotated[float | None, about("the same times the factor of nccl-tests")]
    best_bus_gb_s: Annotated[float | None, about("of the fastest run")]
    link_gb_s: Annotated[float | None, about("what the hardware offers")]


class CommunicationRecord(CommunicationTimes, frozen=True, kw_only=True):
    """Communication of one rank, summed over its devices."""

    rank: Annotated[int | None, about("number of the rank; null if unknown")]
    count: Annotated[int, about("kernels")]
    waiting_source: Annotated[WaitingSource | None, about("how most of the waiting was decided")]
    window_ns: Annotated[list[int], about("start and end of what was counted")]
    devices: Annotated[list[DeviceCommunicationRecord], about("by GPU")]
    operations: Annotated[list[OperationRecord], about("by kind of collective, longest first")]
    summary: Annotated[str, about("one line")]


class LinksRecord(Record, frozen=True, kw_only=True):
    """How launches and GPU work are linked."""

    launches: Annotated[int, about("calls that launch GPU work")]
    gpu_events: Annotated[int, about("kernels, copies and fills")]
    linked_gpu_events: Annotated[int, about("those whose launch was recorded")]


class GraphsRecord(Record, frozen=True, kw_only=True):
    """The replays of CUDA graphs in one trace, and how many of their kernels have an op."""

    launches: Annotated[int, about("calls that launched a graph")]
    kernels: Annotated[int, about("kernels, copies and fills of these replays")]
    matched: Annotated[int, about("those whose op is known")]
    source: Annotated[OpSource, about("what the ops come from")]
    unmatched: Annotated[dict[str, int], about("those without an op: reason → number")]
    uncertain: Annotated[dict[str, int], about("those whose op may have had other shapes: reason → number")]
    captures: Annotated[list[str], about("traces that were used")]
    rank: Annotated[int | UnsetType, about("only with several")] = UNSET


class RemarkRecord(Record, frozen=True, kw_only=True):
    """Something that the recording lacks, or that limits what can be said about it."""

    section: Annotated[Section, about("what it is about")]
    kind: Annotated[str, about("stable name")]
    count: Annotated[int, about("entries or events concerned")]
    meaning: Annotated[str, about("explanation")]
    example: Annotated[str, about("one of them; empty for none")]
    action: Annotated[str, about("what to do; empty for nothing")]


class RankRecord(Record, frozen=True, kw_only=True):
    """One rank, and how its clock was aligned with the others."""

    rank: Annotated[int, about("number of the rank")]
    file: Annotated[str, about("its trace")]
    events: Annotated[int, about("entries of traceEvents")]
    drawn: Annotated[int, about("entries that are events on lanes")]
    start_ns: Annotated[int, about("of its first event, from the earliest rank's first")]
    duration_ns: Annotated[int, about("from its first event to its last end")]
    shift_ns: Annotated[int, about("added to its times")]
    partial: Annotated[bool, about("its file is truncated or damaged")]
    aligned_by: Annotated[AlignmentMethod, about("how its clock was aligned")]
    error_ns: Annotated[int | None, about("remaining error of the alignment; null if unknown")]
    aligned_collectives: Annotated[int, about("collectives that it was aligned by")]
    collectives_alone: Annotated[int, about("its collectives without a match on another rank")]
    collectives_before: Annotated[int, about("its collectives launched before the recording")]


class LostRankRecord(Record, frozen=True, kw_only=True):
    """A rank that could not be opened."""

    rank: Annotated[int | None, about("number in the file's name; null for none")]
    file: Annotated[str, about("as named by the user")]
    why: Annotated[str, about("one line")]


class CollectivesRecord(Record, frozen=True, kw_only=True):
    """Collectives that were matched across ranks."""

    joined: Annotated[int, about("matched")]
    incomplete: Annotated[int, about("of these, missing on a rank of the group")]
    differing: Annotated[int, about("of these, with another type or size on some ranks")]


class InfoDocument(Document, frozen=True, kw_only=True, tag=SCHEMA):
    """A summary of a trace, or of all ranks of a run. `events` = drawn + metadata + flows + Σ not_drawn."""

    format: Annotated[str, about("kineto (torch.profiler), nsight (Nsight Systems) or chrome")]
    size_bytes: Annotated[int, about("decompressed size")] = field(name="bytes")
    events: Annotated[int, about("entries of traceEvents")]
    drawn: Annotated[int, about("entries that are events on lanes")]
    metadata: Annotated[int, about("entries of names and labels")]
    flows: Annotated[int, about("entries of arrows")]
    not_drawn: Annotated[dict[str, int], about("entries that are not shown: reason → number")]
    by_category: Annotated[dict[str, int], about("events on lanes: category → number")]
    duration_ns: Annotated[int, about("from the first event to the last end")]
    steps: Annotated[list[StepRecord], about("in time order; of all ranks by rank")]
    lanes: Annotated[list[LaneRecord], about("threads, streams and counters")]
    devices: Annotated[list[DeviceRecord], about("GPUs")]
    gpu_busy_ns: Annotated[dict[str, int], about("device, or RANK:DEVICE, → time in which it worked")]
    communication: Annotated[list[CommunicationRecord], about("of each rank; one for a single trace")]
    rank: Annotated[int | None, about("of a single trace; null if not recorded")]
    world_size: Annotated[int | None, about("ranks of the run; null if not recorded")]
    links: Annotated[LinksRecord, about("launches and GPU work")]
    graphs: Annotated[list[GraphsRecord], about("replays of graphs; [] for none")]
    serving: Annotated[list[ServingRecord], about("steps of a serving engine, of each rank; one for a single trace")]
    problems: Annotated[list[ProblemRecord], about("entries that could not be read as intended")]
    doctor: Annotated[list[RemarkRecord], about("what the recording lacks")]
    seconds: Annotated[float, about("time to load")]
    cached: Annotated[bool, about("loaded from the cache")]
    ranks: Annotated[list[RankRecord] | UnsetType, about("only with several")] = UNSET
    lost_ranks: Annotated[list[LostRankRecord] | UnsetType, about("ranks that did not open; only with several")] = UNSET
    collectives: Annotated[CollectivesRecord | UnsetType, about("matched across ranks; only with several")] = UNSET
    time: Annotated[list[TimeRecord], about("the steps' time by cause, else the trace's; [] if unknown")]
    cannot_tell: Annotated[str | UnsetType, about("why `time` is unknown; left out where it is known")] = UNSET


class ListedTraceRecord(Record, frozen=True, kw_only=True):
    """A trace in a remote folder."""

    trace: Annotated[str, about("name that opens it")]
    bytes: Annotated[int | None, about("size of the file; null if unknown")]
    modified: Annotated[float, about("seconds since 1970; 0 if unknown", "s")]
    rank: Annotated[int | None, about("number in its name; null for none")]


class FolderDocument(Document, frozen=True, kw_only=True, tag=SCHEMA):
    """`info` of a remote folder: the traces in it, newest first."""

    folder: Annotated[str, about("as named by the user")]
    traces: Annotated[list[ListedTraceRecord], about("newest first")]
    runs: Annotated[list[list[str]], about("traces of one run: open them together")]
    omitted: Annotated[int, about("further traces, at least")]
