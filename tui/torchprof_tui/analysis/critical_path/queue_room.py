"""Edges to launch calls that wait because the queue of the GPU is full.

The driver holds about a thousand launches; then a call returns when the GPU has begun another one. Nothing recorded
says so: a long call with hundreds of works waiting behind it does.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.critical_path.dependency_graph import EdgeKind, GraphColumns
from torchprof_tui.analysis.critical_path.launch_edges import find_last_ended
from torchprof_tui.trace.model.trace import Trace

LONG_LAUNCH = 15_000
"""ns: launch calls usually take 5 to 10 µs."""

FULL_QUEUE = 500
"""Works launched and not begun from which a long call is taken to wait for room; 886 to 894 on an H200, CUDA 13."""

OWN_TIME = 5_000
"""ns that such a call takes at most by itself."""


def add_queue_room(graph: GraphColumns, trace: Trace) -> None:
    """Add edges from the work that ended last on the stream to the return of launch calls that waited for room."""
    window, work = graph.window, graph.window.work
    long = work.is_launched & (work.launch_end - work.launch_start > LONG_LAUNCH) & (work.launch_start >= window.start)
    number = np.flatnonzero(long & (work.launch_end <= window.cpu_end) & (work.start > work.launch_end))
    if len(work) < FULL_QUEUE or not len(number):
        return
    returned = work.launch_end[number]
    launched = np.searchsorted(np.sort(work.launch_start[work.is_launched]), work.launch_start[number], side="right")
    begun = np.searchsorted(np.sort(work.start[work.is_launched]), returned, side="right")
    number, returned = number[launched - begun >= FULL_QUEUE], returned[launched - begun >= FULL_QUEUE]
    lane = work.lane.astype(np.int64)
    source = find_last_ended(lane, work.end, lane[number], returned, window.start)
    number, returned, source = number[source >= 0], returned[source >= 0], source[source >= 0]
    thread = trace.lane[work.launch[number]]
    graph.add_points(thread, work.launch_start[number])
    target = graph.add_points(thread, returned)
    graph.add_edges(EdgeKind.ROOM, graph.work_ends(source), target, work.launch[number])
    graph.add_waits(target, np.minimum(returned - work.launch_start[number], OWN_TIME))
