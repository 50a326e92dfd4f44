"""Choose the steps of a trace that are compared: those asked for, else the steady ones without the warm-up."""

from __future__ import annotations

from torchprof_tui.analysis.compare.op_tree import Side
from torchprof_tui.analysis.compare.step_selection import AUTOMATIC, ComparisonError, StepSelection
from torchprof_tui.analysis.patterns.engine.check_scope import default_scope
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.rules.warmup import find_steady_steps
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Step


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
