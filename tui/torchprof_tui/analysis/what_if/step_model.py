"""What a forecast is computed on: the dependency graphs of a step, of one rank or of several joined by collectives.

A collective ends on a rank when the last rank has arrived and the transfer is done. Between the starts of its kernels
and their ends lies one node, "all have arrived"; the transfer of a rank is the recorded time from there to its end.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.critical_path.build_graph import BuiltGraph, build_graph
from torchprof_tui.analysis.critical_path.dependency_graph import DependencyGraph, EdgeKind
from torchprof_tui.analysis.critical_path.segments import build_timeline, classify_cpu
from torchprof_tui.analysis.critical_path.step_window import StepWindow, select_step, select_window
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.ranks import MatchedCollectives
from torchprof_tui.trace.model.trace import Trace


@record
class CpuPieces:
    """p pieces of the edges of threads: each has one innermost event.

    `edge` int64[p]: indexes of the graph's edges, of one edge in time order; `event` int32[p]: innermost event or -1;
    `kind` uint8[p]: SegmentKind; `lane` int32[p]; `start`, `time` int64[p] ns.
    """

    edge: I64
    event: I32
    kind: U8
    lane: I32
    start: I64
    time: I64

    def __len__(self) -> int:
        return len(self.edge)


def split_cpu_time(trace: Trace, graph: DependencyGraph, host_lanes: list[int]) -> CpuPieces:
    """Split the edges of all threads. `host_lanes`: threads whose time without any event is host code."""
    start, end = graph.time[graph.source], graph.time[graph.target]
    chosen: Bool = (graph.edge_kind == EdgeKind.THREAD) & (end > start)
    lane = graph.node_lane[graph.target]
    parts = []
    for number in sorted_unique(lane[chosen]).tolist():
        edges = np.flatnonzero(chosen & (lane == number))
        timeline = build_timeline(trace, number, graph.window.start, graph.window.end)
        begin, until, event, owner = timeline.split(start[edges], end[edges])
        kind = classify_cpu(trace, event, number in host_lanes)
        lanes = np.full(len(event), number, np.int32)
        parts.append((edges[owner].astype(np.int64), event.astype(np.int32), kind, lanes, begin, until - begin))
    if not parts:
        empty = np.zeros(0, np.int64)
        return CpuPieces(empty, empty.astype(np.int32), empty.astype(np.uint8), empty.astype(np.int32), empty, empty)
    edge, event, kind, lanes, begin, time = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return CpuPieces(edge, event, kind, lanes, begin, time)


@record
class RankModel:
    """The step of one rank. `number`: of the rank, None for a trace without one; `first_row`: of the rank's events in
    the merged trace.

    `work_class` uint8[m]: KernelClass of each work; `work_edge` int64[m]: its edge of kind WORK. `is_own` bool[m]: work
    that this step launched, not one before. `stream_first` int64[s], `stream_lane` int32[s]: the first work of each
    stream.
    """

    number: int | None
    first_row: int
    trace: Trace
    built: BuiltGraph
    pieces: CpuPieces
    work_class: U8
    work_edge: I64
    is_own: Bool
    stream_first: I64
    stream_lane: I32

    @property
    def graph(self) -> DependencyGraph:
        return self.built.graph

    @property
    def host_lanes(self) -> list[int]:
        return self.built.host_lanes

    @property
    def window(self) -> StepWindow:
        return self.graph.window


@record
class StepModel:
    """The joined graph of r ranks: n nodes in topological order, e edges by target. Times in ns.

    `source`, `target` int32[e]; `delay` int64[e]: of the unchanged step. `edge_of`: of each rank, where its graph's
    edges are, int64[k]; `node_of`: its nodes, int64[k]. `arrival_edges` int64[a] and `arrival_rank` int64[a]: edges by
    which the other ranks of a collective wait for a rank (an index). `transfer_edges`, `transfer_rank`, `transfer_work`
    int64[t]: edges from the last arrival to the end of a rank's work, by its number. `last_rank`, `late_by` int64[c]:
    of each collective the rank that came last, and how much later than the one before it, ns.
    """

    ranks: tuple[RankModel, ...]
    source: I32
    target: I32
    delay: I64
    edge_of: tuple[I64, ...]
    node_of: tuple[I64, ...]
    node_count: int
    arrival_edges: I64
    arrival_rank: I64
    transfer_edges: I64
    transfer_rank: I64
    transfer_work: I64
    last_rank: I64
    late_by: I64

    @property
    def start(self) -> int:
        """When the first rank starts the step."""
        return min(rank.window.start for rank in self.ranks)

    @property
    def begin(self) -> int:
        """When the step begins, ns: once it has begun on all ranks, the one before is complete on all of them."""
        begin = max(rank.window.begin for rank in self.ranks)
        return begin if begin < self.end and self.ranks[0].window.step is not None else self.start

    @property
    def end(self) -> int:
        """When the last rank has ended the step, ns."""
        return max(rank.window.end for rank in self.ranks)

    @property
    def duration(self) -> int:
        """From where the step begins on all ranks until its end on the last."""
        return self.end - self.begin


def build_rank_model(trace: Trace, step: int | None, number: int | None = None, first_row: int = 0) -> RankModel:
    """Build the model of one process. Raises WindowError if there is no such step."""
    return build_window_model(trace, select_window(trace, select_step(trace, step)), number, first_row)


def build_window_model(trace: Trace, window: StepWindow, number: int | None = None, first_row: int = 0) -> RankModel:
    """Build the model of a window of one process."""
    built = build_graph(trace, window)
    graph, work = built.graph, window.work
    edges = np.flatnonzero(graph.edge_kind == EdgeKind.WORK)
    by_source = edges[np.argsort(graph.source[edges], kind="stable")]
    work_edge = by_source[np.searchsorted(graph.source[by_source], graph.work_start)] if len(work) else edges
    names, index = np.unique(trace.name[work.event], return_inverse=True)
    classes = np.array([decode_kernel_name(trace.names[name]).kernel_class for name in names.tolist()], np.uint8)
    by_start = np.lexsort((work.start, work.lane))
    lanes, first = np.unique(work.lane[by_start], return_index=True)
    return RankModel(
        number=trace.rank if number is None else number,
        first_row=first_row,
        trace=trace,
        built=built,
        pieces=split_cpu_time(trace, graph, built.host_lanes),
        work_class=classes[index] if len(work) else np.zeros(0, np.uint8),
        work_edge=work_edge.astype(np.int64),
        is_own=work.launch_start >= window.start,
        stream_first=by_start[first].astype(np.int64),
        stream_lane=lanes.astype(np.int32),
    )


def build_single_model(rank: RankModel) -> StepModel:
    """Take the graph of one rank as it is."""
    graph = rank.graph
    empty = np.zeros(0, np.int64)
    return StepModel(
        ranks=(rank,),
        source=graph.source,
        target=graph.target,
        delay=graph.delay,
        edge_of=(np.arange(len(graph.source), dtype=np.int64),),
        node_of=(np.arange(len(graph.time), dtype=np.int64),),
        node_count=len(graph.time),
        arrival_edges=empty,
        arrival_rank=empty,
        transfer_edges=empty,
        transfer_rank=empty,
        transfer_work=empty,
        last_rank=empty,
        late_by=empty,
    )


@record
class JoinedCollectives:
    """c collectives whose kernels are in the step on all ranks that took part; r ranks.

    `work` int64[c, r]: number of the work on each rank, -1 for none; `start`, `end` int64[c, r] ns; `arrived` int64[c].
    """

    work: I64
    start: I64
    end: I64
    arrived: I64

    @property
    def present(self) -> Bool:
        """Which ranks took part: bool[c, r]."""
        return self.work >= 0


def build_step_model(trace: Trace, step: int | None = None) -> StepModel:
    """Build the model of a step, of several ranks joined by their collectives.

    Without `step` it is the step of median duration, of the first of several ranks. Raises WindowError.
    """
    merged = trace.merged_ranks
    if merged is None:
        return build_single_model(build_rank_model(trace, step))
    if step is None:
        chosen = select_step(merged.all[0].trace, None)
        step = None if chosen is None else chosen.number
    ranks = tuple(build_rank_model(each.trace, step, each.number, each.first) for each in merged.all)
    if len(ranks) == 1:
        return build_single_model(ranks[0])
    return join_ranks(ranks, find_joined(ranks, merged.matched_collectives))


def find_joined(
    ranks: tuple[RankModel, ...], collectives: MatchedCollectives, with_earlier: bool = False
) -> JoinedCollectives:
    """Find the synchronizing collectives of the step, and which work they are.

    `ranks`: all of the run. `with_earlier`: also collectives that were launched before the step, and end in it.
    """
    rows = collectives.events[collectives.is_synchronizing]
    shape = (len(rows), len(ranks))
    work, start, end = np.full(shape, -1, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for index, rank in enumerate(ranks):
        own, number = rank.window.work, np.full(len(rank.trace), -1, np.int64)
        chosen = np.arange(len(own)) if with_earlier else np.flatnonzero(rank.is_own)
        number[own.event[chosen]] = chosen
        work[:, index] = np.where(rows[:, index] >= 0, number[rows[:, index]], -1)
        if len(own):
            start[:, index], end[:, index] = own.start[work[:, index]], own.end[work[:, index]]
    complete = ((work >= 0) == (rows >= 0)).all(axis=1) & ((work >= 0).sum(axis=1) > 1)
    work, start, end = work[complete], start[complete], end[complete]
    arrived = np.where(work >= 0, start, np.iinfo(np.int64).min).max(axis=1, initial=np.iinfo(np.int64).min)
    return JoinedCollectives(work, start, end, arrived)


def join_ranks(ranks: tuple[RankModel, ...], joined: JoinedCollectives) -> StepModel:
    """Number the nodes of all ranks by time, and add the edges of the collectives."""
    counts = [len(rank.graph.time) for rank in ranks]
    hubs = len(joined.arrived)
    time = np.concatenate([*(rank.graph.time for rank in ranks), joined.arrived])
    local = np.concatenate([*(np.arange(count) for count in counts), np.arange(hubs)])
    is_hub = np.arange(len(time)) >= sum(counts)
    order = np.lexsort((local, is_hub, time))
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    node_of = tuple(number[offsets[k] : offsets[k + 1]] for k in range(len(ranks)))
    hub = number[offsets[-1] :]

    sources = [nodes[rank.graph.source] for rank, nodes in zip(ranks, node_of, strict=True)]
    targets = [nodes[rank.graph.target] for rank, nodes in zip(ranks, node_of, strict=True)]
    delays = [rank.graph.delay.copy() for rank in ranks]
    edge_offset = np.concatenate([[0], np.cumsum([len(each) for each in delays])])
    arrival_rank, transfer_rank, transfer_work = [], [], []
    for index, rank in enumerate(ranks):
        here = np.flatnonzero(joined.present[:, index])
        number_of = joined.work[here, index]
        sources.append(node_of[index][rank.graph.work_start[number_of]])
        targets.append(hub[here])
        delays.append(np.zeros(len(here), np.int64))
        arrival_rank.append(np.full(len(here), index, np.int64))
    for index, rank in enumerate(ranks):
        transfer = joined.end[:, index] - joined.arrived
        here = np.flatnonzero(joined.present[:, index] & (transfer > 0))  # else the clocks disagree: left as recorded
        number_of = joined.work[here, index]
        delays[index][rank.work_edge[number_of]] = transfer[here]
        sources.append(hub[here])
        targets.append(node_of[index][rank.graph.work_end[number_of]])
        delays.append(transfer[here])
        transfer_rank.append(np.full(len(here), index, np.int64))
        transfer_work.append(number_of)

    source, target, delay = np.concatenate(sources), np.concatenate(targets), np.concatenate(delays)
    by_target = np.lexsort((source, target))
    position = np.empty(len(by_target), np.int64)
    position[by_target] = np.arange(len(by_target))
    arrivals = int(sum(len(each) for each in arrival_rank))
    ordered = np.sort(np.where(joined.present, joined.start, np.iinfo(np.int64).min), axis=1)
    late_start = np.where(joined.present, joined.start, np.iinfo(np.int64).min)
    return StepModel(
        ranks=ranks,
        source=source[by_target].astype(np.int32),
        target=target[by_target].astype(np.int32),
        delay=delay[by_target],
        edge_of=tuple(position[edge_offset[k] : edge_offset[k + 1]] for k in range(len(ranks))),
        node_of=node_of,
        node_count=len(time),
        arrival_edges=position[edge_offset[-1] : edge_offset[-1] + arrivals],
        arrival_rank=np.concatenate(arrival_rank),
        transfer_edges=position[edge_offset[-1] + arrivals :],
        transfer_rank=np.concatenate(transfer_rank),
        transfer_work=np.concatenate(transfer_work),
        last_rank=late_start.argmax(axis=1),
        late_by=ordered[:, -1] - ordered[:, -2] if hubs else np.zeros(0, np.int64),
    )
