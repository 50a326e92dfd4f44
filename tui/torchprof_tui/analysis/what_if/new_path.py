"""Follow the critical path of a changed step, and sum its time by kind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.critical_path.dependency_graph import EdgeKind
from torchprof_tui.analysis.critical_path.segments import NO_CLASS, SegmentKind
from torchprof_tui.analysis.what_if.back_to_back import Rounds
from torchprof_tui.analysis.what_if.rank_changes import RankChanges
from torchprof_tui.analysis.what_if.step_model import StepModel
from torchprof_tui.trace.core.arrays import I64, U8
from torchprof_tui.trace.model.event_kind import Kind

_KINDS = NO_CLASS + 1


@dataclass(frozen=True, slots=True)
class PathTime:
    """Time of a path by kind: `kind` uint8[k]: SegmentKind; `kernel_class` uint8[k]; `time` int64[k] ns."""

    kind: U8
    kernel_class: U8
    time: I64


def sum_path(model: StepModel, rounds: Rounds, changes: list[RankChanges]) -> PathTime:
    """Sum the path to the end of the last round by kind, as far back as the round goes."""
    edges = _find_path(model, rounds)
    keys: list[I64] = [np.zeros(0, np.int64)]
    times: list[I64] = [np.zeros(0, np.int64)]
    for change, positions in zip(changes, model.edge_of, strict=True):
        is_own = np.isin(positions, edges)
        key, time = _sum_rank(change, np.flatnonzero(is_own), rounds.delay[positions])
        keys.append(key)
        times.append(time)
    transfers = edges[np.isin(edges, model.transfer_edges)]
    keys.append(np.full(len(transfers), SegmentKind.COLLECTIVE * _KINDS + NO_CLASS, np.int64))
    times.append(rounds.delay[transfers])
    distinct, index = np.unique(np.concatenate(keys), return_inverse=True)
    total = np.zeros(len(distinct), np.int64)
    np.add.at(total, index, np.concatenate(times))
    return PathTime((distinct // _KINDS).astype(np.uint8), (distinct % _KINDS).astype(np.uint8), total)


def _find_path(model: StepModel, rounds: Rounds) -> I64:
    """Find the edges of the path that ends last: int64[k]. It ends at a node that only the round before holds up."""
    reached = rounds.reached
    arrives = reached[model.source] + rounds.delay
    tight = np.flatnonzero(arrives == reached[model.target])
    deciding = np.full(model.node_count, -1, np.int64)
    deciding[model.target[tight]] = tight
    nodes = model.node_of[rounds.rank]
    node = int(nodes[reached[nodes].argmax()])
    chosen, source = deciding.tolist(), model.source
    path: list[int] = []
    while chosen[node] >= 0:
        path.append(chosen[node])
        node = int(source[chosen[node]])
    return np.array(path, np.int64)


def _sum_rank(change: RankChanges, edges: I64, delay: I64) -> tuple[I64, I64]:
    """Sum edges of one rank by kind and class: keys int64[k], ns int64[k]."""
    rank = change.rank
    graph = rank.graph
    kind = graph.edge_kind[edges]
    usual = np.full(len(edges), SegmentKind.QUEUE, np.int64)
    usual[kind == EdgeKind.CALL] = SegmentKind.LAUNCH
    usual[kind == EdgeKind.HAND_OVER] = SegmentKind.HOST
    usual[np.isin(kind, (EdgeKind.SYNC, EdgeKind.SYNC_BY_ORDER, EdgeKind.ROOM))] = SegmentKind.BLOCKING
    usual[np.isin(kind, (EdgeKind.BEFORE, EdgeKind.EARLIER))] = SegmentKind.UNATTRIBUTED
    classes = np.full(len(edges), NO_CLASS, np.int64)
    work = np.flatnonzero(kind == EdgeKind.WORK)
    if len(work):
        order = np.argsort(rank.work_edge, kind="stable")
        number = order[np.searchsorted(rank.work_edge[order], edges[work])]
        usual[work], classes[work] = _classify_work(change, number)
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


def _classify_work(change: RankChanges, number: I64) -> tuple[I64, I64]:
    """Classify work: SegmentKind and KernelClass, int64[k] each."""
    rank = change.rank
    event_kind: U8 = rank.trace.kind[rank.window.work.event[number]]
    usual = np.full(len(number), SegmentKind.KERNEL, np.int64)
    classes: I64 = rank.work_class[number].astype(np.int64)
    usual[np.isin(event_kind, (Kind.COPY, Kind.MEMSET))] = SegmentKind.COPY
    usual[event_kind == Kind.COLLECTIVE] = SegmentKind.COLLECTIVE
    classes[usual != SegmentKind.KERNEL] = NO_CLASS
    return usual, classes
