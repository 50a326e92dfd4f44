"""Scenarios that take launches off the CPU: a CUDA graph, a fused optimizer."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.critical_path.dependency_graph import EdgeKind
from torchprof_tui.analysis.critical_path.segments import SegmentKind
from torchprof_tui.analysis.what_if.rank_changes import RankChanges
from torchprof_tui.analysis.what_if.selections import select_inside
from torchprof_tui.analysis.what_if.step_model import RankModel
from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.trace.model.event_kind import Kind

GRAPH_LAUNCH = 10_000
"""ns on the CPU to launch a graph."""

GRAPH_GAP = 450
"""ns between two kernels of a graph that follow each other on a stream: 460 on average in the sample generate_graph,
100 and 280 in two recordings of cuda_graph_replay, 0 in vLLM's and SGLang's decoding."""

OPTIMIZER_TRAFFIC = 0.5
"""Time of a fused Adam by that of one that reads and writes all tensors once for each of its operations."""

COLD_PIECE = 1_000_000
"""ns from which CPU time inside one op or call may be a cold call: it loads, creates or allocates something once."""

COLD_RATIO = 10
"""Times the median that a cold call takes at least: calls that are all slow wait for the GPU."""

_IN_OPS = (SegmentKind.DISPATCH, SegmentKind.LAUNCH, SegmentKind.RUNTIME)
OFF_CPU = (*_IN_OPS, SegmentKind.HOST, SegmentKind.PROFILER)


def launch_as_graph(changes: RankChanges) -> bool:
    """Let one launch stand for all between two blocking calls. Cold calls stay: they come before a capture."""
    rank = changes.rank
    inside = find_launch_region(rank) & np.isin(rank.pieces.kind, OFF_CPU) & ~_select_cold_calls(rank)
    if not inside.any():
        return False
    changes.scale(inside, np.zeros(0, np.bool_), 0.0)
    blocking = rank.pieces.kind == SegmentKind.BLOCKING
    for lane in np.unique(rank.pieces.lane[inside]).tolist():
        if lane == rank.window.lane:
            own = np.flatnonzero(rank.pieces.lane == lane)
            stretch = np.cumsum(blocking[own])
            launched = own[inside[own]]
            _, first = np.unique(stretch[inside[own]], return_index=True)
            np.add.at(changes.added, rank.pieces.edge[launched[first]], GRAPH_LAUNCH)
    cap_gaps(changes, rank.is_own, GRAPH_GAP)
    return True


def _select_cold_calls(rank: RankModel) -> Bool:
    """Select the pieces of ops and calls that take far longer than most: bool[p]."""
    pieces = rank.pieces
    in_ops = np.isin(pieces.kind, _IN_OPS)
    if not in_ops.any():
        return in_ops
    return in_ops & (pieces.time >= max(COLD_PIECE, COLD_RATIO * float(np.median(pieces.time[in_ops]))))


def cap_gaps(changes: RankChanges, work: Bool, gap: int) -> None:
    """Let this work follow other work of its stream after `gap` ns."""
    graph = changes.rank.graph
    is_start = np.zeros(len(graph.time), np.bool_)
    is_start[graph.work_start[work]] = True
    gaps = np.isin(graph.edge_kind, (EdgeKind.STREAM, EdgeKind.GRAPH)) & is_start[graph.target]
    changes.cap[gaps] = np.minimum(changes.cap[gaps], gap)


def fuse_optimizer(changes: RankChanges) -> bool:
    """Let one launch update all parameters."""
    rank = changes.rank
    pieces, work = select_optimizer(rank)
    inside = pieces & np.isin(rank.pieces.kind, OFF_CPU)
    if not inside.any():
        return False
    changes.scale(inside, work, 0.0)
    changes.work_factor[work] = OPTIMIZER_TRAFFIC
    cap_gaps(changes, work, 0)
    np.add.at(changes.added, rank.pieces.edge[np.flatnonzero(inside)[:1]], GRAPH_LAUNCH)
    return True


def select_optimizer(rank: RankModel) -> tuple[Bool, Bool]:
    """Select what is inside `Optimizer.step`: pieces of CPU time bool[p], and the work launched there bool[m]."""
    numbers = [number for number, name in enumerate(rank.trace.names) if name.startswith("Optimizer.step#")]
    rows = np.flatnonzero(np.isin(rank.trace.name, numbers))
    return select_inside(rank, rows)


def find_launch_region(rank: RankModel) -> Bool:
    """Select the pieces from the op of a thread's first launch in the step to its last launch: bool[p]."""
    trace, work = rank.trace, rank.window.work
    region = np.zeros(len(rank.pieces), np.bool_)
    launches = np.unique(work.launch[rank.is_own & work.is_launched])
    for lane in np.unique(trace.lane[launches]).tolist():
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
