"""The pattern of a program without a GPU whose ops wait for CPU cores that other threads or programs hold."""

from __future__ import annotations

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.evidence import find_event_places
from torchprof_tui.analysis.patterns.engine.missing_data import NO_CPU, NO_GPU
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Section,
    Severity,
    absent_answer,
    cannot_tell_answer,
    fired_answer,
)
from torchprof_tui.analysis.patterns.engine.registry import register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_percent
from torchprof_tui.analysis.patterns.engine.slow_calls import find_slow_calls
from torchprof_tui.trace.core.time_format import format_duration

CPU_CONTENTION_ID = "cpu-contention"


@register_pattern(
    CPU_CONTENTION_ID,
    Section.BEYOND,
    "Ops wait for CPU cores",
    meaning="the same op with the same work is fast in most calls and very slow in others: its threads wait for cores "
    "that are busy with other threads or programs, or that are not there",
    action="use fewer threads, or run fewer other programs: the cores are shared",
    code="torch.set_num_threads(n)  # or OMP_NUM_THREADS; compare with 1",
    decided="In a trace without GPU activity: self time of an op's calls on the main thread above ten times their "
    "median, and above ten times the fastest call at the same position of another step. Only ops with enough calls and "
    "enough such calls count, and input shapes must be those of other calls, where they were recorded. The time must "
    "reach the limit after the first step as well.",
    thresholds=(
        thresholds.CONTENTION_RATIO,
        thresholds.CONTENTION_GROUP_MIN,
        thresholds.CONTENTION_CALLS_SHARE,
        thresholds.CONTENTION_MIN_CALLS,
        thresholds.CONTENTION_SHARE,
    ),
    severity=Severity.PROBLEM,
)
def cpu_contention(view: ScopeView) -> Answer:
    tables = view.tables
    if len(tables.work):
        return absent_answer("with a GPU, what ops wait for counts as a cause of its idle time: idle-gap")
    if missing_reason := (NO_GPU if len(tables.calls) else "" if len(tables.ops) else NO_CPU):
        return cannot_tell_answer(missing_reason)
    found = tables.compute_once(find_slow_calls)
    if not found.is_recurring:
        return absent_answer()
    in_scope = view.overlap_mask(found.calls.start, found.calls.end)
    calls, excess = found.calls.select(in_scope), found.excess[in_scope]
    lost = min(int(excess.sum()), view.covered_time(calls))
    share = lost / max(view.window_length, 1)
    if share < thresholds.CONTENTION_SHARE.value:
        return absent_answer(f"slow calls take {format_percent(share)} of this range more than is usual")
    if not found.is_comparable:
        return cannot_tell_answer(
            "some calls of an op take over ten times its median, but neither input shapes nor steps with the same "
            "calls were recorded: they may have more to do (record_shapes=True)"
        )
    time = min(int(found.time[in_scope].sum()), view.window_length)
    return fired_answer(
        f"{view.trace.names[found.name]}: median {format_duration(found.median)}, but "
        f"{format_duration(found.slowest)} or more in {found.percent} % of {found.count:,} calls; calls over ten times "
        f"their op's median take {format_percent(time / max(view.window_length, 1))} of {view.window_label}",
        calls.row,
        lost,
        places=find_event_places(view.trace, calls.row, excess),
    )
