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
from torchprof_tui.analysis.patterns.engine.multi_rank_check import checker_of
from torchprof_tui.analysis.patterns.engine.verdict import Verdict
from torchprof_tui.trace.model.trace import Trace


@dataclass(frozen=True, slots=True)
class Checked:
    """All findings in a scope, worst first, and the verdict on it."""

    scope: Scope
    findings: Sequence[Finding]
    verdict: Verdict


class _DroppedError(Exception):
    """Nobody waits for this answer any more."""


class Asking:
    """Shared by the threads of one screen. Of several ranks, whose collectives `met` knows, each has one, that at
    `place`; events are numbered as in the whole."""

    def __init__(self, trace: Trace, met: Arrivals | None = None, place: int = 0) -> None:
        self._checker = Checker(trace) if met is None else checker_of(met, place)
        self._offset = 0 if met is None else met.ranks.all[place].first
        self._lock = threading.Lock()
        self._latest: Scope | None = None
        self._warmed: tuple[Checked, Gaps, dict[int, str]] | None = None
        self._of_whole: Checked | None = None  # asked for again and again: every look at everything

    @property
    def whole(self) -> Scope:
        return self._checker.whole

    def warm(self) -> tuple[Checked, Gaps, dict[int, str]]:
        """The whole trace, why its GPUs were idle, and notes on single events; what later questions share is computed
        on the way."""
        with self._lock:
            if self._warmed is None:
                self._of_whole = self._check(self._checker.whole)
                notes = {event + self._offset: note for event, note in self._checker.notes().items()}
                self._warmed = self._of_whole, self._checker.finder.gaps, notes
            return self._warmed

    def drop(self) -> None:
        """What is being checked is not wanted any more: it stops at the next pattern, so that it takes no time from the
        frames of whoever has moved on."""
        self._latest = None

    def check(self, scope: Scope) -> Checked | None:
        """None where it was dropped, or another scope has been asked about since."""
        self._latest = scope
        if scope.whole and self._of_whole is not None:
            return self._of_whole

        def is_wanted() -> None:
            if self._latest is not scope:
                raise _DroppedError

        with self._lock, suppress(_DroppedError):
            return self._check(scope, is_wanted)
        return None

    def _check(self, scope: Scope, between: Callable[[], object] = lambda: None) -> Checked:
        findings = self._checker.check(scope, between=between)
        verdict = self._checker.verdict(scope, findings)
        return Checked(scope, [found.moved(self._offset) for found in findings], verdict)
