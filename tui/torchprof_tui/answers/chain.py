"""The answer about one event: the calls around it, its launch, its GPU work, the resources of its kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import field

from torchprof_tui.analysis.dispatch.chain import Chain as FoundChain
from torchprof_tui.analysis.dispatch.chain import Hop as FoundHop
from torchprof_tui.analysis.dispatch.chain import HopRole, JoinMethod
from torchprof_tui.analysis.dispatch.source_line import SourceLine
from torchprof_tui.analysis.dispatch.step_rows import TIMES, StepRows
from torchprof_tui.analysis.dispatch.step_rows import StepRows as FoundRows
from torchprof_tui.analysis.graphs.captured_ops import CapturedChain, OpSource, find_captured_chain
from torchprof_tui.analysis.kernel.footprint import compute_footprint
from torchprof_tui.analysis.kernel.memory_transfer import measure_transfer
from torchprof_tui.answers import html
from torchprof_tui.answers.losses import Problem, build_losses
from torchprof_tui.answers.record import Answer, Record, about, fill
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.navigation import find_graph_neighbours


class StepRow(Record, frozen=True, kw_only=True):
    """The event in one step, and its chain; null where the chain has no such part."""

    step: Annotated[int, about("number of the step")]
    step_name: Annotated[str, about("as recorded: ProfilerStep#3")]
    event: Annotated[int, about("number of the event in the trace, from 0")]
    calls: Annotated[int, about("events of the name in the step; the one at the same position is compared")]
    annotation: Annotated[str, about("the innermost one around the chain's ops, else the step")]
    first_op: Annotated[str, about("op that begins first inside the annotation; empty for none")]
    first_op_gap_ns: Annotated[int | None, about("from the start of the annotation to that op")]
    op_gap_ns: Annotated[int | None, about("the same to the outermost op of the chain")]
    dispatch_ns: Annotated[
        int | None, about("from the start of the chain's outermost op to that of the launching call")
    ]
    launch_latency_ns: Annotated[int | None, about("from the start of the launching call to the start on the GPU")]
    queue_delay_ns: Annotated[
        int | None, about("from the end of that call to the start on the GPU; negative if it started before")
    ]
    kernel: Annotated[str, about("the longest GPU work of the chain; empty for none")]
    kernel_time_ns: Annotated[int | None, about("its duration")]
    duration_ns: Annotated[int, about("of the event itself")]
    inputs: Annotated[str, about("known of the work's size: kind of step, grid; input shapes where the time varies")]
    outliers: Annotated[list[str], about("fields of this row that are far from the median of all steps")]


class Spread(Record, frozen=True, kw_only=True):
    """How a time is distributed over the steps."""

    of: Annotated[str, about("the field of the rows")]
    count: Annotated[int, about("steps that have it")]
    mean_ns: Annotated[float, about("mean")]
    median_ns: Annotated[float, about("median: the typical value")]
    p5_ns: Annotated[float, about("5 % are not longer")]
    p95_ns: Annotated[float, about("95 % are not longer")]


class ChainSteps(Record, frozen=True, kw_only=True):
    """One row per step for an event and its chain."""

    rows: Annotated[list[StepRow], about("by time")]
    spread: Annotated[list[Spread], about("of each time that a row has")]
    missing: Annotated[list[int], about("numbers of the steps without such an event")]
    explanation: Annotated[str, about("what the kernel's time varies with; empty where it hardly varies")]


def build_chain_steps(found: FoundRows, first: int = 0) -> ChainSteps:
    """Build the rows of an event over the steps. `first`: number of the first event of its rank."""
    rows = []
    for index, row in enumerate(found.rows):
        outliers = [f"{name}_ns" for name in TIMES if (index, name) in found.outliers]
        number, name, event = row.step.number, row.step.name, row.event + first
        rows.append(fill(StepRow, row, step=number, step_name=name, event=event, outliers=outliers))
    return ChainSteps(
        rows=rows,
        spread=[fill(Spread, found.statistics[name], of=f"{name}_ns") for name in TIMES if name in found.statistics],
        missing=[step.number for step in found.missing],
        explanation=found.explanation,
    )


class Hop(Record, frozen=True, kw_only=True):
    """One event of a chain."""

    role: Annotated[HopRole, about("what it is in the chain")]
    name: Annotated[str, about("as recorded")]
    start_ns: Annotated[int, about("from the trace's first event")]
    duration_ns: Annotated[int, about("with what it calls")]
    self_ns: Annotated[int, about("without what it calls")]
    event: Annotated[int | None, about("number of the event in the trace, from 0; not in a capture")] = None


class LineSource(Record, frozen=True, kw_only=True):
    """What names the code behind an event: a Python frame, or the annotation or module that is known instead."""

    kind: Annotated[str, about("frame, annotation or module")]
    text: Annotated[str, about("to show: train.py(42): forward")]
    function: Annotated[str, about("function, annotation or module")]
    from_forward: Annotated[bool, about("it belongs to the forward op of a backward event")]
    library: Annotated[str | None, about("innermost frame of an installed package on the way to the event")]


class HeaviestWork(Record, frozen=True, kw_only=True):
    """One piece of GPU work that the event launched."""

    name: Annotated[str, about("as recorded")]
    event: Annotated[int, about("number of the event in the trace, from 0")]
    start_ns: Annotated[int, about("from the trace's first event")]
    duration_ns: Annotated[int, about("on the GPU")]
    share: Annotated[float, about("of all GPU time that the event launched")]


class GpuWork(Record, frozen=True, kw_only=True):
    """All GPU work that the event and what it calls launched."""

    count: Annotated[int, about("kernels, copies and fills")]
    total_ns: Annotated[int, about("sum of their durations; work that overlaps counts twice")]
    heaviest: Annotated[list[HeaviestWork], about("the longest, at most 20")]


class BlockLimits(Record, frozen=True, kw_only=True):
    """Blocks that fit on one multiprocessor by each resource; null if unknown."""

    warps: Annotated[int | None, about("by the number of warps")]
    registers: Annotated[int | None, about("by registers")]
    shared_memory: Annotated[int | None, about("by shared memory", "blocks")]
    blocks: Annotated[int | None, about("by the number of blocks")]


class LaunchChange(Record, frozen=True, kw_only=True):
    """The nearest change of one launch parameter that raises the occupancy."""

    change: Annotated[str, about("registers (per thread), shared_memory (bytes per block) or block (threads)")]
    before: Annotated[int, about("value now")] = field(name="from")
    to: Annotated[int, about("value that is needed")]
    active_blocks_per_sm: Annotated[int, about("blocks per multiprocessor with it")]
    theoretical_occupancy: Annotated[float, about("with it", "%")]


class DecodedName(Record, frozen=True, kw_only=True):
    """What the kernel's name says; null or empty where it says nothing."""

    kernel_class: Annotated[str, about("kind of work: gemm, attention, elementwise, …")]
    known: Annotated[bool, about("the form of the name is known")]
    family: Annotated[str, about("generator of names of this form")]
    library: Annotated[str | None, about("library that has the kernel")]
    arch: Annotated[str | None, about("architecture that it was built for: sm_80, gfx942")]
    dtypes: Annotated[list[str], about("data types, inputs first")]
    tensor_core: Annotated[bool | None, about("it uses tensor cores (on AMD: matrix cores)")]
    tile: Annotated[list[int] | None, about("M, N and perhaps K of one block")]
    stages: Annotated[int | None, about("of the shared memory pipeline")]
    layout: Annotated[str | None, about("of A and B, or of a tensor: tn, nhwc")]
    fused: Annotated[list[str], about("operations of a fused kernel")]
    epilogue: Annotated[str | None, about("what follows the matrix product in the same kernel")]
    direction: Annotated[str | None, about("forward or backward; for copies: host to device, …")]
    display: Annotated[str, about("a few characters for a bar")]
    summary: Annotated[str, about("one sentence")]
    details: Annotated[dict[str, str], about("what has no field of its own: label → value")]


class Footprint(Record, frozen=True, kw_only=True):
    """What one kernel takes of a multiprocessor (SM), and what limits its occupancy; null where unknown."""

    grid: Annotated[list[int] | None, about("blocks in x, y, z")]
    block: Annotated[list[int] | None, about("threads of a block in x, y, z")]
    threads_per_block: Annotated[int | None, about("threads of a block")]
    registers_per_thread: Annotated[int | None, about("registers of a thread")]
    shared_memory_bytes: Annotated[int | None, about("of a block, static and dynamic")]
    dynamic_shared_memory_bytes: Annotated[int | None, about("of a block, where the trace has only this part (ROCm)")]
    blocks_per_sm_limit: Annotated[BlockLimits, about("blocks per SM that each resource allows")]
    active_blocks_per_sm: Annotated[int | None, about("the least of these limits")]
    active_warps_per_sm: Annotated[int | None, about("warps of these blocks")]
    theoretical_occupancy: Annotated[float | None, about("active warps of those that an SM can hold", "%")]
    limited_by: Annotated[list[str], about("resources with the least limit, all that tie")]
    reported_occupancy: Annotated[float | None, about("as the profiler wrote it (est. achieved occupancy)", "%")]
    reported_active_blocks_per_sm: Annotated[int | None, about("as the profiler wrote it")]
    waves: Annotated[float | None, about("grid / (SMs × active blocks)")]
    tail_waste: Annotated[float | None, about("block slots of all started waves that stay empty", "share")]
    last_wave_fill: Annotated[float | None, about("block slots of the last wave that are used", "share")]
    idle_sms: Annotated[int | None, about("SMs that get no block")]
    concurrent_share: Annotated[float, about("of its duration, in which another kernel runs on the device")]
    launch_is_fixed: Annotated[bool, about("the library chooses the launch; the program cannot change it")]
    what_if: Annotated[list[LaunchChange], about("changes that raise the occupancy, smallest first")]
    kernel_class: Annotated[str, about("kind of work: gemm, attention, elementwise, …")]
    decoded: Annotated[DecodedName, about("what the name says")]
    notes: Annotated[list[str], about("what limits these numbers")]


class Transfer(Record, frozen=True, kw_only=True):
    """A copy or fill; null where unknown."""

    source: Annotated[str | None, about("host, device or peer device; null for a fill")]
    target: Annotated[str | None, about("host, device or peer device")]
    bytes: Annotated[int | None, about("moved")]
    bandwidth_gb_s: Annotated[float | None, about("bytes / duration; 10⁹ bytes per second")]
    reported_bandwidth_gb_s: Annotated[float | None, about("as the profiler wrote it")]
    pinned: Annotated[bool | None, about("the host memory is pinned; null if none is involved")]
    peak_gb_s: Annotated[float | None, about("what the link or the memory offers")]
    peak_of: Annotated[str | None, about("what that is the peak of")]
    share_of_peak: Annotated[float | None, about("bandwidth of the peak; a copy inside a device counts twice", "share")]


class Captured(Record, frozen=True, kw_only=True):
    """The op of a replayed kernel when its graph was captured; times from the capture's first event."""

    source: Annotated[OpSource, about("what the op comes from; none: see reason")]
    reason: Annotated[str | None, about("why the op is unknown; left out where it is known")] = None
    trace: Annotated[str | None, about("trace of the capture; null for the trace itself or none")]
    op: Annotated[str | None, about("op that launched the kernel")]
    annotation: Annotated[str | None, about("of the graph's node")]
    input_shapes: Annotated[list[Any], about("of the op; [] if not recorded")]
    input_types: Annotated[list[Any], about("of the op; [] if not recorded")]
    note: Annotated[str, about("why the replay may have had other shapes; empty for no doubt")]
    chain: Annotated[list[Hop], about("calls around the launch in the capture, outermost first")]
    line: Annotated[str | None, about("file:lineno of the captured code; null if not recorded")]
    line_source: Annotated[LineSource | None, about("what names that code")]


class GraphEdges(Record, frozen=True, kw_only=True):
    """Edges of a replayed graph at the chain's GPU work, within the same replay, on whatever streams."""

    waits_for: Annotated[list[Hop], about("GPU work that must end before it starts")]
    waited_for_by: Annotated[list[Hop], about("GPU work that starts only when it has ended")]


class Chain(Answer, frozen=True, kw_only=True, tag="torchprof-tui/chain/1"):
    """The dispatch chain through one event: the calls around it, its launch, the GPU work that it leads to."""

    event: Annotated[str, about("name that was asked for")]
    nth: Annotated[int, about("which event of that name in time, from 0")]
    of: Annotated[int, about("events of that name")]
    rank: Annotated[int | None, about("rank of the trace; only with several")] = None
    cannot_tell: Annotated[str | None, about("why the launch or the GPU work is not known; left out where it is")] = (
        None
    )
    chain: Annotated[list[Hop], about("outermost first, ending in the longest GPU work that it leads to")]
    joined_by: Annotated[JoinMethod, about("how the GPU work was joined to its launch")]
    note: Annotated[str, about("what is missing in the chain; empty for nothing")]
    launch_latency_ns: Annotated[int | None, about("from the start of the launching call to the start on the GPU")]
    queue_delay_ns: Annotated[
        int | None, about("from the end of that call to the start on the GPU; negative if it started before")
    ]
    held_up_ns: Annotated[int, about("part of the queue delay in which earlier work ran on the stream")]
    held_up_by: Annotated[str | None, about("the last of that work")]
    backward_of: Annotated[str | None, about("forward op that this is the backward of")]
    backward: Annotated[str | None, about("first backward node of this op")]
    line: Annotated[str | None, about("file:lineno of the code behind it; null if not recorded")]
    line_source: Annotated[LineSource | None, about("what names that code")]
    gpu_work: Annotated[GpuWork, about("all GPU work that the event leads to")]
    captured: Annotated[Captured | None, about("op of a replayed kernel; null for work of no graph")]
    graph_edges: Annotated[
        GraphEdges | None, about("edges of its graph; null where none were recorded, and for work of no graph")
    ]
    footprint: Annotated[Footprint | None, about("of the kernel at the end of the chain; null for none")]
    transfer: Annotated[Transfer | None, about("the copy or fill at the end of the chain; null for none")]
    steps: Annotated[ChainSteps | None, about("one row per step; only with --all-steps")] = None
    partial: Annotated[list[Problem], about("what was lost of the trace; [] for nothing")]

    def _repr_html_(self) -> str:
        rows = ((each.role, each.name, each.start_ns / 1000, each.duration_ns / 1000) for each in self.chain)
        latency = self.launch_latency_ns
        return html.build_block(
            f"chain of {self.event}",
            [
                self.cannot_tell or "",
                self.note,
                "" if latency is None else f"launch latency {html.format_number(latency / 1000)} µs",
                f"line: {self.line}" if self.line else "",
            ],
            html.build_table(("role", "name", "start µs", "duration µs"), rows),
        )


MAX_LISTED_WORK = 20  # pieces of GPU work that are listed; count and total cover all of them

_NO_GPU_WORK = "no GPU work was recorded in this trace"


@record
class ChainQuestion:
    """Which event was asked for: the `nth` of `count` events of a name."""

    event: str
    nth: int
    count: int


def build_chain(
    trace: Trace,
    found: FoundChain,
    line: SourceLine | None,
    asked: ChainQuestion | None = None,
    rank: Rank | None = None,
    steps: StepRows | None = None,
) -> Chain:
    """Build the answer about the chain of an event; times in ns, starts from the first event of the trace.

    `line`: the code behind it. `rank`: that of `trace` where there are several, whose events are numbered in the trace
    of all. `steps`: its rows over the steps, where they were asked for.
    """
    work = found.work[0].event if found.work else -1
    resources = compute_footprint(trace, work) if work >= 0 else None
    moved = measure_transfer(trace, work) if work >= 0 else None
    first = 0 if rank is None else rank.first
    asked = asked or find_place_in_time(trace, found.event)
    missing = "" if found.work or trace.links.gpu_events else _NO_GPU_WORK
    if found.join_method is JoinMethod.NO_LAUNCH:
        missing = found.note
    return fill(
        Chain,
        found,
        event=asked.event,
        nth=asked.nth,
        of=asked.count,
        rank=None if rank is None else rank.number,
        cannot_tell=missing or None,
        chain=_build_hops(found.hops, first),
        joined_by=found.join_method,
        held_up_by=_name_of(trace, found.held_up_by),
        backward_of=_name_of(trace, found.forward_op),
        backward=_name_of(trace, found.backward_node),
        line=line.location if line is not None else None,
        line_source=LineSource(**line.as_dict()) if line is not None else None,
        gpu_work=GpuWork(
            count=len(found.work),
            total_ns=found.work.total,
            heaviest=[
                fill(
                    HeaviestWork,
                    piece,
                    name=trace.event(piece.event).name,
                    event=piece.event + first,
                    start_ns=int(trace.start[piece.event]),
                )
                for piece in found.work[:MAX_LISTED_WORK]
            ],
        ),
        captured=_build_captured(find_captured_chain(trace, found.hops[-1].event)),
        graph_edges=_build_graph_edges(trace, found.hops[-1].event, first),
        footprint=msgspec.convert(resources.as_dict(), Footprint) if resources is not None else None,
        transfer=Transfer(**moved.as_dict()) if moved is not None else None,
        steps=None if steps is None else build_chain_steps(steps, first),
        partial=build_losses(trace),
    )


def _build_hops(hops: Sequence[FoundHop], first: int | None) -> list[Hop]:
    return [
        fill(Hop, hop, self_ns=hop.self_duration, event=None if first is None or hop.event < 0 else hop.event + first)
        for hop in hops
    ]


def _build_graph_edges(trace: Trace, work: int, first: int) -> GraphEdges | None:
    found = find_graph_neighbours(trace, work)
    if not len(found):
        return None
    sides = (
        [
            fill(Hop, each, role=HopRole.GPU, self_ns=each.self_duration, event=row + first)
            for row, each in ((row, trace.event(row)) for row in events.tolist())
        ]
        for events in (found.waits_for, found.waited_for_by)
    )
    return GraphEdges(waits_for=next(sides), waited_for_by=next(sides))


def _name_of(trace: Trace, event: int) -> str | None:
    return trace.event(event).name if event >= 0 else None


def _build_captured(captured: CapturedChain | str | None) -> Captured | None:
    """Build a captured chain, or the reason why there is none; None for work of no replay."""
    if captured is None:
        return None
    if isinstance(captured, str):
        unknown = dict.fromkeys(("trace", "op", "annotation", "line", "line_source"))
        return Captured(
            source=OpSource.NONE, reason=captured, input_shapes=[], input_types=[], note="", chain=[], **unknown
        )
    op, line = captured.op, captured.line
    return Captured(
        source=op.source,
        trace=None if op.trace is None else op.trace.label,
        op=op.op_name,
        annotation=op.annotation or None,
        input_shapes=captured.input_dims,
        input_types=captured.input_types,
        note=captured.doubt,
        chain=_build_hops(captured.hops, None),
        line=None if line is None else line.location,
        line_source=None if line is None else LineSource(**line.as_dict()),
    )


def find_place_in_time(trace: Trace, row: int) -> ChainQuestion:
    """Find which event of its name a row is, by time from 0."""
    rows = np.flatnonzero(trace.name == trace.name[row])
    rows = rows[np.argsort(trace.start[rows], kind="stable")]
    return ChainQuestion(trace.event(row).name, int(np.flatnonzero(rows == row)[0]), len(rows))
