"""Choose the steps of a trace that are compared: those asked for, else the steady ones without the warm-up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.compare.chance import estimate_spread
from torchprof_tui.analysis.compare.op_tree import Side
from torchprof_tui.analysis.compare.step_selection import AUTOMATIC, ComparisonError, StepSelection
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.check_scope import default_scope
from torchprof_tui.analysis.patterns.engine.scope_view import format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.rules.warmup import find_cold_calls, find_warming_steps
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import F64
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Step

_OUTLIER_SPREADS = 3.0
"""A first step that is this many standard deviations above the later ones is no steady step: by chance 1 in 700 is."""

_OUTLIER_SHARE = 0.1
"""It must also be a tenth longer: the spread of two or three steps can be next to nothing by chance."""

_MIN_STEADY_STEPS = 2
"""Steps that the warm-up leaves for a spread of their own, unless cold calls fill the others."""


_MAX_WARMUP_STEPS = 100
"""No program warms up for longer; a file that says so is compared from here."""


@dataclass(frozen=True, slots=True)
class SteadySteps:
    """The index of the first steady step, and why the steps before it are none: one sentence each."""

    first: int
    left_out: tuple[str, ...]


def choose_side(tables: TraceTables, label: str, selection: StepSelection = AUTOMATIC) -> Side:
    """Choose the compared steps of a trace. Raises ComparisonError where none are as asked for."""
    trace, table = tables.trace, tables.steps
    by_event = {step.event: step for step in (*trace.profiler_steps, *trace.steps)}
    steps = [by_event[row] for row in table.row.tolist()]
    if selection.time_range is not None:
        return _choose_range(tables, label, steps, selection.time_range)
    if selection.numbers is not None:
        return _make_side(tables, label, _select_numbers(steps, selection.numbers))
    if not steps:
        scope = default_scope(trace)
        return Side(trace, label, (scope.t0, scope.t1), ())
    steady = find_steady_steps(tables)
    return _make_side(tables, label, steps[steady.first :], steady.left_out)


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


def _select_numbers(steps: list[Step], numbers: tuple[int, int]) -> list[Step]:
    first, last = numbers
    chosen = [step for step in steps if first <= step.number <= last]
    if chosen:
        return chosen
    asked = f"#{first}" if first == last else f"#{first} to #{last}"
    raise ComparisonError(f"no step {asked}: {describe_steps(steps)}")


def describe_steps(steps: list[Step]) -> str:
    """Describe which steps a trace has: "it has steps #2 to #4"."""
    if not steps:
        return "it has no steps; leave --steps out to compare the whole trace, or give --range"
    first, last = steps[0].number, steps[-1].number
    return f"it has step #{first}" if first == last else f"it has steps #{first} to #{last}"


def _choose_range(tables: TraceTables, label: str, steps: list[Step], time_range: tuple[int, int]) -> Side:
    """Choose the steps that lie in a time range; without any the part of the range that was recorded, as one piece."""
    t0, t1 = time_range
    inside = [step for step in steps if t0 <= step.start and step.start + step.duration <= t1]
    if inside:
        return _make_side(tables, label, inside)
    scope = default_scope(tables.trace)
    first, last = max(t0, scope.t0), min(t1, scope.t1)
    if last <= first:
        recorded = f"{format_duration(scope.t0)} to {format_duration(scope.t1)}"
        raise ComparisonError(f"nothing in that range: the trace lasts from {recorded}")
    return Side(tables.trace, label, (first, last), ())


def _make_side(tables: TraceTables, label: str, steps: list[Step], left_out: tuple[str, ...] = ()) -> Side:
    window = steps[0].start, max(step.start + step.duration for step in steps)
    return Side(tables.trace, label, (window[0], max(window[1], window[0] + 1)), tuple(steps), left_out)
