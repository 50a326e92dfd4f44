"""Apply scenarios to the delays of a step's graph.

What is merged follows from the ops and the classes of their kernels alone (benchmarks/what_if.md compares the number
of launches with that of compiled programs).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchprof_tui.analysis.critical_path.dependency_graph import EdgeKind
from torchprof_tui.analysis.critical_path.segments import SegmentKind
from torchprof_tui.analysis.kernel.names.copies import is_within_device
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.analysis.what_if.back_to_back import GONE, RankChanges
from torchprof_tui.analysis.what_if.scenario import OVERLAPPED, Scenario, ScenarioError, ScenarioKind
from torchprof_tui.analysis.what_if.step_model import RankModel, StepModel
from torchprof_tui.trace.core.arrays import F64, I32, I64, Bool, is_in, sorted_unique
from torchprof_tui.trace.model.event_kind import Kind


def select_inside(rank: RankModel, rows: I64) -> tuple[Bool, Bool]:
    """Select what happens inside events of threads: pieces of CPU time bool[p], and the work launched there bool[m]."""
    trace, work = rank.trace, rank.window.work
    pieces, launched = np.zeros(len(rank.pieces), np.bool_), np.zeros(len(work), np.bool_)
    launch_lane = np.where(work.is_launched, trace.lane[work.launch], -1)
    for lane in sorted_unique(trace.lane[rows]).tolist():
        own = rows[trace.lane[rows] == lane]
        inside = union(trace.start[own], trace.start[own] + trace.duration[own])
        pieces |= (rank.pieces.lane == lane) & inside.contains(rank.pieces.start)
        launched |= (launch_lane == lane) & inside.contains(work.launch_start)
    return pieces, launched


def find_late_rank(model: StepModel) -> int:
    """Find the rank whose late arrivals delay the collectives most: its index. Raises ScenarioError for one rank."""
    if len(model.ranks) < 2 or not len(model.arrival_edges):
        raise ScenarioError(
            "'late-rank=0' changes nothing: it takes the traces of several ranks with collectives in the step"
        )
    late = np.zeros(len(model.ranks), np.int64)
    np.add.at(late, model.last_rank, model.late_by)
    return int(late.argmax())


GRAPH_LAUNCH = 10_000  # ns on the CPU to launch a graph

GRAPH_GAP = 450
"""ns between two kernels of a graph that follow each other on a stream: 460 on average in the sample generate_graph,
100 and 280 in two recordings of cuda_graph_replay, 0 in vLLM's and SGLang's decoding."""

OPTIMIZER_TRAFFIC = 0.5
"""Time of a fused Adam by that of one that reads and writes all tensors once for each of its operations."""

COLD_PIECE = 1_000_000
"""ns from which CPU time inside one op or call may be a cold call: it loads, creates or allocates something once."""

COLD_RATIO = 10  # times the median that a cold call takes at least: calls that are all slow wait for the GPU

_IN_OPS = (SegmentKind.DISPATCH, SegmentKind.LAUNCH, SegmentKind.RUNTIME)
OFF_CPU = (*_IN_OPS, SegmentKind.HOST, SegmentKind.PROFILER)


def launch_as_graph(changes: RankChanges, rows: I64 | None = None) -> bool:
    """Let one launch stand for all between two blocking calls, or for all inside these events of the rank.

    Cold calls stay: they come before a capture.
    """
    rank, pieces = changes.rank, changes.rank.pieces
    is_cold = is_in(pieces.kind, _IN_OPS)
    if is_cold.any():
        is_cold &= pieces.time >= max(COLD_PIECE, COLD_RATIO * float(np.median(pieces.time[is_cold])))
    inside = find_launch_region(rank) & is_in(pieces.kind, OFF_CPU) & ~is_cold
    launched = rank.is_own
    if rows is not None:
        own_pieces, work = select_inside(rank, rows)
        inside, launched = inside & own_pieces, launched & work
    if not inside.any():
        return False
    changes.scale(inside, np.zeros(0, np.bool_), 0.0)
    own = np.flatnonzero(pieces.lane == rank.window.lane)
    stretch = np.cumsum(pieces.kind[own] == SegmentKind.BLOCKING)
    kept = own[inside[own]]
    _, first = np.unique(stretch[inside[own]], return_index=True)
    np.add.at(changes.added, pieces.edge[kept[first]], GRAPH_LAUNCH)
    cap_gaps(changes, launched, GRAPH_GAP)
    return True


def cap_gaps(changes: RankChanges, work: Bool, gap: int) -> None:
    """Let this work follow other work of its stream after `gap` ns."""
    graph = changes.rank.graph
    is_start = np.zeros(len(graph.time), np.bool_)
    is_start[graph.work_start[work]] = True
    gaps = is_in(graph.edge_kind, (EdgeKind.STREAM, EdgeKind.GRAPH)) & is_start[graph.target]
    changes.cap[gaps] = np.minimum(changes.cap[gaps], gap)


def fuse_optimizer(changes: RankChanges) -> bool:
    """Let one launch update all parameters."""
    rank = changes.rank
    pieces, work = select_optimizer(rank)
    inside = pieces & is_in(rank.pieces.kind, OFF_CPU)
    if not inside.any():
        return False
    changes.scale(inside, work, 0.0)
    changes.work_factor[work] = OPTIMIZER_TRAFFIC
    cap_gaps(changes, work, 0)
    np.add.at(changes.added, rank.pieces.edge[np.flatnonzero(inside)[:1]], GRAPH_LAUNCH)
    return True


def select_optimizer(rank: RankModel) -> tuple[Bool, Bool]:
    """Select what is inside `Optimizer.step`: pieces of CPU time bool[p], and the work launched there bool[m]."""
    is_step = match_names(rank.trace, lambda name: name.startswith("Optimizer.step#"))
    return select_inside(rank, np.flatnonzero(is_step))


def find_launch_region(rank: RankModel) -> Bool:
    """Select the pieces from the op of a thread's first launch in the step to its last launch: bool[p]."""
    trace, work = rank.trace, rank.window.work
    region = np.zeros(len(rank.pieces), np.bool_)
    launches = sorted_unique(work.launch[rank.is_own & work.is_launched])
    for lane in sorted_unique(trace.lane[launches]).tolist():
        calls = launches[trace.lane[launches] == lane]
        first, last = (_find_outer_op(rank, int(calls[index])) for index in (0, -1))
        begin, end = trace.start[first], trace.start[last] + trace.duration[last]
        region |= (rank.pieces.lane == lane) & (rank.pieces.start >= begin) & (rank.pieces.start < end)
    return region


def _find_outer_op(rank: RankModel, event: int) -> int:
    """Find the outermost op around an event, without annotations and Python frames."""
    found, current = event, int(rank.trace.parent[event])
    while current >= 0:
        if rank.trace.kind[current] == Kind.OP:
            found = current
        current = int(rank.trace.parent[current])
    return found


EXTERN = (
    KernelClass.GEMM,
    KernelClass.ATTENTION,
    KernelClass.CONV,
    KernelClass.COLLECTIVE,
    KernelClass.OPTIMIZER,
    KernelClass.TRITON,
)
"""Classes whose kernels compiled code calls as they are. The rest of ATen is computed by generated kernels."""

FUSED_CALL = 4.5
"""CPU time of compiled code for each kernel that Inductor generated, its launch included, by the median launch call of
the recording, which takes longer on a slower CPU too. This and the next two were measured in the compiled variants of
13 pairs with torch 2.11 (benchmarks/what_if.md)."""

EXTERN_CALL = 2.6  # CPU time of generated Python for each op that compiled code calls, by the median launch call
EXTERN_DISPATCH = 0.8  # dispatch of such an op by that of the same op in the model: it is given its output

COMPILED_REGION = 100_000
"""ns of guards and wrappers for each thread that runs compiled code, as measured in one recording with torch 2.11."""


def compile_step(changes: RankChanges, rows: I64 | None = None) -> bool:
    """Merge neighbouring small kernels, and leave of the dispatch what compiled code pays for each launch.

    A group of kernels that can be merged takes as long as its longest. A reduction that is split stays alone, in two
    kernels. The op that launches another kernel is called as before, by generated Python instead of that of the
    modules. The optimizer is left as it is. `rows`: only what these events of the rank call and launch.
    """
    rank = changes.rank
    optimizer_pieces, optimizer_work = select_optimizer(rank)
    inside = find_launch_region(rank) & ~optimizer_pieces & is_in(rank.pieces.kind, OFF_CPU)
    model_work = rank.is_own & ~optimizer_work & rank.window.work.is_launched
    if rows is not None:
        pieces, launched = select_inside(rank, rows)
        inside, model_work = inside & pieces, model_work & launched
    if not inside.any() or not model_work.any():
        return False
    fusible = model_work & select_fusible(rank)
    cleared = fusible & (rank.trace.kind[rank.window.work.event] == Kind.MEMSET)  # for results of kernels that are gone
    changes.work_factor[cleared] = 0.0
    model_work, fusible = model_work & ~cleared, fusible & ~cleared
    split = fusible & select_split_reductions(rank)
    head = _merge_groups(changes, fusible, split, model_work)
    cap_gaps(changes, fusible & ~head, 0)
    changes.scale(inside, np.zeros(0, np.bool_), 0.0)
    _keep_launches(changes, inside, model_work & ~fusible, head, split)
    return True


def select_fusible(rank: RankModel) -> Bool:
    """Select the work that Inductor does in its own kernels: bool[m].

    All that an op launches stays as it is where one kernel of it does, as a memset before a matrix product does. Ops
    outside of ATen stay, those that only sort or select, and copies from and to the host.
    """
    trace, work = rank.trace, rank.window.work
    op = np.where(work.is_launched, trace.parent[work.launch], -1)
    is_aten = (op >= 0) & match_names(trace, lambda name: name.startswith("aten::"), trace.name[op])
    is_within = match_names(trace, is_within_device, trace.name[work.event])
    crosses = (trace.kind[work.event] == Kind.COPY) & ~is_within
    sorts = is_in(rank.work_class, (KernelClass.SORT, KernelClass.MEMORY))
    only_sorts = ~is_in(op, op[~sorts]) & is_in(op, op[rank.work_class == KernelClass.SORT])
    stays = is_in(rank.work_class, EXTERN) | ~is_aten | only_sorts | crosses
    fusible: Bool = ~is_in(op, op[stays])
    return fusible


def select_split_reductions(rank: RankModel) -> Bool:
    """Select reductions over the rows of a batch, as of statistics and of gradients of parameters: bool[m].

    Inductor computes partial results in one kernel and adds them in another, and what uses the result comes after both.
    They are the reductions of a backward pass for which memory is cleared, because several blocks compute one result,
    and in training the first of several normalization kernels of one op: of batch normalization the statistics, in a
    backward pass what is reduced over another dimension than the rest.
    """
    work = rank.window.work
    is_backward: Bool = work.is_launched & (rank.trace.lane[work.launch] != rank.window.lane)
    if not is_backward.any():
        return is_backward
    op = rank.trace.parent[work.launch]
    clears = op[rank.work_class == KernelClass.MEMORY]
    split: Bool = is_backward & (rank.work_class == KernelClass.REDUCTION) & is_in(op, clears)
    norms = np.flatnonzero(work.is_launched & (rank.work_class == KernelClass.NORM) & (op >= 0))
    norms = norms[np.argsort(work.start[norms], kind="stable")]
    _, first, count = np.unique(op[norms], return_index=True, return_counts=True)
    split[norms[first[count > 1]]] = True
    return split


def _merge_groups(changes: RankChanges, fusible: Bool, split: Bool, model_work: Bool) -> Bool:
    """Give each run of fusible work on a stream the time of its longest; return the first of each: bool[m].

    `split`: work that is a run of its own.
    """
    work = changes.rank.window.work
    order = np.lexsort((work.start, work.lane))
    order = order[model_work[order]]
    can = fusible[order]
    starts = np.ones(len(order), np.bool_)
    is_alone, lane = split[order], work.lane[order]
    starts[1:] = ~(can[1:] & can[:-1] & (lane[1:] == lane[:-1])) | is_alone[1:] | is_alone[:-1]
    group = np.cumsum(starts) - 1
    time = (work.end - work.start)[order]
    longest = np.zeros(int(group[-1]) + 1, np.int64)
    np.maximum.at(longest, group, time)
    total = np.bincount(group, time)
    share = np.where(can, (longest / np.maximum(total, 1))[group], 1.0)
    changes.work_factor[order] *= share
    head = np.zeros(len(work), np.bool_)
    head[order[starts & can]] = True
    return head


def _keep_launches(changes: RankChanges, inside: Bool, extern: Bool, head: Bool, split: Bool) -> None:
    """Leave the dispatch of extern kernels, and a launch for each merged group, two for each split reduction."""
    rank = changes.rank
    pieces, trace = rank.pieces, rank.trace
    launch = rank.window.work.launch
    calls = launch[extern]
    callers = trace.parent[calls]
    kept = inside & (is_in(pieces.event, calls) | is_in(pieces.event, callers[callers >= 0]))
    changes.piece_factor[kept] = EXTERN_DISPATCH
    own = np.flatnonzero(inside)
    _, first = np.unique(pieces.lane[own], return_index=True)
    np.add.at(changes.added, pieces.edge[own[first]], COMPILED_REGION)
    unit = float(np.median(trace.duration[launch[extern | head]]))
    for chosen, takes in ((extern, EXTERN_CALL), (head, FUSED_CALL), (split, FUSED_CALL)):
        merged = np.flatnonzero(inside & is_in(pieces.event, launch[chosen]))
        _, first = np.unique(pieces.event[merged], return_index=True)
        np.add.at(changes.added, pieces.edge[merged[first]], round(takes * unit))


def apply_scenarios(
    model: StepModel, scenarios: Sequence[Scenario], shares: Sequence[F64] = ()
) -> tuple[list[RankChanges], I64, int | None]:
    """Apply scenarios: what they change, the delays int64[e], and the index of a rank that no other waits for.

    `shares`: of each rank what is left of its pieces before, float64[p]; () for all. Raises ScenarioError for a
    scenario that changes nothing in this step.
    """
    changes = [RankChanges(rank) for rank in model.ranks]
    for each, share in zip(changes, shares, strict=False):
        each.piece_factor *= share
    without = None
    for scenario in scenarios:
        if scenario.kind is ScenarioKind.LATE_RANK:
            without = find_late_rank(model)
            continue
        if not sum([_change_rank(each, scenario) for each in changes]):
            raise ScenarioError(f"{scenario.text!r} changes nothing: {_explain(scenario, model)}")
    delay: I64 = model.delay.copy()
    for each, edges in zip(changes, model.edge_of, strict=True):
        delay[edges] = each.compute_delay(model.delay[edges])
    for index, each in enumerate(changes):
        own = np.flatnonzero(model.transfer_rank == index)
        edges = model.transfer_edges[own]
        delay[edges] = np.rint(model.delay[edges] * each.work_factor[model.transfer_work[own]]).astype(np.int64)
    if without is not None:
        delay[model.arrival_edges[model.arrival_rank == without]] = GONE
    return changes, delay, without


def _change_rank(changes: RankChanges, scenario: Scenario) -> bool:
    """Apply one scenario to one rank; return whether it changes anything there."""
    rank, kind, factor = changes.rank, scenario.kind, scenario.factor
    rows = _find_own_rows(rank, scenario.rows) if scenario.rows else None
    if rows is not None and not len(rows):
        return False
    if kind is ScenarioKind.OPTIMIZER:
        return fuse_optimizer(changes)
    if kind is ScenarioKind.LAUNCH:
        return launch_as_graph(changes, rows)
    if kind is ScenarioKind.COMPILE:
        return compile_step(changes, rows)
    if kind is ScenarioKind.SYNC:
        return _drop_blocking(changes, rows, scenario.copies_left)
    if kind is ScenarioKind.COLLECTIVES and scenario.subject == OVERLAPPED:
        # nothing but other collectives waits for a collective
        graph, collective = rank.graph, rank.trace.kind[rank.window.work.event] == Kind.COLLECTIVE
        is_end, is_start = (np.zeros(len(graph.time), np.bool_) for _ in range(2))
        is_end[graph.work_end[collective]] = True
        is_start[graph.work_start[collective]] = True
        changes.gone |= is_end[graph.source] & ~is_start[graph.target]
        return bool(collective.any())
    pieces, work = _select(rank, scenario)
    if kind is ScenarioKind.EVENT and not factor and rows is not None:  # what is gone waits for nothing
        waits = is_in(rank.graph.edge_kind, (EdgeKind.SYNC, EdgeKind.SYNC_BY_ORDER))
        changes.gone |= waits & _is_inside(rank, rank.graph.event, rows)
        pieces |= _select_calling_code(rank, rows)
    return changes.scale(pieces, work, factor)


def _select(rank: RankModel, scenario: Scenario) -> tuple[Bool, Bool]:
    """Select the pieces of CPU time bool[p] and the work bool[m] that a scenario is about."""
    kind, subject = scenario.kind, scenario.subject
    pieces, work = np.zeros(len(rank.pieces), np.bool_), np.zeros(len(rank.work_class), np.bool_)
    event_kind = rank.trace.kind[rank.window.work.event]
    is_wait = rank.pieces.kind == SegmentKind.BLOCKING
    if kind is ScenarioKind.CLASS:
        work = rank.work_class == next(each for each in KernelClass if each.label == subject)
    elif kind is ScenarioKind.KERNEL:
        names = rank.trace.name[rank.window.work.event]
        work = match_names(rank.trace, lambda name: name == subject, names)
        if not work.any():
            work = match_names(rank.trace, lambda name: subject in name, names)
    elif kind is ScenarioKind.COPIES:
        work = is_in(event_kind, (Kind.COPY, Kind.MEMSET))
    elif kind is ScenarioKind.COLLECTIVES:
        work = event_kind == Kind.COLLECTIVE
    elif kind is ScenarioKind.DATALOADER:
        pieces = rank.pieces.kind == SegmentKind.INPUT
    elif kind is ScenarioKind.CPU:
        pieces = ~is_wait
    elif kind is ScenarioKind.GPU:
        work = ~work
    elif kind is ScenarioKind.RANK and rank.number == int(subject):
        pieces, work = ~is_wait, ~work
    elif kind is ScenarioKind.OP:
        trace, window = rank.trace, rank.window
        ops = np.flatnonzero(match_names(trace, lambda name: name == subject) & (trace.kind != Kind.KERNEL))
        ops = ops[(trace.start[ops] >= window.start) & (trace.start[ops] < window.end)]
        pieces, work = select_inside(rank, ops)
    elif kind is ScenarioKind.EVENT:
        chosen = np.array([int(subject)], np.int64).tobytes() if subject else scenario.rows
        rows = _find_own_rows(rank, chosen)
        pieces, work = select_inside(rank, rows)
        work |= is_in(rank.window.work.event, rows)
        pieces |= _select_between(rank, np.array(scenario.gaps, np.int64).reshape(-1, 2))
    return pieces, work


def _select_between(rank: RankModel, gaps: I64) -> Bool:
    """Select the pieces of CPU time from the end of the first event to the start of the second: bool[p].

    `gaps`: rows, int64[k, 2], of one thread each; those of other ranks are left out.
    """
    trace, pieces = rank.trace, rank.pieces
    chosen = np.zeros(len(pieces), np.bool_)
    gaps = gaps - rank.first_row
    first, last = gaps[((gaps >= 0) & (gaps < len(trace))).all(axis=1)].T
    for lane in sorted_unique(trace.lane[first]).tolist():
        own = trace.lane[first] == lane
        ends = trace.start[first[own]] + trace.duration[first[own]]
        between = union(ends, np.maximum(trace.start[last[own]], ends))
        chosen |= (pieces.lane == lane) & between.contains(pieces.start)
    return chosen


CALLING_CODE = 100_000  # ns of a thread's own code between two calls that can be there to make the second one
_STRUCTURE = (Kind.OP, Kind.RUNTIME, Kind.STEP, Kind.ANNOTATION)


def _select_calling_code(rank: RankModel, rows: I64) -> Bool:
    """Select the pieces between two events that follow each other on a thread, as the code of a loop does: bool[p].

    Nothing else begins or ends between them, so that what the thread did there was to call the second one.
    """
    trace, pieces = rank.trace, rank.pieces
    chosen = np.zeros(len(pieces), np.bool_)
    for lane in sorted_unique(pieces.lane).tolist():
        own = rows[trace.lane[rows] == lane]
        inside = union(trace.start[own], trace.start[own] + trace.duration[own])
        if len(inside) < 2:
            continue
        of_lane = slice(trace.lanes[lane].first, trace.lanes[lane].last)
        near = is_in(trace.kind[of_lane], _STRUCTURE) & (trace.start[of_lane] <= inside.ends[-1])
        start, end = trace.start[of_lane][near], trace.start[of_lane][near] + trace.duration[of_lane][near]
        kept = ~inside.contains(start) & (end >= inside.starts[0])
        start, end = start[kept], np.sort(end[kept])
        begin, until = inside.ends[:-1], inside.starts[1:]
        others = start.searchsorted(until, "left") - start.searchsorted(begin, "left")
        others += end.searchsorted(until, "right") - end.searchsorted(begin, "right")
        between = np.flatnonzero((others == 0) & (until - begin <= CALLING_CODE))
        if len(between):
            chosen |= (pieces.lane == lane) & union(begin[between], until[between]).contains(pieces.start)
    return chosen


def _find_own_rows(rank: RankModel, rows: bytes) -> I64:
    """Find which rows of the merged trace are events of this rank, as rows of its own trace: int64[k].

    Left out are those that are over well before the step or begin well after it.
    """
    own: I64 = np.frombuffer(rows, np.int64) - rank.first_row
    own = own[(own >= 0) & (own < len(rank.trace))]
    start, window, work = rank.trace.start[own], rank.window, rank.window.work
    launched = work.launch_start[work.is_launched]  # some before the step
    begin = min(int(launched.min(initial=window.start)), int(work.start.min(initial=window.start))) - CALLING_CODE
    until = max(window.end, int(work.end.max(initial=window.end))) + CALLING_CODE
    return own[(start <= until) & (start + rank.trace.duration[own] >= begin)]


def _drop_blocking(changes: RankChanges, rows: I64 | None = None, copies_left: float = 1.0) -> bool:
    """Let no call wait for the GPU, or none inside these events of the rank; a copy that blocks is a launch then.

    `copies_left`: what is left of the time of the copies that are launched there.
    """
    rank, graph = changes.rank, changes.rank.graph
    gone = is_in(graph.edge_kind, (EdgeKind.SYNC, EdgeKind.SYNC_BY_ORDER))
    waits: Bool = rank.pieces.kind == SegmentKind.BLOCKING
    if rows is not None:
        inside, launched = select_inside(rank, rows)
        changes.work_factor[launched & (rank.trace.kind[rank.window.work.event] == Kind.COPY)] *= copies_left
        waits = inside & is_in(rank.pieces.kind, (SegmentKind.BLOCKING, SegmentKind.LAUNCH, SegmentKind.RUNTIME))
        gone &= _is_inside(rank, graph.event, rows)
    changes.gone |= gone
    changes.scale(waits, np.zeros(0, np.bool_), 0.0)
    return bool(gone.any() or waits.any())


def _is_inside(rank: RankModel, events: I32, rows: I64) -> Bool:
    """Select the events, int32[k] or -1, that are or begin inside other events of their thread: bool[k]."""
    trace, found = rank.trace, np.zeros(len(events), np.bool_)
    known = np.flatnonzero(events >= 0)
    lanes, times = trace.lane[events[known]], trace.start[events[known]]
    for lane in sorted_unique(trace.lane[rows]).tolist():
        own = rows[trace.lane[rows] == lane]
        inside = union(trace.start[own], trace.start[own] + np.maximum(trace.duration[own], 1))
        found[known] |= (lanes == lane) & inside.contains(times)
    return found


def _explain(scenario: Scenario, model: StepModel) -> str:
    """Say why a scenario changes nothing."""
    subject = scenario.subject
    known = ", ".join(str(rank.number) for rank in model.ranks if rank.number is not None)
    reasons = {
        ScenarioKind.CLASS: f"no {subject} kernels in this step",
        ScenarioKind.OP: f"no op {subject!r} in this step",
        ScenarioKind.KERNEL: f"no GPU work in this step is called {subject!r} or contains it",
        ScenarioKind.EVENT: f"event {subject} is not part of this step",
        ScenarioKind.SYNC: "no blocking call in this step",
        ScenarioKind.DATALOADER: "no data loader in this step",
        ScenarioKind.COLLECTIVES: "no collectives in this step",
        ScenarioKind.COPIES: "no copies in this step",
        ScenarioKind.OPTIMIZER: "no Optimizer.step in this step",
        ScenarioKind.RANK: f"no rank {subject}; {f'ranks: {known}' if known else 'the trace names no rank'}",
    }
    return reasons.get(scenario.kind, "no GPU work is launched in this step")
