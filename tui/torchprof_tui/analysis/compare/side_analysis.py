"""What is measured of one compared recording: the bounds of its steps, the checks of them, their launches.

The compared steps are those asked for, else the steady ones without the warm-up.
"""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from dataclasses import replace
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.compare.op_tree import Side
from torchprof_tui.analysis.compare.step_selection import AUTOMATIC, ComparisonError, StepSelection
from torchprof_tui.analysis.patterns.engine.check_scope import Scope, default_scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.rules.warmup import (
    count_calls,
    find_launched_work,
    find_launches,
    find_steady_steps,
)
from torchprof_tui.analysis.patterns.verdict.costs import price_findings
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict, tell_costs
from torchprof_tui.trace.core.arrays import F64, I64, Bool
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Step, Trace


class SideAnalysis:
    """The measurements of one side, each computed on first use. `side`: what is compared of the trace."""

    def __init__(self, trace: Trace, label: str, selection: StepSelection = AUTOMATIC) -> None:
        self.checker = Checker(trace, with_serving_steps=not selection.is_automatic)
        self.side: Side = choose_side(self.checker.tables, label, selection)

    def keep_steps(self, numbers: Collection[int]) -> SideAnalysis:
        """Return the analysis of the compared steps that have one of these numbers; there must be one."""
        steps = tuple(step for step in self.side.steps if step.number in numbers)
        if len(steps) == len(self.side.steps):
            return self
        reasons = [f"step #{step.number}: not compared of the other rank" for step in self.side.steps]
        left_out = [reason for step, reason in zip(self.side.steps, reasons, strict=True) if step not in steps]
        window = steps[0].start, max(step.start + step.duration for step in steps)
        kept = copy(self)
        kept.__dict__ = {
            "checker": self.checker,
            "side": replace(self.side, window=window, steps=steps, left_out=(*self.side.left_out, *left_out)),
        }
        return kept

    @property
    def trace(self) -> Trace:
        return self.side.trace

    @cached_property
    def step_bounds(self) -> I64:
        """int64[steps + 1]: when each compared step was complete, ns; the span's two ends without steps."""
        table = self.checker.tables.steps
        if not self.side.steps:
            return np.array(self.side.window, dtype=np.int64)
        events = {step.event for step in self.side.steps}
        chosen = [index for index, row in enumerate(table.row.tolist()) if row in events]
        bounds: I64 = self.checker.tables.step_bounds[chosen[0] : chosen[-1] + 2].copy()
        bounds[-1] = max(int(bounds[-1]), int(bounds[0]) + 1)
        return bounds

    @property
    def span(self) -> tuple[int, int]:
        """The measured time, ns: from where the step before the first was complete to where the last one is."""
        return int(self.step_bounds[0]), int(self.step_bounds[-1])

    @cached_property
    def step_durations(self) -> F64:
        """float64[steps]: ns of each compared step; one value without steps."""
        return np.diff(self.step_bounds).astype(np.float64)

    @cached_property
    def scope(self) -> Scope:
        """The span as a scope of checks; without steps the whole trace, which keeps its own meaning."""
        whole = default_scope(self.trace)
        if not self.side.steps and self.span == (whole.t0, whole.t1):
            return whole
        return Scope(*self.span, "compared steps" if self.side.steps else "range")

    @cached_property
    def view(self) -> ScopeView:
        """The checker's view of the scope."""
        return self.checker.view(self.scope)

    @cached_property
    def has_gpu_work(self) -> bool:
        return bool(len(self.view.work))

    @cached_property
    def findings(self) -> list[Finding]:
        """The patterns in the compared steps."""
        return self.checker.check(self.scope)

    @cached_property
    def verdict(self) -> Verdict:
        verdict = self.checker.decide_verdict(self.scope, self.findings)
        return tell_costs(verdict, price_findings(self.view, self.findings, verdict))

    @cached_property
    def _launched(self) -> Bool:
        """bool[work]: work that was launched in the compared steps; work in the span without steps."""
        tables = self.checker.tables
        if not self.side.steps:
            return self.view.overlap_mask(tables.work.events.start, tables.work.events.end)
        return find_launched_work(tables, *self.side.window)

    @cached_property
    def work_per_step(self) -> float:
        """Kernels, copies and fills of one step."""
        return float(self._launched.sum()) / self.side.step_count

    @cached_property
    def launches(self) -> I64:
        """int64[k]: the launch of each piece of GPU work of the compared steps, without work of no known launch."""
        return find_launches(self.checker.tables, self._launched)

    @cached_property
    def launches_per_step(self) -> float:
        """Calls of one step that launched GPU work: the launch of a graph is one call."""
        return count_calls(self.launches) / self.side.step_count


def are_same_steps(a: SideAnalysis, b: SideAnalysis) -> bool:
    """Return whether two sides are the same steps of two ranks of one run, which wait for each other in collectives."""
    numbers = [[step.number for step in side.side.steps] for side in (a, b)]
    return bool(numbers[0]) and numbers[0] == numbers[1] and are_ranks_of_one_run(a.trace, b.trace)


def are_ranks_of_one_run(a: Trace, b: Trace) -> bool:
    """Return whether two traces are of two ranks of one run: equally many ranks, recorded at the same time."""
    if a.rank is None or b.rank is None or a.rank == b.rank or a.world_size != b.world_size:
        return False
    bases = (trace.header.get("baseTimeNanoseconds") for trace in (a, b))
    base_a, base_b = (base if isinstance(base, int) else 0 for base in bases)
    begin_a, begin_b = base_a + a.origin, base_b + b.origin  # on the clock of the run
    return max(begin_a, begin_b) < min(begin_a + a.span[1], begin_b + b.span[1])


def choose_side(tables: TraceTables, label: str, selection: StepSelection = AUTOMATIC) -> Side:
    """Choose the compared steps of a trace. Raises ComparisonError where none are as asked for."""
    trace, table = tables.trace, tables.steps
    by_event = {step.event: step for step in (*trace.profiler_steps, *trace.steps)}
    steps = [by_event[row] for row in table.row.tolist()]
    if selection.time_range is not None:
        t0, t1 = selection.time_range
        inside = [step for step in steps if t0 <= step.start and step.start + step.duration <= t1]
        if inside:
            return _make_side(tables, label, inside)
        whole = default_scope(tables.trace)
        begin, end = max(t0, whole.t0), min(t1, whole.t1)
        if end <= begin:
            recorded = f"{format_duration(whole.t0)} to {format_duration(whole.t1)}"
            raise ComparisonError(f"nothing in that range: the trace lasts from {recorded}")
        return Side(tables.trace, label, (begin, end), ())
    if selection.numbers is not None:
        first, last = selection.numbers
        chosen = [step for step in steps if first <= step.number <= last]
        if not chosen:
            asked = f"#{first}" if first == last else f"#{first} to #{last}"
            raise ComparisonError(f"no step {asked}: {describe_steps(steps)}")
        return _make_side(tables, label, chosen)
    if not steps:
        scope = default_scope(trace)
        return Side(trace, label, (scope.t0, scope.t1), ())
    steady = find_steady_steps(tables)
    return _make_side(tables, label, steps[steady.first :], steady.left_out)


def describe_steps(steps: list[Step]) -> str:
    """Describe which steps a trace has: "it has steps #2 to #4"."""
    if not steps:
        return "it has no steps; leave --steps out to compare the whole trace, or give --range"
    first, last = steps[0].number, steps[-1].number
    return f"it has step #{first}" if first == last else f"it has steps #{first} to #{last}"


def _make_side(tables: TraceTables, label: str, steps: list[Step], left_out: tuple[str, ...] = ()) -> Side:
    window = steps[0].start, max(step.start + step.duration for step in steps)
    return Side(tables.trace, label, (window[0], max(window[1], window[0] + 1)), tuple(steps), left_out)
