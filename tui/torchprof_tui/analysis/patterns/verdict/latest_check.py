"""Check the latest scope that a screen asks for; earlier ones are dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from torchprof_tui.analysis.collectives.communication_waiting import Arrivals
from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.checker import Checker, check_view
from torchprof_tui.analysis.patterns.engine.gpu_gaps import Gaps
from torchprof_tui.analysis.patterns.engine.largest_gaps import LargestGap
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.patterns.verdict import rank_checks
from torchprof_tui.analysis.patterns.verdict.costs import CostBase, find_base, price_findings
from torchprof_tui.analysis.patterns.verdict.verdict import (
    ScopeRegime,
    Verdict,
    decide_verdict,
    measure_regime,
    tell_costs,
)
from torchprof_tui.analysis.patterns.verdict.wins import predict_wins, rank_by_wins
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Trace

FIRST_VERDICT_NOTE = "checking the patterns …"
"""What a verdict says instead of its advice until the patterns have been checked."""


@record
class CheckResult:
    """All findings in a scope, worst first, and its verdict; `base`: what costs are shares of.

    `late_rank`: the rank that the others wait for, None without one.
    """

    scope: Scope
    findings: Sequence[Finding]
    verdict: Verdict
    base: CostBase
    late_rank: rank_checks.LateRank | None = None

    def explain_late_rank(self, rank_index: int, late_verdict: Verdict | None) -> CheckResult:
        """Say why the late rank is late. `rank_index`: that of the result; `late_verdict`: None while it is unknown."""
        late = self.late_rank
        if late is None:
            return self
        findings = rank_checks.explain_straggler(self.findings, late, late_verdict, is_own=late.index == rank_index)
        if late_verdict is None or self.verdict.late_rank != late.index:
            return replace(self, findings=findings)
        return replace(
            self, findings=findings, verdict=rank_checks.explain_late_rank(self.verdict, rank_index, late_verdict)
        )


@record
class PrecomputedCheck:
    """The result of the whole trace and what the lanes show of it: all idle gaps and the notes on single events.

    Notes are by event of the merged trace; the gaps, and the longest of them with their lines, are one rank's own.
    """

    result: CheckResult
    gaps: Gaps
    notes: dict[int, str]
    largest_gaps: Sequence[LargestGap]


class _CancelledError(Exception):
    """Raised inside a check that was cancelled or superseded."""


class LatestOnlyChecker:
    """A checker shared by the threads of one screen.

    For a trace of several ranks each rank has its own, made from `rank_arrivals` and its `rank_index`; events are
    numbered as in the merged trace.
    """

    def __init__(self, trace: Trace, rank_arrivals: Arrivals | None = None, rank_index: int = 0) -> None:
        self._checker = (
            Checker(trace) if rank_arrivals is None else rank_checks.build_rank_checker(rank_arrivals, rank_index)
        )
        self._offset = 0 if rank_arrivals is None else rank_arrivals.ranks.all[rank_index].first
        self._lock = threading.Lock()
        self._latest: Scope | None = None
        self._precomputed: PrecomputedCheck | None = None
        self._default_result: CheckResult | None = None  # kept: the whole trace is requested again and again
        self._ranked_result: CheckResult | None = None
        self._trace = trace

    @property
    def default_scope(self) -> Scope:
        return self._checker.default_scope

    def precompute(self) -> PrecomputedCheck:
        """Check the whole trace; return the result and what the lanes show of it.

        Fills the tables that later checks share.
        """
        with self._lock:
            if self._precomputed is None:
                self._default_result = self._check(self._checker.default_scope)
                notes = {event + self._offset: note for event, note in self._checker.find_event_notes().items()}
                gaps, largest = self._checker.gap_finder.gaps, self._checker.list_largest_gaps()
                self._checker.tables.describe_limit(-1)  # its table, for `describe_limit`
                self._precomputed = PrecomputedCheck(self._default_result, gaps, notes, largest)
            return self._precomputed

    def describe_limit(self, event: int) -> str:
        """Describe what limits a kernel, memory or arithmetic; "…" before `precompute` is done. Cheap."""
        return "…" if self._precomputed is None else self._checker.tables.describe_limit(event - self._offset)

    def decide_first_verdict(self) -> Verdict | None:
        """Decide the verdict on the whole trace before its patterns are checked; None once they have been.

        Regime and busy share are those of the whole check. What costs most is said in general: a pattern may name its
        cause. What to do is left to the whole check.
        """
        with self._lock:
            if self._default_result is not None:
                return None
            verdict = self._checker.decide_verdict()
            return replace(verdict, first=f"{verdict.what or verdict.first} · {FIRST_VERDICT_NOTE}", remedy="")

    def measure_regime(self, scope: Scope | None) -> ScopeRegime:
        """Measure what limits a scope, None for the whole trace."""
        with self._lock:
            return measure_regime(self._checker.view(scope or self._checker.default_scope))

    def cancel(self) -> None:
        """Cancel the running check before its next step of some milliseconds, so that it does not delay drawing."""
        self._latest = None

    def check(self, scope: Scope) -> CheckResult | None:
        """Check a scope. None if it was cancelled, or if another scope has been requested since."""
        self._latest = scope
        if scope.is_whole_trace and self._default_result is not None:
            return self._rank_default_result()

        def raise_if_superseded() -> None:
            if self._latest is not scope:
                raise _CancelledError

        with self._lock, suppress(_CancelledError):
            return self._check(scope, raise_if_superseded)
        return None

    def _rank_default_result(self) -> CheckResult:
        """Rank the problems of the whole trace by what their fixes save; predicted once."""
        with self._lock:
            if self._ranked_result is None:
                assert self._default_result is not None
                result = self._default_result
                wins = predict_wins(self._trace, result.findings, result.base)
                self._ranked_result = replace(result, findings=rank_by_wins(result.findings, wins))
            return self._ranked_result

    def _check(self, scope: Scope, raise_if_cancelled: Callable[[], object] = lambda: None) -> CheckResult:
        view = self._checker.view(scope, raise_if_cancelled)
        findings = check_view(view)
        view.raise_if_cancelled()
        verdict = decide_verdict(view, findings)
        priced = price_findings(view, findings, verdict)
        found = [each.with_event_offset(self._offset) for each in priced]
        told, late = tell_costs(verdict, priced), rank_checks.find_late_place(view, findings)
        return CheckResult(scope, found, told, find_base(view), late)
