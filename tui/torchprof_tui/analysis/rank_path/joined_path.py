"""Find the critical path of a step on all ranks: it changes rank where one waits for another in a collective.

A collective ends for all when the last rank has come and the transfer is done. So the path that comes to the end of a
collective goes back through its transfer to the start on the last rank, and goes on with what made that rank late.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from torchprof_tui.analysis.critical_path.build_graph import describe_missing_edges, sum_earlier
from torchprof_tui.analysis.critical_path.critical_path import (
    MAX_REPLAY_ERROR,
    CriticalPath,
    compute_event_slack,
    find_critical_path,
)
from torchprof_tui.analysis.critical_path.dependency_graph import (
    INFERRED_KINDS,
    DependencyGraph,
    EdgeKind,
    compute_node_slack,
    find_path,
    replay_graph,
)
from torchprof_tui.analysis.critical_path.range_window import end_on_autograd, select_range
from torchprof_tui.analysis.critical_path.segments import (
    NO_CLASS,
    SegmentKind,
    Segments,
    begin_segments,
    build_segments,
)
from torchprof_tui.analysis.critical_path.step_window import (
    NO_EVENT,
    GpuWorkColumns,
    StepWindow,
    WindowError,
    select_step,
    select_window,
)
from torchprof_tui.analysis.what_if.step_model import StepModel, build_window_model, find_joined, join_ranks
from torchprof_tui.trace.core.arrays import I32, I64, is_in
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.ranks import Rank, Ranks
from torchprof_tui.trace.model.trace import Trace


def split_rank_waits(segments: Segments, ranks: Ranks, index: int) -> Segments:
    """Let collectives on the path of a rank, an index of `ranks.all`, be waits until the last rank has come.

    Of a collective whose end contradicts the arrival of another rank (clocks that disagree) nothing is a wait.
    """
    event, arrived, late = _find_arrivals(ranks, index)
    chosen = np.flatnonzero((segments.kind == SegmentKind.COLLECTIVE) & is_in(segments.event, event))
    if not len(chosen):
        return segments
    place = event.searchsorted(segments.event[chosen])
    trace = ranks.all[index].trace
    ends = trace.start[segments.event[chosen]] + trace.duration[segments.event[chosen]]
    until = np.minimum(arrived[place], segments.end[chosen])
    waits = (until > segments.start[chosen]) & (arrived[place] <= ends) & (late[place] != ranks.all[index].number)
    chosen, place, until = chosen[waits], place[waits], until[waits]
    begin = segments.start.copy()
    begin[chosen] = until
    count = len(chosen)
    first = replace(
        segments,
        start=np.concatenate([begin, segments.start[chosen]]),
        end=np.concatenate([segments.end, until]),
        kind=np.concatenate([segments.kind, np.full(count, SegmentKind.RANK, np.uint8)]),
        kernel_class=np.concatenate([segments.kernel_class, segments.kernel_class[chosen]]),
        event=np.concatenate([segments.event, segments.event[chosen]]),
        rank=np.concatenate([segments.rank, late[place].astype(np.int32)]),
    )
    return sort_segments(first)


def sort_segments(segments: Segments) -> Segments:
    """Sort segments by start, without empty ones."""
    order = np.argsort(segments.start, kind="stable")
    order = order[segments.end[order] > segments.start[order]]
    return segments.select(order)


def _find_arrivals(ranks: Ranks, index: int) -> tuple[I32, I64, I64]:
    """Find when the last rank had come to each collective of a rank: rows ascending, ns, and its number, [k] each."""
    collectives = ranks.matched_collectives
    rows = collectives.events[collectives.is_synchronizing & (collectives.events[:, index] >= 0)]
    starts = np.full(rows.shape, np.iinfo(np.int64).min, np.int64)
    for place, rank in enumerate(ranks.all):
        present = np.flatnonzero(rows[:, place] >= 0)
        starts[present, place] = rank.trace.start[rows[present, place]]
    numbers = np.array([rank.number for rank in ranks.all], np.int64)
    order = np.argsort(rows[:, index])
    rows, starts = rows[order], starts[order]
    if not len(rows):
        return rows[:, index], starts[:, index], starts[:, index]
    return rows[:, index], starts.max(axis=1), numbers[starts.argmax(axis=1)]


@record
class RankChange:
    """Where a path goes on with another rank: at `time` ns, numbers of the ranks, and the row of the collective on
    the rank that waited."""

    time: int
    before: int
    after: int
    event: int


def find_joined_path(ranks: Ranks, step: int | None = None, time_range: tuple[int, int] | None = None) -> CriticalPath:
    """Find the critical path of step number `step` on all ranks, by default the first rank's median step.

    Or of a range, ns. Rows are those of the merged trace. The path begins with the step on one of the ranks, and ends
    where the last rank has ended. Raises WindowError if a rank lacks the step, or recorded nothing in the range.
    """
    if time_range is None and step is None:
        chosen = select_step(ranks.all[0].trace, None)
        step = None if chosen is None else chosen.number
    windows = [_select_window(rank, step, time_range) for rank in ranks.all]
    models = tuple(
        build_window_model(rank.trace, window, rank.number, rank.first)
        for rank, window in zip(ranks.all, windows, strict=True)
    )
    model = join_ranks(models, find_joined(models, ranks.matched_collectives, with_earlier=True))
    graph = _build_graph(model, ranks)
    edges = find_path(graph)
    edges = edges[graph.time[graph.target[edges]] > model.begin]
    segments = begin_segments(_build_segments(model, graph, edges), model.begin)
    begin = max(model.begin, int(segments.start[0]) if len(segments) else 0)
    window = replace(graph.window, backlog_end=begin)
    replayed = int(replay_graph(graph).max()) - window.begin
    node_slack = compute_node_slack(graph)
    parts = [
        compute_event_slack(rank.trace, rank.graph, node_slack[node_of], graph.window.end)
        for rank, node_of in zip(model.ranks, model.node_of, strict=True)
    ]
    event = np.concatenate([rows + rank.first_row for (rows, _), rank in zip(parts, model.ranks, strict=True)])
    event, slack = event.astype(np.int32), np.concatenate([slack for _, slack in parts])
    missing, advice = _describe_missing(model, graph, edges, replayed, window.duration)
    inferred = int(is_in(graph.edge_kind[edges], INFERRED_KINDS).sum())
    return CriticalPath(window, graph, segments, replayed, event, slack, inferred, missing, advice)


def list_rank_changes(path: CriticalPath) -> list[RankChange]:
    """List where a path changes rank, in time order. Towards the end the rank waits in a collective that ends there."""
    segments = path.segments
    index = np.flatnonzero(segments.rank[1:] != segments.rank[:-1])
    columns = segments.end[index], segments.rank[index], segments.rank[index + 1], segments.event[index + 1]
    return [RankChange(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def _select_window(rank: Rank, step: int | None, time_range: tuple[int, int] | None) -> StepWindow:
    try:
        if time_range is not None:
            return select_range(rank.trace, *time_range)
        return select_window(rank.trace, select_step(rank.trace, step))
    except WindowError as error:
        raise WindowError(f"{error} (rank {rank.number})") from error


def _build_graph(model: StepModel, ranks: Ranks) -> DependencyGraph:
    """Build one graph of all ranks, with the rows and lanes of the merged trace."""
    time = np.zeros(model.node_count, np.int64)
    lane = np.full(model.node_count, -1, np.int32)
    kind = np.full(len(model.source), EdgeKind.ARRIVAL, np.uint8)
    event = np.full(len(model.source), NO_EVENT, np.int32)
    binding = np.full(model.node_count, -1, np.int32)
    last, end = 0, -1
    for rank, known, nodes, edges in zip(model.ranks, ranks.all, model.node_of, model.edge_of, strict=True):
        graph = end_on_autograd(rank.trace, rank.graph, rank.host_lanes[1:])
        time[nodes] = graph.time
        lane[nodes] = np.where(graph.node_lane >= 0, graph.node_lane + known.first_lane, -1)
        kind[edges] = graph.edge_kind
        event[edges] = np.where(graph.event != NO_EVENT, graph.event + rank.first_row, NO_EVENT)
        binding[nodes] = np.where(graph.binding >= 0, edges[graph.binding], -1)
        if rank.window.end > end:
            end, last = rank.window.end, int(nodes[graph.last])
    kind[model.transfer_edges] = EdgeKind.TRANSFER
    arrivals = np.sort(model.arrival_edges)
    source, target = model.source, model.target
    np.maximum.at(time, target[arrivals], time[source[arrivals]])
    by_arrival = arrivals[np.argsort(time[source[arrivals]], kind="stable")]
    binding[target[by_arrival]] = by_arrival  # of equal targets the last write, the latest rank
    transfers = model.transfer_edges
    binding[target[transfers]] = transfers
    for index, rank in enumerate(model.ranks):
        own = model.transfer_rank == index
        event[transfers[own]] = rank.window.work.event[model.transfer_work[own]] + rank.first_row
    offset = np.cumsum([0, *(len(rank.window.work) for rank in model.ranks)])
    work_start, work_end = np.zeros(offset[-1], np.int32), np.zeros(offset[-1], np.int32)
    for index, (rank, nodes) in enumerate(zip(model.ranks, model.node_of, strict=True)):
        work_start[offset[index] : offset[index + 1]] = nodes[rank.graph.work_start]
        work_end[offset[index] : offset[index + 1]] = nodes[rank.graph.work_end]
    window = _join_windows(model, ranks)
    first = int(model.node_of[0][model.ranks[0].graph.first])
    return DependencyGraph(
        window=window, time=time, node_lane=lane, work_start=work_start, work_end=work_end, edge_kind=kind,
        source=source, target=target, event=event, delay=model.delay, binding=binding,
        dropped=sum(rank.graph.dropped for rank in model.ranks), first=first, last=last,
    )  # fmt: skip


def _join_windows(model: StepModel, ranks: Ranks) -> StepWindow:
    """Join the windows of all ranks: from the first start to the last end, with the work of all."""
    windows = [rank.window for rank in model.ranks]
    columns = {}
    for each in fields(GpuWorkColumns):
        parts = []
        for window, rank in zip(windows, ranks.all, strict=True):
            column = getattr(window.work, each.name)
            first = {"event": rank.first, "lane": rank.first_lane, "launch": rank.first}.get(each.name, 0)
            parts.append(np.where(column >= 0, column + first, column) if first else column)
        columns[each.name] = np.concatenate(parts)
    for name in ("event", "lane", "launch"):
        columns[name] = columns[name].astype(np.int32)
    return StepWindow(
        step=windows[0].step,
        lane=windows[0].lane + ranks.all[0].first_lane,
        start=model.start,
        cpu_end=max(window.cpu_end for window in windows),
        end=max(window.end for window in windows),
        work=GpuWorkColumns(**columns),
        is_range=windows[0].is_range,
    )


def _build_segments(model: StepModel, graph: DependencyGraph, path: I64) -> Segments:
    """Build the segments of the path: those of each rank's own edges, and the transfers."""
    parts = []
    is_on = np.zeros(len(graph.source), np.bool_)
    is_on[path] = True
    for rank, edges in zip(model.ranks, model.edge_of, strict=True):
        own = build_segments(rank.trace, rank.graph, np.flatnonzero(is_on[edges]), rank.host_lanes)
        number = np.full(len(own), rank.number, np.int32)
        event = np.where(own.event != NO_EVENT, own.event + rank.first_row, NO_EVENT).astype(np.int32)
        parts.append((own.start, own.end, own.kind, own.kernel_class, event, number))
    chosen = np.flatnonzero(is_on[model.transfer_edges])
    edges = model.transfer_edges[chosen]
    numbers = np.array([-1 if rank.number is None else rank.number for rank in model.ranks], np.int32)
    count = len(edges)
    parts.append(
        (
            graph.time[graph.source[edges]], graph.time[graph.target[edges]],
            np.full(count, SegmentKind.COLLECTIVE, np.uint8), np.full(count, NO_CLASS, np.uint8),
            graph.event[edges], numbers[model.transfer_rank[chosen]],
        )
    )  # fmt: skip
    return sort_segments(Segments(*(np.concatenate(columns) for columns in zip(*parts, strict=True))))


def _describe_missing(
    model: StepModel, graph: DependencyGraph, path: I64, replayed: int, duration: int
) -> tuple[tuple[str, ...], str]:
    """Describe what the graphs of the ranks lack, where that is more than 5 % of the path, and what to record."""
    lines: list[str] = []
    advice = ""
    earlier = path[graph.edge_kind[path] == EdgeKind.EARLIER]
    is_unknown = abs(replayed - duration) > MAX_REPLAY_ERROR * duration
    held = sum_earlier(graph, earlier, model.begin)
    if not is_unknown and held <= MAX_REPLAY_ERROR * duration:
        return (), ""
    for rank, edges in zip(model.ranks, model.edge_of, strict=True):
        own = earlier[is_in(earlier, edges)]
        found, said = describe_missing_edges(rank.trace, rank.built, sum_earlier(graph, own, model.begin))
        name = "" if rank.number is None else str(rank.number)
        lines += [f"rank {name}: {line}" for line in found]
        advice = advice or said
    return tuple(lines), advice


def find_path_of_run(trace: Trace, step: int | None = None, time_range: tuple[int, int] | None = None) -> CriticalPath:
    """Find the path of a step or of a range, ns; of several ranks that of all, with the rows of the merged trace.

    Raises WindowError.
    """
    ranks = trace.merged_ranks
    if ranks is None or len(ranks) == 1:
        return find_critical_path(trace if ranks is None else ranks.all[0].trace, step, time_range)
    return find_joined_path(ranks, step, time_range)


def find_path_of_rank(
    ranks: Ranks, index: int, step: int | None = None, time_range: tuple[int, int] | None = None
) -> CriticalPath:
    """Find the path of one rank, an index of `ranks.all`, with the rows of its own trace.

    In a collective it waits until the last rank has come. Raises WindowError.
    """
    return split_path(find_critical_path(ranks.all[index].trace, step, time_range), ranks, index)


def split_path(path: CriticalPath, ranks: Ranks, index: int) -> CriticalPath:
    """Split the collectives on the path of a rank into the wait for the last rank and the transfer."""
    return replace(path, segments=split_rank_waits(path.segments, ranks, index))
