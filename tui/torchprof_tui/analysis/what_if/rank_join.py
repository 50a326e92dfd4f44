"""Join the steps of several ranks by their collectives.

A collective ends on a rank when the last rank has arrived and the transfer is done. Between the starts of its kernels
and their ends lies one node, "all have arrived"; the transfer of a rank is the recorded time from there to its end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.critical_path.step_window import select_step
from torchprof_tui.analysis.what_if.step_model import RankModel, StepModel, build_rank_model, build_single_model
from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.model.ranks import MatchedCollectives
from torchprof_tui.trace.model.trace import Trace


@dataclass(frozen=True, slots=True)
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
