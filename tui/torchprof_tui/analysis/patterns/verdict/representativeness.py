"""Find why a recording does not represent the program: not warmed up, or slowed by the profiler."""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.scope_view import format_percent
from torchprof_tui.analysis.patterns.rules.profiler_cost import estimate_frame_cost
from torchprof_tui.analysis.patterns.rules.warmup import find_warming_steps
from torchprof_tui.analysis.patterns.verdict.diagnosis import Evidence
from torchprof_tui.trace.core.time_format import format_duration


@dataclass(frozen=True, slots=True)
class FirstStepLeadIn:
    """A recording whose idle time lies mostly in its first step: how busy the GPU was before and after its end."""

    share_of_idle: float
    busy_afterwards: float


def find_first_step_lead_in(evidence: Evidence) -> FirstStepLeadIn | None:
    """Find whether the first step explains why the GPU was idle: later ones keep it busy. None if it does not."""
    view, steps = evidence.view, evidence.view.tables.steps
    if len(view.steps) < thresholds.LEAD_IN_MIN_STEPS.value or not len(view.work):
        return None
    t0, t1 = view.window
    second = int(view.steps.start[1])
    if int(view.steps.start[0]) != int(steps.start[0]) or not t0 < second < t1:
        return None
    # The first step's work may run on into the second: the queue that it left is what keeps the GPU busy.
    later = view.gap_finder.clip(second, t1)
    idle_later, idle_all = int(later.program_time.sum()), int(view.gaps.program_time.sum())
    later_time = (t1 - second) * len(view.tables.devices)
    busy_afterwards = 1 - int(later.duration.sum()) / later_time
    if busy_afterwards < thresholds.GPU_BUSY_HIGH.value or idle_later > thresholds.LEAD_IN_SHARE.value * idle_all:
        return None
    return FirstStepLeadIn(1 - idle_later / max(idle_all, 1), busy_afterwards)


def find_recording_fault(evidence: Evidence) -> str:
    """Say why the numbers of this scope are not those of the program, "" if they are."""
    cold = evidence.idle(IdleCause.COLD_CALL) - evidence.op_compilation  # which later steps do as well
    if cold >= thresholds.COLD_SHARE.value:
        return f"not warmed up: cold calls take {format_percent(cold)} of the time; record later steps"
    if "not-warmed-up" in evidence.fired:
        warming = evidence.view.tables.compute_once(find_warming_steps)
        if not warming.count:
            return "not warmed up: record later steps"
        first, last = (format_duration(warming.durations[index]) for index in (0, warming.count - 1))
        return f"not warmed up ({first}, then {last} a step)"
    if "profiler-inflation" in evidence.fired and evidence.shares.busy < thresholds.GPU_BUSY_MOSTLY.value:
        _, cost = estimate_frame_cost(evidence.view)
        share = min(cost / evidence.view.scope.length, 1.0)
        return f"Python stacks cost up to {format_percent(share)} of the time; record without them to measure"
    return ""


def find_fault_pattern(evidence: Evidence) -> str:
    """Find the pattern of lost time that says why the recording does not represent the program: its id, "" for none."""
    cold = evidence.idle(IdleCause.COLD_CALL) - evidence.op_compilation
    if cold >= thresholds.COLD_SHARE.value:
        return "cold-call"
    if "not-warmed-up" in evidence.fired:
        return "not-warmed-up"
    return "first-step-wide" if find_first_step_lead_in(evidence) is not None else ""
