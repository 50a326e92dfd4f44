"""Replay a step several times in a row: how long it takes when the next one follows at once.

A step that ends with the GPU behind is not as long as the distance to the next one: the CPU goes on meanwhile. Round
k + 1 begins on each thread where round k ended there, and on each stream not before its work of round k has ended. The
distance of two rounds is the step time of a loop (the cycle time of a max-plus system: Baccelli et al.,
"Synchronization and Linearity", 1992, chapter 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.critical_path.dependency_graph import EdgeKind
from torchprof_tui.analysis.what_if.step_model import RankModel, StepModel
from torchprof_tui.trace.core.arrays import I64

ROUNDS = 3
"""After the second one the distances no longer change, unless a queue grows for longer."""

GONE = -(1 << 60)
"""ns: the delay of an edge that no longer holds anything up."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """`alone`: ns of the first round, from its start to its last end. `step_time`: ns from one round to the next.

    `reached`, `base` int64[n]: of the last round, when each node was reached, and when it could be at the earliest;
    `delay` int64[e]: of its edges. `rank`: index of the rank that decides the step time.
    """

    alone: int
    step_time: int
    reached: I64
    base: I64
    delay: I64
    rank: int


def replay_rounds(model: StepModel, delay: I64, without: int | None = None) -> Rounds:
    """Replay a step with these delays, int64[e] ns. `without`: index of a rank that the others do not wait for."""
    edges = list(zip(model.source.tolist(), model.target.tolist(), delay.tolist(), strict=True))
    base = np.zeros(model.node_count, np.int64)
    for rank, nodes in zip(model.ranks, model.node_of, strict=True):
        base[nodes] = rank.window.start
    reached = _replay(base, edges)
    counted = [index for index in range(len(model.ranks)) if index != without]
    alone = max(int(reached[model.node_of[index]].max()) for index in counted) - model.start
    steady = _drop_earlier_work(model, delay)
    edges = list(zip(model.source.tolist(), model.target.tolist(), steady.tolist(), strict=True))
    ends = [_find_ends(rank, reached[nodes]) for rank, nodes in zip(model.ranks, model.node_of, strict=True)]
    distance = np.zeros(len(model.ranks), np.int64)
    for _ in range(ROUNDS - 1):
        base = _build_base(model, ends)
        reached = _replay(base, edges)
        after = [_find_ends(rank, reached[nodes]) for rank, nodes in zip(model.ranks, model.node_of, strict=True)]
        distance = np.array([int((new - old).max()) for new, old in zip(after, ends, strict=True)])
        ends = after
    slowest = max(counted, key=lambda index: distance[index])
    return Rounds(alone, int(distance[slowest]), reached, base, steady, slowest)


def _replay(base: I64, edges: list[tuple[int, int, int]]) -> I64:
    """Compute when each node is reached: int64[n]; no node before its base."""
    reached = base.tolist()
    for source, target, takes in edges:
        time = reached[source] + takes
        if time > reached[target]:
            reached[target] = time
    return np.array(reached, np.int64)


def _drop_earlier_work(model: StepModel, delay: I64) -> I64:
    """Let what was launched before the step take no time: in a loop it is the end of the round before."""
    steady: I64 = delay.copy()
    for rank, edges in zip(model.ranks, model.edge_of, strict=True):
        graph = rank.graph
        steady[edges[graph.edge_kind == EdgeKind.EARLIER]] = 0
        old = ~rank.is_own
        steady[edges[rank.work_edge[old]]] = 0
        is_old = np.zeros(len(graph.time), np.bool_)
        is_old[graph.work_start[old]] = True
        steady[edges[(graph.edge_kind == EdgeKind.BEFORE) & is_old[graph.target]]] = 0
    return steady


def _find_ends(rank: RankModel, reached: I64) -> I64:
    """Find when the step's thread and each stream have done a round: int64[1 + s] ns. `reached`: of its nodes."""
    thread = int(reached[np.flatnonzero(rank.graph.node_lane == rank.window.lane)[-1]])
    if not len(rank.stream_first):
        return np.array([thread], np.int64)
    works = np.lexsort((rank.window.work.start, rank.window.work.lane))
    first = np.searchsorted(rank.window.work.lane[works], rank.stream_lane)
    ends = np.maximum.reduceat(reached[rank.graph.work_end[works]], first)
    return np.append(thread, ends)


def _build_base(model: StepModel, ends: list[I64]) -> I64:
    base = np.zeros(model.node_count, np.int64)
    for rank, nodes, each in zip(model.ranks, model.node_of, ends, strict=True):
        base[nodes] = each[0]
        if len(rank.stream_first):
            first = nodes[rank.graph.work_start[rank.stream_first]]
            base[first] = np.maximum(each[0], each[1:])
    return base
