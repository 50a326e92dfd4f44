"""Select a range of time, or a repetition where no steps were recorded, as the window of a critical path.

The path of a range ends at the GPU work that runs at the end of the range, else at the thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.critical_path.autograd_edges import find_autograd_lanes
from torchprof_tui.analysis.critical_path.dependency_graph import DependencyGraph
from torchprof_tui.analysis.critical_path.step_window import (
    StepWindow,
    WindowError,
    find_main_lane,
    select_window_between,
)
from torchprof_tui.analysis.repetition.repetitions import find_repetitions
from torchprof_tui.analysis.repetition.step_list import REPETITION
from torchprof_tui.trace.core.arrays import NONE, is_in, sorted_unique
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.steps import Step
from torchprof_tui.trace.model.trace import Trace


def select_range(trace: Trace, start: int, end: int) -> StepWindow:
    """Select the window of a range, ns. Raises WindowError if nothing was recorded in it."""
    first, last = trace.span
    start, end = max(start, first), min(end, last)
    if end <= start:
        raise WindowError("nothing to follow: nothing was recorded in this range")
    window = select_window_between(trace, None, _find_lane(trace, start, end), start, end)
    kept = window.work.select(window.work.start < end)
    kept = replace(kept, end=np.minimum(kept.end, end))
    # A thread that waits for the GPU at the end says less than the work that it waits for: the path ends at that work.
    is_busy = bool((kept.end == end).any())
    return replace(window, cpu_end=end - 1 if is_busy and end - start > 1 else end, end=end, work=kept, is_range=True)


def select_repetition(trace: Trace, number: int) -> Step:
    """Select a repetition of a trace without steps. Raises WindowError if there is none of this number."""
    steps = find_repetitions(trace).list_steps()
    if not 0 <= number < len(steps):
        known = f"{REPETITION}s {steps[0].number} to {steps[-1].number}" if steps else "neither steps nor repetitions"
        raise WindowError(f"no step {number}: the trace has {known}")
    return steps[number]


def _find_lane(trace: Trace, start: int, end: int) -> int:
    """Find the thread that runs a range: that of its steps, else of most launches, not autograd's if another launched.

    Autograd's thread works for the one that called `backward()`; the graph has edges between them.
    """
    overlaps = [min(step.start + step.duration, end) - max(step.start, start) for step in trace.steps]
    if overlaps and max(overlaps) > 0:
        return int(trace.lane[trace.steps[overlaps.index(max(overlaps))].event])
    launches = trace.links.launch_of
    launches = sorted_unique(launches[launches != NONE])
    launches = launches[(trace.start[launches] >= start) & (trace.start[launches] < end)]
    if not len(launches):
        return find_main_lane(trace)
    counts = np.bincount(trace.lane[launches], minlength=len(trace.lanes))
    others = counts.copy()
    others[find_autograd_lanes(trace, NONE, start, end)] = 0
    return int((others if others.any() else counts).argmax())


def end_on_autograd(trace: Trace, graph: DependencyGraph, autograd_lanes: Sequence[int]) -> DependencyGraph:
    """Let the path of a range that ends during a backward pass end on autograd's thread, which does the work."""
    window = graph.window
    if not window.is_range or window.end > window.cpu_end or _is_in_call(trace, window.lane, window.end):
        return graph
    for lane in autograd_lanes:
        nodes = np.flatnonzero((graph.node_lane == lane) & (graph.time == window.end))
        if len(nodes) and _is_in_call(trace, lane, window.end):
            return replace(graph, last=int(nodes[0]))
    return graph


def _is_in_call(trace: Trace, number: int, time: int) -> bool:
    """Return whether a thread is inside an op or a runtime call just before a time."""
    lane = trace.lanes[number]
    rows = slice(lane.first, lane.last)
    inside = (trace.start[rows] < time) & (trace.start[rows] + trace.duration[rows] >= time)
    return bool(is_in(trace.kind[rows][inside], (Kind.OP, Kind.RUNTIME)).any())
