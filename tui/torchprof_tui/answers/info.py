"""The answer of `info`: what a trace holds, or which traces a remote folder holds."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import field
from msgspec.structs import replace

from torchprof_tui.analysis.collectives.communication_card import build_communication_card
from torchprof_tui.analysis.collectives.communication_waiting import WaitingSource, compute_arrivals
from torchprof_tui.analysis.doctor.examination import diagnose_trace
from torchprof_tui.analysis.doctor.read_problems import Section
from torchprof_tui.analysis.graphs.captured_ops import DOUBT_TEXT, REASON_TEXT, OpSource, get_captured_ops
from torchprof_tui.analysis.patterns.engine.check_scope import default_scope
from torchprof_tui.analysis.patterns.engine.gpu_gaps import GapFinder
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import format_missing_reason
from torchprof_tui.analysis.patterns.verdict.cpu_only import build_cpu_time_tree
from torchprof_tui.analysis.patterns.verdict.time_tree import build_time_tree
from torchprof_tui.analysis.patterns.verdict.tree_model import TimeTree, merge_trees
from torchprof_tui.analysis.time.gpu_time import compute_busy_ns_by_device
from torchprof_tui.answers.losses import Problem, build_problems
from torchprof_tui.answers.record import Answer, Record, about, fill
from torchprof_tui.answers.serving import Serving, list_serving
from torchprof_tui.answers.steps import Step, list_steps
from torchprof_tui.answers.time_parts import TimePart, build_time_parts
from torchprof_tui.trace.loading.open_or_build import OpenedTrace
from torchprof_tui.trace.model.communication_kernels import Operation
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.ranks import AlignmentMethod, Ranks
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.specs.runs_by_name import FolderError, group_runs

SCHEMA = "torchprof-tui/info/1"


class InfoLane(Record, frozen=True, kw_only=True):
    """A thread, a stream or a counter."""

    kind: Annotated[Literal["cpu", "gpu", "async", "counter", "profiler"], about("what runs on it")]
    role: Annotated[Role, about("the kind in more detail")]
    pid: Annotated[str, about("process, as recorded")]
    tid: Annotated[str, about("thread or stream, as recorded")]
    label: Annotated[str, about("name that the app shows")]
    group: Annotated[str, about("heading above it: CPU, GPU 0 …")]
    events: Annotated[int, about("events on it; 0 for counters")]
    rows: Annotated[int, about("levels of nesting")]
    rank: Annotated[int | None, about("rank; only with several")] = None


class Device(Record, frozen=True, kw_only=True):
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


class DeviceCommunication(CommunicationTimes, frozen=True, kw_only=True):
    """Communication of one GPU."""

    id: Annotated[int, about("number of the device")]


class CollectiveOperation(Record, frozen=True, kw_only=True):
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


class Communication(CommunicationTimes, frozen=True, kw_only=True):
    """Communication of one rank, summed over its devices."""

    rank: Annotated[int | None, about("number of the rank; null if unknown")]
    count: Annotated[int, about("kernels")]
    waiting_source: Annotated[WaitingSource | None, about("how most of the waiting was decided")]
    window_ns: Annotated[list[int], about("start and end of what was counted")]
    devices: Annotated[list[DeviceCommunication], about("by GPU")]
    operations: Annotated[list[CollectiveOperation], about("by kind of collective, longest first")]
    summary: Annotated[str, about("one line")]


class Links(Record, frozen=True, kw_only=True):
    """How launches and GPU work are linked."""

    launches: Annotated[int, about("calls that launch GPU work")]
    gpu_events: Annotated[int, about("kernels, copies and fills")]
    linked_gpu_events: Annotated[int, about("those whose launch was recorded")]


class Graphs(Record, frozen=True, kw_only=True):
    """The replays of CUDA graphs in one trace, and how many of their kernels have an op."""

    launches: Annotated[int, about("calls that launched a graph")]
    kernels: Annotated[int, about("kernels, copies and fills of these replays")]
    matched: Annotated[int, about("those whose op is known")]
    source: Annotated[OpSource, about("what the ops come from")]
    unmatched: Annotated[dict[str, int], about("those without an op: reason → number")]
    uncertain: Annotated[dict[str, int], about("those whose op may have had other shapes: reason → number")]
    captures: Annotated[list[str], about("traces that were used")]
    rank: Annotated[int | None, about("only with several")] = None


class Remark(Record, frozen=True, kw_only=True):
    """Something that the recording lacks, or that limits what can be said about it."""

    section: Annotated[Section, about("what it is about")]
    kind: Annotated[str, about("stable name")]
    count: Annotated[int, about("entries or events concerned")]
    meaning: Annotated[str, about("explanation")]
    example: Annotated[str, about("one of them; empty for none")]
    action: Annotated[str, about("what to do; empty for nothing")]


class InfoRank(Record, frozen=True, kw_only=True):
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


class LostRank(Record, frozen=True, kw_only=True):
    """A rank that could not be opened."""

    rank: Annotated[int | None, about("number in the file's name; null for none")]
    file: Annotated[str, about("as named by the user")]
    why: Annotated[str, about("one line")]


class MatchedCollectives(Record, frozen=True, kw_only=True):
    """Collectives that were matched across ranks."""

    joined: Annotated[int, about("matched")]
    incomplete: Annotated[int, about("of these, missing on a rank of the group")]
    differing: Annotated[int, about("of these, with another type or size on some ranks")]


class Info(Answer, frozen=True, kw_only=True, tag=SCHEMA):
    """A summary of a trace, or of all ranks of a run. `events` = drawn + metadata + flows + Σ not_drawn."""

    format: Annotated[str, about("kineto (torch.profiler), nsight (Nsight Systems), chrome, or of an extension")]
    size_bytes: Annotated[int, about("decompressed size")] = field(name="bytes")
    events: Annotated[int, about("entries of traceEvents")]
    drawn: Annotated[int, about("entries that are events on lanes")]
    metadata: Annotated[int, about("entries of names and labels")]
    flows: Annotated[int, about("entries of arrows")]
    not_drawn: Annotated[dict[str, int], about("entries that are not shown: reason → number")]
    by_category: Annotated[dict[str, int], about("events on lanes: category → number")]
    duration_ns: Annotated[int, about("from the first event to the last end")]
    steps: Annotated[list[Step], about("in time order; of all ranks by rank")]
    lanes: Annotated[list[InfoLane], about("threads, streams and counters")]
    devices: Annotated[list[Device], about("GPUs")]
    gpu_busy_ns: Annotated[dict[str, int], about("device, or RANK:DEVICE, → time in which it worked")]
    communication: Annotated[list[Communication], about("of each rank; one for a single trace")]
    rank: Annotated[int | None, about("of a single trace; null if not recorded")]
    world_size: Annotated[int | None, about("ranks of the run; null if not recorded")]
    links: Annotated[Links, about("launches and GPU work")]
    graphs: Annotated[list[Graphs], about("replays of graphs; [] for none")]
    serving: Annotated[list[Serving], about("steps of a serving engine, of each rank; one for a single trace")]
    problems: Annotated[list[Problem], about("entries that could not be read as intended")]
    doctor: Annotated[list[Remark], about("what the recording lacks")]
    seconds: Annotated[float, about("time to load")]
    cached: Annotated[bool, about("loaded from the cache")]
    ranks: Annotated[list[InfoRank] | None, about("only with several")] = None
    lost_ranks: Annotated[list[LostRank] | None, about("ranks that did not open; only with several")] = None
    collectives: Annotated[MatchedCollectives | None, about("matched across ranks; only with several")] = None
    time: Annotated[list[TimePart], about("the steps' time by cause, else the trace's; [] if unknown")]
    cannot_tell: Annotated[str | None, about("why `time` is unknown; left out where it is known")] = None


class FolderTrace(Record, frozen=True, kw_only=True):
    """A trace in a remote folder."""

    trace: Annotated[str, about("name that opens it")]
    bytes: Annotated[int | None, about("size of the file; null if unknown")]
    modified: Annotated[float, about("seconds since 1970; 0 if unknown", "s")]
    rank: Annotated[int | None, about("number in its name; null for none")]


class FolderListing(Answer, frozen=True, kw_only=True, tag=SCHEMA):
    """`info` of a remote folder: the traces in it, newest first."""

    folder: Annotated[str, about("as named by the user")]
    traces: Annotated[list[FolderTrace], about("newest first")]
    runs: Annotated[list[list[str]], about("traces of one run: open them together")]
    omitted: Annotated[int, about("further traces, at least")]


def build_info(loaded: OpenedTrace, tree: TimeTree | None, missing_reason: str = "") -> Info:
    """Build the document of a trace. `tree`, `missing_reason`: as `measure_time` returns them."""
    trace = loaded.trace
    counts, ranks = trace.counts, trace.merged_ranks
    first, last = trace.span
    return fill(
        Info,
        counts,
        format=trace.format,
        size_bytes=trace.size,
        duration_ns=last - first,
        steps=list_steps(trace),
        lanes=[fill(InfoLane, lane, events=len(lane)) for lane in trace.lanes if lane.role is not Role.RANK],
        devices=[fill(Device, device) for device in trace.devices],
        gpu_busy_ns=_measure_gpu_busy(trace),
        communication=_list_communication(trace),
        rank=trace.rank,
        world_size=trace.world_size,
        links=fill(Links, trace.links),
        graphs=_list_graphs(trace),
        serving=list_serving(trace),
        problems=build_problems(trace.problems),
        doctor=[fill(Remark, remark) for remark in diagnose_trace(trace).remarks],
        seconds=round(loaded.seconds, 4),
        cached=loaded.cached,
        ranks=None if ranks is None else _list_ranks(ranks),
        lost_ranks=None
        if ranks is None
        else [LostRank(rank=lost.number, file=lost.file, why=lost.reason) for lost in ranks.lost],
        collectives=None
        if ranks is None
        else MatchedCollectives(
            joined=len(ranks.matched_collectives),
            incomplete=int((ranks.matched_collectives.missing_ranks > 0).sum()),
            differing=int(ranks.matched_collectives.is_mismatched.sum()),
        ),
        time=build_time_parts(tree),
        cannot_tell=missing_reason if tree is None else None,
    )


def build_folder_listing(folder: FolderError) -> FolderListing:
    """Build the document of a remote folder."""
    return FolderListing(
        folder=folder.spec,
        traces=[
            FolderTrace(trace=each.spec, bytes=each.size, modified=each.modified, rank=each.rank)
            for each in folder.traces
        ],
        runs=[[each.spec for each in run.traces] for run in group_runs(folder.traces)],
        omitted=folder.omitted,
    )


def measure_time(trace: Trace) -> tuple[TimeTree | None, str]:
    """Divide the time of the trace by cause, over all ranks: (None, the reason) where it is unknown."""
    scope = default_scope(trace)
    trees, reasons = [], []
    for rank in trace.all_ranks:
        tables = TraceTables(rank.trace)
        view = ScopeView(tables, GapFinder(tables), scope)
        tree, reason = None, view.missing_window_reason()
        if not reason:
            tree = build_time_tree(view)
        elif not len(tables.work) and not tables.data_loss:  # what was lost may be the GPU's work
            tree = build_cpu_time_tree(view)
        if tree is not None:
            trees.append(tree)
        else:
            reasons.append(format_missing_reason(reason, tables.data_loss) if tables.data_loss else reason)
    return merge_trees(trees), reasons[0] if reasons else ""


def _measure_gpu_busy(trace: Trace) -> dict[str, int]:
    """Return GPU busy time in ns by device, or by `RANK:DEVICE`, because each rank may number its device 0."""
    if trace.merged_ranks is None:
        return {str(device): busy for device, busy in compute_busy_ns_by_device(trace).items()}
    return {
        f"{rank.number}:{device}": busy
        for rank in trace.merged_ranks.all
        for device, busy in _measure_gpu_busy(rank.trace).items()
    }


def _list_graphs(trace: Trace) -> list[Graphs]:
    """List the replays of graphs of each rank, of a single trace once; nothing where there are none."""
    if trace.merged_ranks is not None:
        ranks = trace.merged_ranks.all
        return [replace(record, rank=rank.number) for rank in ranks for record in _list_graphs(rank.trace)]
    ops = get_captured_ops(trace)
    if ops is None:
        return []
    return [
        Graphs(
            launches=len(ops.replays),
            kernels=len(ops.replays.work),
            matched=ops.matched_count,
            source=ops.source,
            unmatched={REASON_TEXT[reason]: count for reason, count in ops.count_reasons().items()},
            uncertain={DOUBT_TEXT[doubt]: count for doubt, count in ops.count_doubts().items()},
            captures=[capture.label for capture in ops.captures],
        )
    ]


def _list_communication(trace: Trace) -> list[Communication]:
    """Build the communication card of each rank, of a single trace one; see `CommunicationCard`."""
    if trace.merged_ranks is None:
        return [Communication(rank=trace.rank, **build_communication_card(trace).as_json())]
    arrivals = compute_arrivals(trace.merged_ranks)
    cards = [
        (rank.number, build_communication_card(rank.trace, arrivals=arrivals, rank_index=rank_index))
        for rank_index, rank in enumerate(trace.merged_ranks.all)
    ]
    return [Communication(rank=number, **card.as_json()) for number, card in cards]


def _list_ranks(ranks: Ranks) -> list[InfoRank]:
    meetings = ranks.matched_collectives
    return [
        fill(
            InfoRank,
            rank.trace.counts,
            rank=rank.number,
            file=rank.file,
            start_ns=rank.trace.span[0],
            duration_ns=rank.trace.span[1] - rank.trace.span[0],
            shift_ns=rank.clock.shift,
            partial=rank.partial,
            aligned_by=rank.clock.method,
            error_ns=rank.clock.error,
            aligned_collectives=rank.clock.collective_count,
            collectives_alone=int(meetings.unmatched[place]),
            collectives_before=int(meetings.before_recording[place]),
        )
        for place, rank in enumerate(ranks.all)
    ]
