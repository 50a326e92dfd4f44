"""Cancel checks that are superseded: only the latest requested scope is checked to the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.helpers.pattern_traces import healthy
from tests.helpers.trace_builder import trace
from torchprof_tui.analysis.patterns.engine.check_scope import Scope, range_scope
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS, Checker, check_view
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.verdict import latest_check
from torchprof_tui.analysis.patterns.verdict.costs import price_findings
from torchprof_tui.analysis.patterns.verdict.latest_check import FIRST_VERDICT_NOTE, LatestOnlyChecker
from torchprof_tui.analysis.patterns.verdict.verdict import decide_verdict


def test_the_latest_scope_is_checked_as_by_the_checker() -> None:
    healthy_trace = trace(*healthy())
    scope = range_scope(0, 40_000)
    result = LatestOnlyChecker(healthy_trace).check(scope)
    assert result is not None
    view = Checker(healthy_trace).view(scope)
    findings = check_view(view)
    expected = price_findings(view, findings, decide_verdict(view, findings))
    assert [(found.id, found.cost) for found in result.findings] == [(found.id, found.cost) for found in expected]


def cancel_at(checker: LatestOnlyChecker, call: int, monkeypatch: pytest.MonkeyPatch) -> list[Scope]:
    """Cancel the check at this call of `raise_if_cancelled`, counted from 1. Returns the scopes of all calls."""
    view, calls = Checker.view, []

    def view_and_cancel(
        self: Checker, scope: Scope, raise_if_cancelled: Callable[[], object] = lambda: None
    ) -> ScopeView:
        def raise_or_cancel() -> None:
            calls.append(scope)
            if len(calls) == call:
                checker.cancel()
            raise_if_cancelled()

        return view(self, scope, raise_or_cancel)

    monkeypatch.setattr(Checker, "view", view_and_cancel)
    return calls


def test_a_cancelled_check_stops_at_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    checker = LatestOnlyChecker(trace(*healthy()))
    with monkeypatch.context() as patched:
        calls = cancel_at(checker, 3, patched)
        assert checker.check(range_scope(0, 40_000)) is None
        assert len(calls) == 3
    next_result = checker.check(range_scope(0, 50_000))  # the cancelled check released the lock
    assert next_result is not None
    assert next_result.scope.t1 == 50_000


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
def test_a_check_cancelled_anywhere_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """What is kept of a cancelled check does not change later ones, wherever it stopped, in the verdict as well."""
    scope = range_scope(0, 40_000)
    expected = LatestOnlyChecker(trace(*healthy())).check(scope)
    assert expected is not None
    checker = LatestOnlyChecker(trace(*healthy()))
    for call in range(1, 10_000, every):
        with monkeypatch.context() as patched:
            cancel_at(checker, call, patched)
            result = checker.check(scope)
        if result is not None:
            break
    assert call > len(PATTERNS)
    assert [finding.answer.seen for finding in result.findings] == [found.answer.seen for found in expected.findings]
    assert repr(result.verdict) == repr(expected.verdict)


def test_a_check_cancelled_at_its_last_pattern_decides_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    checker = LatestOnlyChecker(trace(*healthy()))

    def check_and_cancel(view: ScopeView) -> list[Finding]:
        checker.cancel()
        return []

    def fail(*_: object) -> None:
        pytest.fail("a verdict was decided that no panel shows")

    monkeypatch.setattr(latest_check, "check_view", check_and_cancel)
    monkeypatch.setattr(latest_check, "decide_verdict", fail)
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
