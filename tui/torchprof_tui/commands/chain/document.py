"""Build the JSON document of `chain --json`."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import UNSET

from torchprof_tui.analysis.dispatch.chain import Chain, HopRole, JoinMethod
from torchprof_tui.analysis.dispatch.source_line import SourceLine
from torchprof_tui.analysis.graphs.captured_chain import CapturedChain
from torchprof_tui.analysis.kernel.footprint import compute_footprint
from torchprof_tui.analysis.kernel.memory_transfer import measure_transfer
from torchprof_tui.commands.chain.captured import build_captured
from torchprof_tui.commands.chain.records import (
    ChainDocument,
    FootprintRecord,
    GpuWorkRecord,
    GraphEdgesRecord,
    HeaviestWorkRecord,
    HopRecord,
    LineSourceRecord,
    TransferRecord,
)
from torchprof_tui.commands.common.partial_input import build_partial
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.graph_neighbours import find_graph_neighbours

MAX_LISTED_WORK = 20
"""Pieces of GPU work below the event that `--json` lists; count and total cover all of them."""

_NO_GPU_WORK = "no GPU work was recorded in this trace"


@dataclass(frozen=True, slots=True)
class ChainQuestion:
    """Which event was asked for: the `nth` of `count` events of a name, in the trace of `rank` (None: a single one)."""

    event: str
    nth: int
    count: int
    rank: int | None = None


def build_document(
    trace: Trace,
    asked: ChainQuestion,
    found: Chain,
    line: SourceLine | None,
    captured: CapturedChain | str | None = None,
) -> ChainDocument:
    """Build the document of a chain; times in ns, starts from the first event of the trace.

    `found`: the chain of the event that was asked for (`find_chain`); `line`: the code behind it; `captured`: the chain
    of a replayed kernel's op, or why there is none (`find_captured_chain`).
    """
    work = found.work[0].event if found.work else -1
    resources = compute_footprint(trace, work) if work >= 0 else None
    moved = measure_transfer(trace, work) if work >= 0 else None
    return ChainDocument(
        event=asked.event,
        nth=asked.nth,
        of=asked.count,
        rank=UNSET if asked.rank is None else asked.rank,
        cannot_tell=_find_missing_reason(trace, found) or UNSET,
        chain=[
            HopRecord(
                role=hop.role,
                name=hop.name,
                start_ns=hop.start,
                duration_ns=hop.duration,
                self_ns=hop.self_duration,
            )
            for hop in found.hops
        ],
        joined_by=found.join_method,
        note=found.note,
        launch_latency_ns=found.launch_latency,
        queue_delay_ns=found.queue_delay,
        held_up_ns=found.held_up,
        held_up_by=name_of(trace, found.held_up_by),
        backward_of=name_of(trace, found.forward_op),
        backward=name_of(trace, found.backward_node),
        line=line.location if line is not None else None,
        line_source=LineSourceRecord(**line.as_dict()) if line is not None else None,
        gpu_work=_build_gpu_work(trace, found),
        captured=build_captured(captured),
        graph_edges=_build_graph_edges(trace, found.hops[-1].event),
        footprint=FootprintRecord(**resources.as_dict()) if resources is not None else None,
        transfer=TransferRecord(**moved.as_dict()) if moved is not None else None,
        partial=build_partial(trace),
    )


def _build_graph_edges(trace: Trace, work: int) -> GraphEdgesRecord | None:
    found = find_graph_neighbours(trace, work)
    if not len(found):
        return None
    sides = (
        [
            HopRecord(
                role=HopRole.GPU,
                name=each.name,
                start_ns=each.start,
                duration_ns=each.duration,
                self_ns=each.self_duration,
            )
            for each in map(trace.event, events.tolist())
        ]
        for events in (found.waits_for, found.waited_for_by)
    )
    return GraphEdgesRecord(waits_for=next(sides), waited_for_by=next(sides))


def name_of(trace: Trace, event: int) -> str | None:
    return trace.event(event).name if event >= 0 else None


def _find_missing_reason(trace: Trace, found: Chain) -> str:
    """Say why a chain lacks its launch or its GPU work, "" if it is known."""
    if found.join_method is JoinMethod.NO_LAUNCH:
        return found.note
    return "" if found.work or trace.links.gpu_events else _NO_GPU_WORK


def _build_gpu_work(trace: Trace, found: Chain) -> GpuWorkRecord:
    return GpuWorkRecord(
        count=len(found.work),
        total_ns=found.work.total,
        heaviest=[
            HeaviestWorkRecord(
                name=trace.event(piece.event).name,
                duration_ns=piece.duration,
                share=piece.share,
            )
            for piece in found.work[:MAX_LISTED_WORK]
        ],
    )
