"""The pattern of a profiler that slows what it measures."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Severity, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_percent
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.time_format import format_duration


@register_pattern(
    "The profiler slows the program",
    meaning="recording a Python frame takes CPU time, so steps get longer where the GPU waits for the CPU",
    action="record without stacks to measure times, and with stacks to find lines of code",
    code="torch.profiler.profile(with_stack=False, record_shapes=False, profile_memory=False)",
    decided="The number of recorded Python frames times the cost of one, at most the time in which the CPU worked "
    "while the GPU was idle, over the length of the scope, if the GPU is not the limit. The cost is an estimate "
    "from one program that was recorded with and without stacks.",
    thresholds=(thresholds.FRAME_COST, thresholds.INFLATION_SHARE, thresholds.GPU_BUSY_HIGH),
    severity=Severity.ARTEFACT,
)
def profiler_inflation(view: ScopeView) -> Answer:
    tables = view.tables
    all_frames = tables.practices.python_frames
    if not len(all_frames):
        if not len(tables.ops):
            return Answer.cannot_tell("no CPU thread was recorded")
        return Answer.absent("recorded without Python stacks")
    frames = view.select_in_scope(tables.select_on_launch_lanes(all_frames))
    started, cost = estimate_frame_cost(view)
    share = min(cost / view.scope.length, 1.0)
    summary = f"{started:,} Python frames of 2 to 4 µs each cost up to {format_duration(cost)}"
    if len(tables.work) and view.busy_share > thresholds.GPU_BUSY_HIGH.value:
        return Answer.absent(f"{summary}, hidden behind the GPU")
    if share < thresholds.INFLATION_SHARE.value:
        return Answer.absent(f"{summary}: {format_percent(share)} of the time")
    evidence = view.steps.row if len(view.steps) else _select_outermost(view, frames.row)
    return Answer.fired(f"{summary}: {format_percent(share)} of the time", evidence)


def estimate_frame_cost(view: ScopeView) -> tuple[int, int]:
    """Estimate what recording Python frames costs the program at most: (number of frames in the scope, ns).

    Frames of launching threads, and at most the time in which the CPU worked while the GPU had nothing to do: what is
    beyond that is hidden behind the GPU.
    """
    tables = view.tables
    frames = view.select_in_scope(tables.select_on_launch_lanes(tables.practices.python_frames))
    started = int((frames.start >= view.scope.t0).sum())
    cost = started * int(thresholds.FRAME_COST.value)
    if not len(tables.work):
        return started, min(cost, view.scope.length)
    times = view.gaps.time_by_cause()
    waited = sum(times.get(cause, 0) for cause in _CPU_WORKS) // len(tables.devices)
    return started, min(cost, waited)


_CPU_WORKS = (
    IdleCause.DISPATCH,
    IdleCause.LAUNCH,
    IdleCause.HOST,
    IdleCause.CPU_COMPUTE,
    IdleCause.COLD_CALL,
    IdleCause.INPUT,
)
"""Idle time of the GPU in which the CPU runs the program, and does not wait itself."""


def _select_outermost(view: ScopeView, rows: I64) -> I64:
    """Select the frames that lie in no other event."""
    outermost = rows[np.asarray(view.trace.parent[rows]) < 0]
    return outermost if len(outermost) else rows[:1]
