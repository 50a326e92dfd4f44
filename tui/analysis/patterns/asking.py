"""A checker that threads may ask: one question at a time, and only the latest is worth an answer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from tui.analysis.patterns import Checker, Finding, Gaps, Scope, Verdict
from tui.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Checked:
    """All findings in a scope, worst first, and the verdict on it."""

    scope: Scope
    findings: Sequence[Finding]
    verdict: Verdict


class Asking:
    """Shared by the threads of one screen."""

    def __init__(self, trace: Trace) -> None:
        self._checker = Checker(trace)
        self._lock = threading.Lock()
        self._latest: Scope | None = None
        self._of_whole: Checked | None = None  # asked for again and again: every look at everything

    @property
    def whole(self) -> Scope:
        return self._checker.whole

    def warm(self) -> tuple[Checked, Gaps, dict[int, str]]:
        """The whole trace, why its GPUs were idle, and notes on single events; what later questions share is computed
        on the way."""
        with self._lock:
            found = self._of_whole = self._check(self._checker.whole)
            return found, self._checker.finder.gaps, self._checker.notes()

    def check(self, scope: Scope) -> Checked | None:
        """None where another scope has been asked about since: nobody waits for this one any more."""
        self._latest = scope
        if scope.whole and self._of_whole is not None:
            return self._of_whole
        with self._lock:
            return self._check(scope) if self._latest is scope else None

    def _check(self, scope: Scope) -> Checked:
        findings = self._checker.check(scope)
        return Checked(scope, findings, self._checker.verdict(scope, findings))
