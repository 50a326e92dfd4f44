"""Find the steady steps of a trace, without its warm-up, and measure one of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.scope_view import format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.rules.warmup import find_cold_calls, find_warming_steps
from torchprof_tui.analysis.time.chance import estimate_spread
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.analysis.time.step_bounds import find_launch_starts
from torchprof_tui.trace.core.arrays import F64, I64, Bool, sorted_unique
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

_OUTLIER_SPREADS = 3.0
"""A first step that is this many standard deviations above the later ones is no steady step: by chance 1 in 700 is."""

_OUTLIER_SHARE = 0.1
"""It must also be a tenth longer: the spread of two or three steps can be next to nothing by chance."""

_MIN_STEADY_STEPS = 2  # steps that the warm-up leaves for a spread of their own, unless cold calls fill the others
_MAX_WARMUP_STEPS = 100  # no program warms up for longer; a file that says so is compared from here
_HALF_TOLERANCE = 0.05  # launches that go down by 45 to 55 % go down by half


@dataclass(frozen=True, slots=True)
class SteadySteps:
    """The index of the first steady step, and why the steps before it are none: one sentence each."""

    first: int
    left_out: tuple[str, ...]


def find_steady_steps(tables: TraceTables) -> SteadySteps:
    """Find where the warm-up ends: the first steps are left out while they are no steps like the later ones.

    A step warms up where it lasts longer than the spread of the steps after it explains, where each step is faster than
    the one before, or where cold calls or the profiler's own start take it; the last step is always kept.
    """
    durations = np.diff(tables.step_bounds).astype(np.float64)
    count = len(durations)
    if count < 2:
        return SteadySteps(0, ())
    names = [f"step #{number}" for number in tables.steps.number.tolist()]
    cold, profiler = _measure_in_steps(tables, durations)
    first, reasons = 0, []
    warming = tables.compute_once(find_warming_steps)
    warming_count = min(max(warming.count - 1, 0), max(count - _MIN_STEADY_STEPS, 0))
    while first < min(count - 1, _MAX_WARMUP_STEPS):
        reason = _find_warmup_reason(durations[first:], cold[first:], profiler[first:])
        if not reason and first < warming_count:
            reason = "steps still get faster"
        if not reason:
            break
        usual = format_duration(float(np.median(durations[first + 1 :])))
        reasons.append(f"{names[first]} ({format_duration(durations[first])}, later ones {usual}): {reason}")
        first += 1
    return SteadySteps(first, tuple(reasons))


def _find_warmup_reason(durations: F64, cold: F64, profiler: F64) -> str:
    """Say why the first of these steps is none like the later ones, "" if it is. Shares of each step, 0..1."""
    for shares, what in ((cold, "cold calls take"), (profiler, "the profiler's own start takes")):
        if shares[0] >= thresholds.COLD_SHARE.value and 2 * float(np.median(shares[1:])) < shares[0]:
            return f"{what} {format_percent(float(shares[0]))} of it"
    later = durations[1:]
    usual = float(np.median(later))
    if len(later) < _MIN_STEADY_STEPS:
        return "longer than twice the other" if durations[0] > 2 * usual else ""
    limit = max(_OUTLIER_SPREADS * estimate_spread(later), _OUTLIER_SHARE * usual)
    return "longer than the spread of the later steps explains" if durations[0] > usual + limit else ""


def _measure_in_steps(tables: TraceTables, durations: F64) -> tuple[F64, F64]:
    """Measure the share of each step that cold calls take, and the profiler's own work: float64[s] each, 0..1."""
    bounds = tables.step_bounds
    calls = tables.compute_once(find_cold_calls)

    def share(times: Intervals) -> F64:
        shares: F64 = np.diff(times.measure_before(bounds)) / np.maximum(durations, 1)
        return shares

    return share(union(calls.start, calls.end)), share(tables.overhead_intervals)


def find_launched_work(tables: TraceTables, start: int, end: int) -> Bool:
    """Find the GPU work that was launched in a time range, ns: bool[work]."""
    launched_at = find_launch_starts(tables.trace, tables.work.events.row)
    launched: Bool = (launched_at >= start) & (launched_at < end)
    return launched


def find_launches(tables: TraceTables, launched: Bool) -> I64:
    """Find the launch of each piece of this GPU work, bool[work]: int64[k], without work of no known launch."""
    launch = tables.work.launch[launched]
    return launch[launch >= 0].astype(np.int64)


def count_calls(launches: I64) -> int:
    """Count the calls that launched GPU work: the launch of a graph is one call."""
    return len(sorted_unique(launches))


@dataclass(frozen=True, slots=True)
class StepWork:
    """What a steady step of a trace does, on average: ns, calls that launch GPU work, kernels, copies and fills."""

    time: float
    launches: float
    kernels: float
    moves: float


def measure_step_work(tables: TraceTables) -> StepWork | None:
    """Measure the steady steps, as `diff` does; None for a trace without steps."""
    count = len(tables.steps)
    if not count:
        return None
    first = find_steady_steps(tables).first
    steps = count - first
    start, end = int(tables.steps.start[first]), int(tables.steps.end[first:].max())
    launched = find_launched_work(tables, start, max(end, start + 1))
    kernels = int((launched & tables.work.kind_mask(Kind.KERNEL, Kind.COLLECTIVE)).sum())
    return StepWork(
        float(tables.step_bounds[-1] - tables.step_bounds[first]) / steps,
        count_calls(find_launches(tables, launched)) / steps,
        kernels / steps,
        (int(launched.sum()) - kernels) / steps,
    )


def describe_launches(a: float, b: float) -> str:
    """Describe how many calls of a step launch GPU work, and whether they go down by half; "" without any."""
    if not a and not b:
        return ""
    counts = f"launches a step: {format_per_step(a)} → {format_per_step(b)}"
    if a == b or not a:
        return counts
    change = b / a - 1
    if change >= 0:
        return f"{counts} (+{format_percent(change)})"
    if abs(change + 0.5) <= _HALF_TOLERANCE:
        by_half = "down by half"
    else:
        by_half = f"down by {'more' if change < -0.5 else 'less'} than half"
    return f"{counts} (-{format_percent(-change)}, {by_half})"


def format_per_step(count: float) -> str:
    """Format a count per step, with a digit where it is no whole number."""
    return f"{count:,.0f}" if count == int(count) or count >= 100 else f"{count:.1f}"
