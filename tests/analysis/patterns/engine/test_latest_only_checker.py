"""Cancel checks that are superseded: only the latest requested scope is checked to the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.helpers.pattern_traces import healthy
from tests.helpers.trace_builder import trace
from torchprof_tui.analysis.patterns.engine.check_scope import Scope, range_scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.latest_only_checker import FIRST_VERDICT_NOTE, LatestOnlyChecker
from torchprof_tui.analysis.patterns.engine.pattern import Finding


def test_the_latest_scope_is_checked_as_by_the_checker() -> None:
    healthy_trace = trace(*healthy())
    scope = range_scope(0, 40_000)
    result = LatestOnlyChecker(healthy_trace).check(scope)
    assert result is not None
    assert [finding.id for finding in result.findings] == [
        finding.id for finding in Checker(healthy_trace).check(scope)
    ]


def test_a_cancelled_check_stops_before_the_next_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    checker = LatestOnlyChecker(trace(*healthy()))
    check = Checker.check
    checked_scopes = []

    def check_and_cancel(
        self: Checker,
        scope: Scope,
        ids: Iterable[str] | None = None,
        raise_if_cancelled: Callable[[], object] = lambda: None,
    ) -> list[Finding]:
        def cancel_before_third() -> None:
            raise_if_cancelled()
            checked_scopes.append(scope)
            if len(checked_scopes) == 3:
                checker.cancel()

        return check(self, scope, ids, cancel_before_third)

    monkeypatch.setattr(Checker, "check", check_and_cancel)
    assert checker.check(range_scope(0, 40_000)) is None
    assert len(checked_scopes) == 3
    next_result = checker.check(range_scope(0, 50_000))  # the cancelled check released the lock
    assert next_result is not None
    assert next_result.scope.t1 == 50_000


def test_a_check_cancelled_at_its_last_pattern_decides_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    checker = LatestOnlyChecker(trace(*healthy()))

    def check_and_cancel(self: Checker, scope: Scope, **_: object) -> list[Finding]:
        checker.cancel()
        return []

    def fail(*_: object) -> None:
        pytest.fail("a verdict that nobody will see was decided")

    monkeypatch.setattr(Checker, "check", check_and_cancel)
    monkeypatch.setattr(Checker, "decide_verdict", fail)
    assert checker.check(range_scope(0, 40_000)) is None


def test_the_first_verdict_has_the_regime_and_share_of_the_whole_check() -> None:
    checker = LatestOnlyChecker(trace(*healthy()))
    first = checker.decide_first_verdict()
    assert first is not None
    assert first.first.endswith(FIRST_VERDICT_NOTE)
    assert not first.remedy  # advice would be taken back where a pattern names the cause
    whole = checker.precompute().result.verdict
    assert (first.regime, first.busy) == (whole.regime, whole.busy)
    assert checker.decide_first_verdict() is None
