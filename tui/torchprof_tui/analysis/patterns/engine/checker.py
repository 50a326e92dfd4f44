"""All patterns of the cheatsheet over one trace, in any scope of it.

    checker = Checker(trace)                        # once a trace: what patterns share is computed when asked for
    findings = checker.check(scope.whole(trace))    # all patterns in a scope, worst first
    checker.verdict(scope.time_range(t0, t1))       # the regime, GPU busy share, and what to do first
    checker.gaps(t0, t1)                            # why each GPU was idle, gap by gap

A `Checker` is not thread-safe while it fills its tables: `warm()` it on the thread that will ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.patterns.engine import check_scope as scopes
from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.gpu_gaps import GapFinder, Gaps
from torchprof_tui.analysis.patterns.engine.partial_input import of_a_slice, weighed
from torchprof_tui.analysis.patterns.engine.pattern import Finding, Pattern, Section, State, Weight
from torchprof_tui.analysis.patterns.engine.registry import registered
from torchprof_tui.analysis.patterns.engine.scope_view import View
from torchprof_tui.analysis.patterns.engine.trace_tables import Across, Facts
from torchprof_tui.analysis.patterns.engine.verdict import Verdict, verdict
from torchprof_tui.analysis.patterns.rules import (
    cpu_lane,
    dispatch_chain,
    gpu_kernels,
    gpu_lane,
    gpu_waits,
    multi_gpu,
    profiler_table,
    torch_compile,
)
from torchprof_tui.trace.core.arrays import I64, distinct
from torchprof_tui.trace.model.trace import Trace

_SECTIONS = list(Section)
_MODULES = (profiler_table, cpu_lane, gpu_lane, dispatch_chain, torch_compile, gpu_kernels, gpu_waits, multi_gpu)
"""Importing them registers their patterns."""

PATTERNS: dict[str, Pattern] = dict(sorted(registered().items(), key=lambda item: _SECTIONS.index(item[1].section)))
"""id -> pattern, by section."""

_STATES = (State.FIRED, State.CANNOT_TELL, State.ABSENT)
_WEIGHTS = tuple(Weight)


class Checker:
    """Answers the cheatsheet for any scope of one process's trace. `across`: where it is one of several ranks."""

    def __init__(self, trace: Trace, across: Across | None = None) -> None:
        self.trace = trace
        self.facts = Facts(trace, across)
        self.finder = GapFinder(self.facts)

    @cached_property
    def whole(self) -> Scope:
        """What is asked about unless told: all of it; of a slice the range that it is of."""
        return scopes.default(self.trace)

    def view(self, scope: Scope) -> View:
        return View(self.facts, self.finder, scope)

    def check(
        self,
        scope: Scope | None = None,
        ids: Iterable[str] | None = None,
        between: Callable[[], object] = lambda: None,
    ) -> list[Finding]:
        """Findings of all patterns (or of these ids), worst first: problems by time at stake, then what is worth
        knowing, artefacts, what cannot be told, what is absent. Raises KeyError for an unknown id.

        `between` is called before each pattern: an asker that wants no answer any more may raise there."""
        view = self.view(scope or self.whole)
        chosen = PATTERNS.values() if ids is None else [PATTERNS[one] for one in ids]
        found = []
        for pattern in chosen:
            between()
            found.append(_ask(pattern, view))
        return sorted(found, key=worst_first)

    def verdict(self, scope: Scope | None = None, findings: Sequence[Finding] = ()) -> Verdict:
        """Regime, busy share and what to do first; `findings` of the same scope make the advice more specific."""
        return verdict(self.view(scope or self.whole), findings)

    def gaps(self, t0: int, t1: int) -> Gaps:
        """Idle stretches of all devices between two times, cut to them, each with its reason."""
        return self.finder.gaps.within(t0, t1)

    def notes(self) -> dict[int, str]:
        """What single events have to say on the lanes, by event: the trailing sync, what it covered."""
        return cpu_lane.sync_note(self.view(self.whole))

    def warm(self) -> None:
        """Compute what all scopes share, so that the first viewport is answered as fast as the others."""
        self.check()


def _ask(pattern: Pattern, view: View) -> Finding:
    answer = weighed(pattern, pattern.check(view), view.facts.losses)
    if view.facts.sliced and answer.reason:
        answer = replace(answer, reason=of_a_slice(answer.reason))
    if answer.state is State.FIRED:
        answer = replace(answer, events=_by_time(view.trace, answer.events))
    return Finding(pattern, answer, min(answer.at_stake / view.scope.length, 1.0))


def _by_time(trace: Trace, rows: I64) -> I64:
    """Each event once, by start, then row; none where a pattern fired by what only other ranks have."""
    rows = distinct(rows)
    return rows[np.argsort(trace.start[rows], kind="stable")]


def worst_first(found: Finding) -> tuple[int, int, int]:
    """What findings are sorted by."""
    weight = _WEIGHTS.index(found.pattern.weight) if found.fired else 0
    return _STATES.index(found.state), weight, -found.answer.at_stake
