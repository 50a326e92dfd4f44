"""Edges between the main thread and that of autograd, which takes over for the backward pass.

The calling thread runs no op meanwhile: between two of its ops lie ops of autograd's thread. Nothing in a trace says
so, only the times and who ran backward ops do.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.critical_path.dependency_graph import EdgeKind, GraphColumns
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import is_in
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace

_BACKWARD = compile_later(r"autograd::engine::evaluate_function|\w+Backward\d*$|CompiledFunctionBackward")


def find_autograd_lanes(trace: Trace, main: int, start: int, end: int) -> list[int]:
    """Find the threads other than `main` that run backward ops between two times."""
    is_backward = match_names(trace, _BACKWARD.match)
    found = []
    for number, lane in enumerate(trace.lanes):
        if lane.role is Role.THREAD and number != main and len(lane):
            rows = slice(lane.first, lane.last)
            inside = (trace.start[rows] < end) & (trace.start[rows] >= start) & (trace.kind[rows] == Kind.OP)
            if is_backward[rows][inside].any():
                found.append(number)
    return found


def add_hand_overs(graph: GraphColumns, trace: Trace) -> list[int]:
    """Add edges from the calling thread to autograd's and back, for each gap of the first; return autograd's lanes."""
    window = graph.window
    lanes = find_autograd_lanes(trace, window.lane, window.start, window.cpu_end)
    if not lanes:
        return lanes
    main = _find_calls(trace, window.lane, window.start, window.cpu_end)
    gap_start = np.append(window.start, main.ends)
    gap_end = np.append(main.starts, window.cpu_end)
    for lane in lanes:
        calls = _find_calls(trace, lane, window.start, window.cpu_end)
        first = calls.starts.searchsorted(gap_start, side="left")
        last = calls.ends.searchsorted(gap_end, side="right") - 1
        chosen = np.flatnonzero(last >= first)
        begin, end = calls.starts[first[chosen]], calls.ends[last[chosen]]
        leave = gap_start[chosen]
        back = gap_end[chosen]
        own, other = (np.full(len(leave), number, np.int32) for number in (graph.window.lane, lane))
        started = graph.add_points(other, begin)
        returned = graph.add_points(own, back)
        graph.add_edges(EdgeKind.HAND_OVER, graph.add_points(own, leave), started)
        graph.add_edges(EdgeKind.HAND_OVER, graph.add_points(other, end), returned)
        graph.add_waits(started, np.zeros(len(leave), np.int64))
        graph.add_waits(returned, (begin - leave) + (back - end))
    return lanes


def _find_calls(trace: Trace, lane: int, start: int, end: int) -> Intervals:
    """Find when a thread is inside ops or runtime calls."""
    rows = slice(trace.lanes[lane].first, trace.lanes[lane].last)
    chosen = is_in(trace.kind[rows], (Kind.OP, Kind.RUNTIME))
    first = trace.start[rows][chosen]
    return union(first, first + trace.duration[rows][chosen]).clip(start, end)
