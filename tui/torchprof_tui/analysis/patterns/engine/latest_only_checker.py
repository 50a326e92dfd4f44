"""A checker that threads may ask: one question at a time, and only the latest is worth an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from torchprof_tui.analysis.collectives.late_arrivals import Arrivals
from torchprof_tui.analysis.patterns import Finding
from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.gpu_gaps import Gaps
from torchprof_tui.analysis.patterns.engine.multi_rank_check import build_rank_checker
from torchprof_tui.analysis.patterns.engine.verdict import Verdict
from torchprof_tui.trace.model.trace import Trace


@dataclass(frozen=True, slots=True)
class CheckResult:
    """All findings in a scope, worst first, and the verdict on it."""

    scope: Scope
    findings: Sequence[Finding]
    verdict: Verdict


class _CancelledError(Exception):
    """Nobody waits for this answer any more."""


class LatestOnlyChecker:
    """Shared by the threads of one screen. Of several ranks, whose collectives `met` knows, each has one, that at
    `place`; events are numbered as in the whole."""

    def __init__(self, trace: Trace, rank_arrivals: Arrivals | None = None, rank_index: int = 0) -> None:
        self._checker = Checker(trace) if rank_arrivals is None else build_rank_checker(rank_arrivals, rank_index)
        self._offset = 0 if rank_arrivals is None else rank_arrivals.ranks.all[rank_index].first
        self._lock = threading.Lock()
        self._latest: Scope | None = None
        self._precomputed: tuple[CheckResult, Gaps, dict[int, str]] | None = None
        self._default_result: CheckResult | None = None  # asked for again and again: every look at everything

    @property
    def default_scope(self) -> Scope:
        return self._checker.default_scope

    def precompute(self) -> tuple[CheckResult, Gaps, dict[int, str]]:
        """The whole trace, why its GPUs were idle, and notes on single events; what later questions share is computed
        on the way."""
        with self._lock:
            if self._precomputed is None:
                self._default_result = self._check(self._checker.default_scope)
                notes = {event + self._offset: note for event, note in self._checker.find_event_notes().items()}
                self._precomputed = self._default_result, self._checker.gap_finder.gaps, notes
            return self._precomputed

    def cancel(self) -> None:
        """What is being checked is not wanted any more: it stops at the next pattern, so that it takes no time from the
        frames of whoever has moved on."""
        self._latest = None

    def check(self, scope: Scope) -> CheckResult | None:
        """None where it was dropped, or another scope has been asked about since."""
        self._latest = scope
        if scope.is_whole_trace and self._default_result is not None:
            return self._default_result

        def is_wanted() -> None:
            if self._latest is not scope:
                raise _CancelledError

        with self._lock, suppress(_CancelledError):
            return self._check(scope, is_wanted)
        return None

    def _check(self, scope: Scope, raise_if_cancelled: Callable[[], object] = lambda: None) -> CheckResult:
        findings = self._checker.check(scope, raise_if_cancelled=raise_if_cancelled)
        verdict = self._checker.decide_verdict(scope, findings)
        return CheckResult(scope, [found.with_event_offset(self._offset) for found in findings], verdict)
