"""Replay a step several times in a row: how long it takes when the next one follows at once.

A step that ends with the GPU behind is not as long as the distance to the next one: the CPU goes on meanwhile. Round
k + 1 begins on each thread where round k ended there, and on each stream not before its work of round k has ended. The
distance of two rounds is the step time of a loop (the cycle time of a max-plus system: Baccelli et al.,
"Synchronization and Linearity", 1992, chapter 3).
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.critical_path.dependency_graph import EdgeKind
from torchprof_tui.analysis.critical_path.segments import NO_CLASS, SegmentKind
from torchprof_tui.analysis.what_if.step_model import RankModel, StepModel
from torchprof_tui.trace.core.arrays import I64, Bool, is_in
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind

ROUNDS = 3  # after the second one the distances no longer change, unless a queue grows for longer
GONE = -(1 << 60)  # ns: the delay of an edge that no longer holds anything up


@record
class Rounds:
    """`alone`: ns of the first round, from where the step begins to its last end. `step_time`: ns from one round to the
    next.

    `reached`, `base` int64[n]: of the last round, when each node was reached, and when it could be at the earliest;
    `delay` int64[e]: of its edges. `ends`: of each rank, when the round before ended, as of `_find_ends`. `rank`: index
    of the rank that decides the step time.
    """

    alone: int
    step_time: int
    reached: I64
    base: I64
    delay: I64
    ends: list[I64]
    rank: int


def replay_rounds(model: StepModel, delay: I64, without: int | None = None) -> Rounds:
    """Replay a step with these delays, int64[e] ns. `without`: index of a rank that the others do not wait for."""
    first, base = delay.copy(), np.zeros(model.node_count, np.int64)
    for rank, nodes, own_edges in zip(model.ranks, model.node_of, model.edge_of, strict=True):
        old = ~rank.is_own  # the step before stays as it was recorded
        base[nodes] = rank.window.start
        base[nodes[rank.graph.work_end[old]]] = rank.window.work.end[old]
        first[own_edges[rank.work_edge[old]]] = 0
    source, target = model.source.tolist(), model.target.tolist()
    reached = _replay(base, source, target, first.tolist())
    counted = [index for index in range(len(model.ranks)) if index != without]
    alone = max(max(int(reached[model.node_of[index]].max()) for index in counted) - model.begin, 0)
    steady = _drop_earlier_work(model, delay)
    takes = steady.tolist()
    ends = [_find_ends(rank, reached[nodes]) for rank, nodes in zip(model.ranks, model.node_of, strict=True)]
    distance = np.zeros(len(model.ranks), np.int64)
    for _ in range(ROUNDS - 1):
        base = np.zeros(model.node_count, np.int64)
        for rank, nodes, end in zip(model.ranks, model.node_of, ends, strict=True):
            base[nodes] = end[0]
            if len(rank.stream_first):
                base[nodes[rank.graph.work_start[rank.stream_first]]] = np.maximum(end[0], end[1:])
        reached = _replay(base, source, target, takes)
        after = [_find_ends(rank, reached[nodes]) for rank, nodes in zip(model.ranks, model.node_of, strict=True)]
        distance = np.array([int((new - old).max()) for new, old in zip(after, ends, strict=True)])
        before, ends = ends, after
    slowest = max(counted, key=lambda index: distance[index])
    return Rounds(alone, int(distance[slowest]), reached, base, steady, before, slowest)


def _replay(base: I64, source: list[int], target: list[int], delay: list[int]) -> I64:
    """Compute when each node is reached: int64[n]; no node before its base. Lists: of the edges, by target."""
    reached = base.tolist()
    for begin, end, takes in zip(source, target, delay, strict=True):
        time = reached[begin] + takes
        if time > reached[end]:
            reached[end] = time
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
    ends: I64 = reached[_find_end_nodes(rank, reached)]
    return ends


def _find_end_nodes(rank: RankModel, reached: I64) -> I64:
    """Find the nodes at which the step's thread and each stream have done a round: int64[1 + s] of the rank's."""
    thread, work = int(np.flatnonzero(rank.graph.node_lane == rank.window.lane)[-1]), rank.window.work
    by_end = np.lexsort((reached[rank.graph.work_end], work.lane))
    last = by_end[np.searchsorted(work.lane[by_end], rank.stream_lane, side="right") - 1]
    return np.append(thread, rank.graph.work_end[last]).astype(np.int64)


_NO_CAP = np.iinfo(np.int64).max


class RankChanges:
    """Factors of the pieces of CPU time and of GPU work, edges that are gone, and limits of delays.

    `piece_factor` float64[p], `work_factor` float64[m]; `gone` bool[e]; `cap` int64[e]: ns, delays are at most that;
    `added` int64[e]: ns of CPU time that take the place of what is gone.
    """

    def __init__(self, rank: RankModel) -> None:
        edges = len(rank.graph.source)
        self.rank = rank
        self.piece_factor = np.ones(len(rank.pieces))
        self.work_factor = np.ones(len(rank.work_class))
        self.gone = np.zeros(edges, np.bool_)
        self.cap = np.full(edges, _NO_CAP, np.int64)
        self.added = np.zeros(edges, np.int64)

    def scale(self, pieces: Bool, work: Bool, factor: float) -> bool:
        """Multiply pieces bool[p] and work bool[m]; return whether there are any. Empty masks select none."""
        if len(pieces):
            self.piece_factor[pieces] *= factor
        if len(work):
            self.work_factor[work] *= factor
        return bool(pieces.any() or work.any())

    def compute_delay(self, base: I64) -> I64:
        """Compute the delays of the rank's edges from those of the unchanged step: int64[e] ns."""
        graph, pieces = self.rank.graph, self.rank.pieces
        delay: I64 = base.copy()
        changed = np.flatnonzero(self.work_factor != 1)
        edges = self.rank.work_edge[changed]
        delay[edges] = np.rint(base[edges] * self.work_factor[changed]).astype(np.int64)
        is_changed = np.zeros(len(base), np.bool_)
        is_changed[pieces.edge[self.piece_factor != 1]] = True
        is_changed |= self.added > 0
        is_changed &= graph.edge_kind == EdgeKind.THREAD
        edges = np.flatnonzero(is_changed)
        if len(edges):
            kept = np.bincount(pieces.edge, pieces.time * self.piece_factor, minlength=len(base))
            takes = np.rint(kept).astype(np.int64) + self.added
            rigid = base == graph.recorded  # else part of the edge is a wait, and its own time is the limit
            delay[edges] = np.where(rigid, takes, np.minimum(base, takes))[edges]
        np.minimum(delay, self.cap, out=delay)
        delay[self.gone] = GONE
        return delay


_KINDS = NO_CLASS + 1


def _trace_cycle(model: StepModel, rounds: Rounds) -> I64:
    """Find the edges that decide the step time, int64[k]: from a lane's end of a round to the one before.

    Work that ends last may run while the next round has begun: where its path begins on another lane, that lane's path
    is followed, until one begins where it ends.
    """
    reached = rounds.reached
    arrives = reached[model.source] + rounds.delay
    tight = np.flatnonzero(arrives == reached[model.target])
    deciding = np.full(model.node_count, -1, np.int64)
    deciding[model.target[tight]] = tight
    nodes_of_ranks = zip(model.ranks, model.node_of, strict=True)
    ends = [nodes[_find_end_nodes(rank, reached[nodes])] for rank, nodes in nodes_of_ranks]
    lane_of = _find_lanes(model, rounds)
    chosen, source = deciding.tolist(), model.source
    lane = rounds.rank, int(reached[ends[rounds.rank]].argmax())
    path: list[int] = []
    for _ in range(sum(map(len, ends))):
        node, path = int(ends[lane[0]][lane[1]]), []
        while chosen[node] >= 0:
            path.append(chosen[node])
            node = int(source[chosen[node]])
        begins = lane_of.get(node, lane)
        if begins == lane:
            break
        lane = begins
    return np.array(path, np.int64)


def _find_lanes(model: StepModel, rounds: Rounds) -> dict[int, tuple[int, int]]:
    """Find the lane whose end of the round before lets a node begin: node -> (index of its rank, number of the lane).

    Lane 0 is the thread of the rank, the others are its streams.
    """
    lanes: dict[int, tuple[int, int]] = {}
    for index, (rank, nodes, end) in enumerate(zip(model.ranks, model.node_of, rounds.ends, strict=True)):
        lanes.update(dict.fromkeys(nodes.tolist(), (index, 0)))
        first = nodes[rank.graph.work_start[rank.stream_first]]
        lanes.update({int(first[stream]): (index, 1 + stream) for stream in np.flatnonzero(end[1:] > end[0]).tolist()})
    return lanes


def sum_path(model: StepModel, rounds: Rounds, changes: list[RankChanges]) -> list[tuple[SegmentKind, int, int]]:
    """Sum the edges that decide the step time by kind: (kind, kernel class, ns)."""
    edges = _trace_cycle(model, rounds)
    keys: list[I64] = [np.zeros(0, np.int64)]
    times: list[I64] = [np.zeros(0, np.int64)]
    for change, positions in zip(changes, model.edge_of, strict=True):
        is_own = is_in(positions, edges)
        key, time = _sum_rank(change, np.flatnonzero(is_own), rounds.delay[positions])
        keys.append(key)
        times.append(time)
    transfers = edges[is_in(edges, model.transfer_edges)]
    keys.append(np.full(len(transfers), SegmentKind.COLLECTIVE * _KINDS + NO_CLASS, np.int64))
    times.append(rounds.delay[transfers])
    distinct, index = np.unique(np.concatenate(keys), return_inverse=True)
    total = np.zeros(len(distinct), np.int64)
    np.add.at(total, index, np.concatenate(times))
    kinds = map(SegmentKind, (distinct // _KINDS).tolist())
    return list(zip(kinds, (distinct % _KINDS).tolist(), total.tolist(), strict=True))


def _sum_rank(change: RankChanges, edges: I64, delay: I64) -> tuple[I64, I64]:
    """Sum edges of one rank by kind and class: keys int64[k], ns int64[k]."""
    rank = change.rank
    graph = rank.graph
    kind = graph.edge_kind[edges]
    usual = np.full(len(edges), SegmentKind.QUEUE, np.int64)
    usual[kind == EdgeKind.CALL] = SegmentKind.LAUNCH
    usual[kind == EdgeKind.HAND_OVER] = SegmentKind.HOST
    usual[is_in(kind, (EdgeKind.SYNC, EdgeKind.SYNC_BY_ORDER, EdgeKind.ROOM))] = SegmentKind.BLOCKING
    usual[is_in(kind, (EdgeKind.BEFORE, EdgeKind.EARLIER))] = SegmentKind.UNATTRIBUTED
    classes = np.full(len(edges), NO_CLASS, np.int64)
    work = np.flatnonzero(kind == EdgeKind.WORK)
    if len(work):
        order = np.argsort(rank.work_edge, kind="stable")
        number = order[np.searchsorted(rank.work_edge[order], edges[work])]
        event_kind = rank.trace.kind[rank.window.work.event[number]]
        is_copy, is_collective = is_in(event_kind, (Kind.COPY, Kind.MEMSET)), event_kind == Kind.COLLECTIVE
        of_work = np.where(is_copy, SegmentKind.COPY, SegmentKind.KERNEL)
        usual[work] = np.where(is_collective, SegmentKind.COLLECTIVE, of_work)
        classes[work] = np.where(is_copy | is_collective, NO_CLASS, rank.work_class[number])
    off_cpu = kind != EdgeKind.THREAD
    keys, times = [(usual * _KINDS + classes)[off_cpu]], [delay[edges[off_cpu]]]
    pieces = rank.pieces
    on_path = np.zeros(len(delay), np.bool_)
    on_path[edges[~off_cpu]] = True
    chosen = np.flatnonzero(on_path[pieces.edge])
    takes = pieces.time[chosen] * change.piece_factor[chosen]
    # Where part of an edge was a wait, or something was added, its pieces share what the edge takes now.
    sums = np.bincount(pieces.edge[chosen], takes, minlength=len(delay))
    share = np.divide(takes, sums[pieces.edge[chosen]], out=np.zeros(len(takes)), where=takes > 0)
    keys.append(pieces.kind[chosen].astype(np.int64) * _KINDS + NO_CLASS)
    times.append(np.rint(share * delay[pieces.edge[chosen]]).astype(np.int64))
    added = on_path & (sums == 0)
    keys.append(np.full(int(added.sum()), SegmentKind.LAUNCH * _KINDS + NO_CLASS, np.int64))
    times.append(np.maximum(delay[added], 0))
    return np.concatenate(keys), np.maximum(np.concatenate(times), 0)
