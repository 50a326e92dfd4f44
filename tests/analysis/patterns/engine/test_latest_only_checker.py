"""Questions of a screen on which somebody moves: only the latest scope is checked to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.helpers.pattern_traces import healthy
from tests.helpers.trace_builder import trace
from torchprof_tui.analysis.patterns import Finding
from torchprof_tui.analysis.patterns.engine import check_scope as scopes
from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.latest_only_checker import LatestOnlyChecker


def test_the_latest_scope_is_answered_as_the_checker_does() -> None:
    made = trace(*healthy())
    scope = scopes.range_scope(0, 40_000)
    found = LatestOnlyChecker(made).check(scope)
    assert found is not None
    assert [one.id for one in found.findings] == [one.id for one in Checker(made).check(scope)]


def test_a_dropped_scope_is_left_at_the_next_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = LatestOnlyChecker(trace(*healthy()))
    check = Checker.check
    begun = []

    def moving(
        self: Checker, scope: Scope, ids: Iterable[str] | None = None, between: Callable[[], object] = lambda: None
    ) -> list[Finding]:
        def and_move() -> None:
            between()
            begun.append(scope)
            if len(begun) == 3:
                asking.cancel()

        return check(self, scope, ids, and_move)

    monkeypatch.setattr(Checker, "check", moving)
    assert asking.check(scopes.range_scope(0, 40_000)) is None
    assert len(begun) == 3
    again = asking.check(scopes.range_scope(0, 50_000))  # the next question finds the checker free
    assert again is not None
    assert again.scope.t1 == 50_000
