"""Divide the time of a scope into parts that sum to it: GPU work by class, idle time by cause, patterns inside.

Every nanosecond of a scope is counted once for each device: the GPU computes, copies or communicates, or it is idle for
one cause, or the program did not run. Inside a part the fired patterns that explain it are listed with the time that
their evidence covers, the narrowest first, and no time twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchprof_tui.analysis.patterns.engine.device_time import exposed_intervals
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.verdict.claims import Claims, divide_compute, list_copy_intervals
from torchprof_tui.analysis.patterns.verdict.tree_lines import part_sort_key
from torchprof_tui.analysis.patterns.verdict.tree_model import (
    COMPUTE,
    COPIES,
    EXPOSED,
    OUTSIDE,
    TimePart,
    TimeTree,
)
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals

_LABELS = {
    COMPUTE: "GPU computes",
    COPIES: "copies without compute",
    EXPOSED: "collectives without compute",
}

_UNEXPLAINED = (IdleCause.PROFILER, IdleCause.UNKNOWN, IdleCause.LEAD_IN)
"""Idle time that no pattern of the program explains."""


def build_time_tree(view: ScopeView, findings: Sequence[Finding] = ()) -> TimeTree:
    """Divide a scope with GPU work into parts; without `findings` no patterns are listed inside."""
    tables, gaps = view.tables, view.gaps
    device_count = max(len(tables.devices), 1)
    claims = Claims(view, findings)
    exposed, copies, compute = exposed_intervals(view), list_copy_intervals(view), divide_compute(view)
    parts = [
        TimePart(COMPUTE, _LABELS[COMPUTE], int(compute.sum()), claims.divide_work(compute)),
        TimePart(COPIES, _LABELS[COPIES], _total(copies), claims.claim(copies, of_gpu=True)),
        TimePart(EXPOSED, _LABELS[EXPOSED], _total(exposed), claims.claim(exposed, of_gpu=True)),
    ]
    for cause, time in gaps.time_by_cause().items():
        is_explained = bool(claims) and cause not in _UNEXPLAINED
        idle = {
            device: view.gap_finder.find_cause_intervals(cause, device).clip(*view.window)
            if is_explained
            else NO_INTERVALS
            for device in tables.devices
        }
        parts.append(TimePart(cause.id, f"idle: {cause.label}", time, claims.claim(idle, of_gpu=False)))
    total = view.scope.length * device_count
    outside = total - sum(part.time for part in parts)
    parts.append(TimePart(OUTSIDE, "outside the steps" if len(view.steps) else "outside the program", outside))
    parts.sort(key=part_sort_key)
    return TimeTree(tuple(part for part in parts if part.time), total, device_count)


def _total(intervals: dict[int, Intervals]) -> int:
    return sum(part.total for part in intervals.values())
