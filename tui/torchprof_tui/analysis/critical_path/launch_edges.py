"""Edges to GPU work: from its launch call, from earlier work of its stream, and inside a graph's replay.

The driver holds about a thousand launches; then a call returns when the GPU has begun another one. Nothing recorded
says so: a long call with hundreds of works waiting behind it does.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.critical_path.dependency_graph import EdgeKind, GraphColumns, find_last_ended
from torchprof_tui.trace.core.arrays import I64, NONE, Bool, is_in, sorted_unique
from torchprof_tui.trace.model.trace import Trace

LONG_LAUNCH = 15_000  # ns: launch calls usually take 5 to 10 µs

FULL_QUEUE = 500
"""Works launched and not begun from which a long call is taken to wait for room; 886 to 894 on an H200, CUDA 13."""

OWN_TIME = 5_000  # ns that such a call takes at most by itself


def add_queue_room(graph: GraphColumns, trace: Trace) -> None:
    """Add edges from the work that ended last on the stream to the return of launch calls that waited for room."""
    window, work = graph.window, graph.window.work
    long = work.is_launched & (work.launch_end - work.launch_start > LONG_LAUNCH) & (work.launch_start >= window.start)
    number = np.flatnonzero(long & (work.launch_end <= window.cpu_end) & (work.start > work.launch_end))
    if not len(number):
        return
    returned = work.launch_end[number]
    launched = np.searchsorted(np.sort(work.launch_start[work.is_launched]), work.launch_start[number], side="right")
    begun = np.searchsorted(np.sort(work.start[work.is_launched]), returned, side="right")
    lane = work.lane.astype(np.int64)
    source = find_last_ended(lane, work.end, lane[number], returned, window.start)
    waited = (launched - begun >= FULL_QUEUE) & (source != NONE)
    number, returned, source = number[waited], returned[waited], source[waited]
    thread = trace.lane[work.launch[number]]
    graph.add_points(thread, work.launch_start[number])
    target = graph.add_points(thread, returned)
    graph.add_edges(EdgeKind.ROOM, graph.work_ends(source), target, work.launch[number])
    graph.add_waits(target, np.full(len(number), OWN_TIME))


SHORT_GAP = 10_000  # ns between two works of a stream that need no further explanation than the stream's order


def add_launch_edges(graph: GraphColumns, trace: Trace) -> None:
    """Add an edge from each launch call in the step to its work.

    It leaves the start of the call where the work started before the call returned, else its end.
    """
    window, work = graph.window, graph.window.work
    inside = work.is_launched & (work.launch_end > window.start)
    early = inside & (work.start < work.launch_end)
    for chosen, kind, time in (
        (np.flatnonzero(early), EdgeKind.CALL, work.launch_start),
        (np.flatnonzero(inside & ~early), EdgeKind.LAUNCH, work.launch_end),
    ):
        points = graph.add_points(trace.lane[work.launch[chosen]], time[chosen])
        graph.add_edges(kind, points, graph.work_starts(chosen), work.launch[chosen])


def add_stream_edges(graph: GraphColumns) -> None:
    """Add an edge to each work from that work of its stream which ended last before it started."""
    work = graph.window.work
    before = graph.before
    target = np.flatnonzero(before != NONE)
    graph.add_edges(EdgeKind.STREAM, graph.work_ends(before[target]), graph.work_starts(target), work.event[target])


def add_earlier_edges(graph: GraphColumns, trace: Trace) -> None:
    """Add an edge to the first work that was launched on each stream in the recording, where it started late.

    A stream works in order: what was launched to it before the recording began runs first, and is not recorded. The
    edge leaves the end of the stream's work before, else the start of the window.
    """
    window, work = graph.window, graph.window.work
    lanes = [trace.lanes[lane] for lane in sorted_unique(work.lane).tolist()]
    launched = [np.flatnonzero(trace.links.launch_of[lane.first : lane.last] != NONE) for lane in lanes]
    rows = [lane.first + int(own[0]) for lane, own in zip(lanes, launched, strict=True) if len(own)]
    is_late = work.start - graph.ready_times > SHORT_GAP
    first = np.flatnonzero(is_in(work.event, rows) & work.is_launched & is_late)
    before = graph.before[first]
    begin = graph.add_points(np.full(len(first), window.lane, np.int32), np.full(len(first), window.start, np.int64))
    source = np.where(before == NONE, begin, graph.work_ends(before))
    graph.add_edges(EdgeKind.EARLIER, source, graph.work_starts(first), work.event[first])


def add_replay_edges(graph: GraphColumns, trace: Trace) -> None:
    """Add the order inside replays of graphs: recorded edges, else what the times of the branches suggest.

    Without recorded edges a work that is the first of its stream in the replay, or follows its stream's work after a
    gap, waits for that work of the replay which ended last before.
    """
    work = graph.window.work
    links = trace.links
    if len(links.graph_before):
        number = np.full(len(trace), NONE, np.int64)
        number[work.event] = np.arange(len(work))
        before, after = number[links.graph_before], number[links.graph_after]
        known = (before != NONE) & (after != NONE)
        before, after = before[known], after[known]
        graph.add_edges(EdgeKind.GRAPH, graph.work_ends(before), graph.work_starts(after), work.event[after])
        return
    _, index, counts = np.unique(work.launch, return_inverse=True, return_counts=True)
    replayed = np.flatnonzero(work.is_launched & (counts[index] > 1))
    launch = work.launch[replayed].astype(np.int64)
    sibling = find_last_ended(launch, work.end[replayed], launch, work.start[replayed], graph.window.start)
    source, target = replayed[sibling], replayed
    joined = (sibling != NONE) & _lacks_predecessor(graph, replayed) & (work.lane[source] != work.lane[target])
    source, target = source[joined], target[joined]
    graph.add_edges(EdgeKind.GRAPH, graph.work_ends(source), graph.work_starts(target), work.event[target])


def _lacks_predecessor(graph: GraphColumns, replayed: I64) -> Bool:
    """Select work of replays that follows no work of the same replay on its stream at once: bool[k]."""
    work = graph.window.work
    lane = work.lane[replayed].astype(np.int64)
    before = find_last_ended(lane, work.end[replayed], lane, work.start[replayed], graph.window.start)
    same = (before != NONE) & (work.launch[replayed[before]] == work.launch[replayed])
    lacking: Bool = ~same | (work.start[replayed] - work.end[replayed[before]] > SHORT_GAP)
    return lacking
