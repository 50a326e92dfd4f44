"""Build the JSON document of `info --json`."""

from __future__ import annotations

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from torchprof_tui.analysis.collectives.communication_card import CommunicationCard, build_communication_card
from torchprof_tui.analysis.collectives.late_arrivals import compute_arrivals
from torchprof_tui.analysis.doctor.examination import diagnose_trace
from torchprof_tui.analysis.graphs.captured_ops import DOUBT_TEXT, REASON_TEXT, get_captured_ops
from torchprof_tui.analysis.patterns.engine.check_scope import default_scope
from torchprof_tui.analysis.patterns.engine.gpu_idle_causes import GapFinder
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import format_missing_reason
from torchprof_tui.analysis.patterns.verdict.cpu_only import build_cpu_time_tree
from torchprof_tui.analysis.patterns.verdict.time_tree import build_time_tree
from torchprof_tui.analysis.patterns.verdict.tree_lines import merge_trees
from torchprof_tui.analysis.patterns.verdict.tree_model import TimeTree
from torchprof_tui.analysis.time.gpu_time import compute_busy_ns_by_device
from torchprof_tui.commands.common.partial_input import build_problem
from torchprof_tui.commands.common.serving_document import list_serving
from torchprof_tui.commands.common.time_tree import build_time_records
from torchprof_tui.commands.info.records import (
    CollectivesRecord,
    CommunicationRecord,
    DeviceRecord,
    FolderDocument,
    GraphsRecord,
    InfoDocument,
    LaneRecord,
    LinksRecord,
    ListedTraceRecord,
    LostRankRecord,
    RankRecord,
    RemarkRecord,
    StepRecord,
)
from torchprof_tui.trace.loading.open_or_build import OpenedTrace
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.ranks import Ranks
from torchprof_tui.trace.model.serving_names import UNKNOWN
from torchprof_tui.trace.model.steps import Step
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.specs.folder_error import FolderError
from torchprof_tui.trace.specs.runs_by_name import group_runs


def build_document(loaded: OpenedTrace, tree: TimeTree | None, missing_reason: str = "") -> InfoDocument:
    """Build the document of a trace; times in ns from the first event of the trace, or of the earliest rank.

    `tree`, `missing_reason`: as `measure_time` returns them.
    """
    trace = loaded.trace
    counts, ranks = trace.counts, trace.merged_ranks
    first, last = trace.span
    return InfoDocument(
        format=trace.format,
        size_bytes=trace.size,
        events=counts.events,
        drawn=counts.drawn,
        metadata=counts.metadata,
        flows=counts.flows,
        not_drawn=counts.not_drawn,
        by_category=counts.by_category,
        duration_ns=last - first,
        steps=_list_steps(trace),
        lanes=_list_lanes(trace),
        devices=[DeviceRecord(id=device.id, name=device.name) for device in trace.devices],
        gpu_busy_ns=_measure_gpu_busy(trace),
        communication=_list_communication(trace),
        rank=trace.rank,
        world_size=trace.world_size,
        links=LinksRecord(
            launches=trace.links.launches,
            gpu_events=trace.links.gpu_events,
            linked_gpu_events=trace.links.linked_gpu_events,
        ),
        graphs=_list_graphs(trace),
        serving=list_serving(trace),
        problems=[build_problem(problem) for problem in trace.problems],
        doctor=_list_remarks(trace),
        seconds=round(loaded.seconds, 4),
        cached=loaded.cached,
        ranks=UNSET if ranks is None else _list_ranks(ranks),
        lost_ranks=UNSET
        if ranks is None
        else [LostRankRecord(rank=lost.number, file=lost.file, why=lost.reason) for lost in ranks.lost],
        collectives=UNSET if ranks is None else _count_collectives(ranks),
        time=build_time_records(tree),
        cannot_tell=UNSET if tree is not None else missing_reason,
    )


def build_folder_document(folder: FolderError) -> FolderDocument:
    """Build the document of a remote folder."""
    return FolderDocument(
        folder=folder.spec,
        traces=[
            ListedTraceRecord(trace=each.spec, bytes=each.size, modified=each.modified, rank=each.rank)
            for each in folder.traces
        ],
        runs=[[each.spec for each in run.traces] for run in group_runs(folder.traces)],
        omitted=folder.omitted,
    )


def measure_time(trace: Trace) -> tuple[TimeTree | None, str]:
    """Divide the time of the trace by cause, over all ranks: (None, the reason) where it is unknown.

    No pattern is checked.
    """
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


def _list_lanes(trace: Trace) -> list[LaneRecord]:
    return [
        LaneRecord(
            kind=lane.kind,  # type: ignore[arg-type]
            role=lane.role,
            pid=lane.pid,
            tid=lane.tid,
            label=lane.label,
            group=lane.group,
            events=len(lane),
            rows=lane.rows,
            rank=UNSET if lane.rank is None else lane.rank,
        )
        for lane in trace.lanes
        if lane.role is not Role.RANK
    ]


def _list_steps(trace: Trace) -> list[StepRecord]:
    """List the steps, of all ranks with their rank."""
    return [
        _build_step(step, UNSET if trace.merged_ranks is None else rank.number)
        for rank in trace.all_ranks
        for step in rank.trace.steps
    ]


def _build_step(step: Step, rank: int | UnsetType) -> StepRecord:
    """Build the record of a step, with what it served if it is one of a serving engine."""
    record = StepRecord(name=step.name, start_ns=step.start, duration_ns=step.duration, rank=rank)
    said = step.serving
    if said is None:
        return record
    batch, tokens, kv_length = (None if n == UNKNOWN else n for n in (said.batch, said.tokens, said.kv_length))
    return replace(record, kind=said.kind, batch=batch, tokens=tokens, kv_length=kv_length)


def _measure_gpu_busy(trace: Trace) -> dict[str, int]:
    """Return GPU busy time in ns by device, or by `RANK:DEVICE`, because each rank may number its device 0."""
    if trace.merged_ranks is None:
        return {str(device): busy for device, busy in compute_busy_ns_by_device(trace).items()}
    return {
        f"{rank.number}:{device}": busy
        for rank in trace.merged_ranks.all
        for device, busy in _measure_gpu_busy(rank.trace).items()
    }


def _list_graphs(trace: Trace) -> list[GraphsRecord]:
    """List the replays of graphs of each rank, of a single trace once; nothing where there are none."""
    if trace.merged_ranks is not None:
        ranks = trace.merged_ranks.all
        return [replace(record, rank=rank.number) for rank in ranks for record in _list_graphs(rank.trace)]
    ops = get_captured_ops(trace)
    if ops is None:
        return []
    return [
        GraphsRecord(
            launches=len(ops.replays),
            kernels=len(ops.replays.work),
            matched=ops.matched_count,
            source=ops.source,
            unmatched={REASON_TEXT[reason]: count for reason, count in ops.count_reasons().items()},
            uncertain={DOUBT_TEXT[doubt]: count for doubt, count in ops.count_doubts().items()},
            captures=[capture.label for capture in ops.captures],
        )
    ]


def _list_communication(trace: Trace) -> list[CommunicationRecord]:
    """Build the communication card of each rank, of a single trace one; see `CommunicationCard`."""
    if trace.merged_ranks is None:
        return [_build_communication(trace.rank, build_communication_card(trace))]
    arrivals = compute_arrivals(trace.merged_ranks)
    return [
        _build_communication(
            rank.number, build_communication_card(rank.trace, arrivals=arrivals, rank_index=rank_index)
        )
        for rank_index, rank in enumerate(trace.merged_ranks.all)
    ]


def _build_communication(rank: int | None, card: CommunicationCard) -> CommunicationRecord:
    return CommunicationRecord(rank=rank, **card.as_json())


def _list_remarks(trace: Trace) -> list[RemarkRecord]:
    return [
        RemarkRecord(
            section=remark.section,
            kind=remark.kind,
            count=remark.count,
            meaning=remark.meaning,
            example=remark.example,
            action=remark.action,
        )
        for remark in diagnose_trace(trace).remarks
    ]


def _list_ranks(ranks: Ranks) -> list[RankRecord]:
    """List the ranks and how their clocks were aligned."""
    meetings = ranks.matched_collectives
    return [
        RankRecord(
            rank=rank.number,
            file=rank.file,
            events=rank.trace.counts.events,
            drawn=rank.trace.counts.drawn,
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


def _count_collectives(ranks: Ranks) -> CollectivesRecord:
    """Count the collectives that were matched."""
    meetings = ranks.matched_collectives
    return CollectivesRecord(
        joined=len(meetings),
        incomplete=int((meetings.missing_ranks > 0).sum()),
        differing=int(meetings.is_mismatched.sum()),
    )
