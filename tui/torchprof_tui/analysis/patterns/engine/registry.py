"""The registry of patterns: a decorator that registers a check, and all patterns in registration order."""

from __future__ import annotations

from collections.abc import Callable

from torchprof_tui.analysis.patterns.engine.pattern import Answer, Pattern, Section, Severity
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.engine.thresholds import Threshold

CheckFunction = Callable[[ScopeView], Answer]

_REGISTRY: dict[str, Pattern] = {}


def register_pattern(
    id: str,  # noqa: A002
    section: Section,
    title: str,
    *,
    meaning: str,
    action: str,
    decided: str,
    thresholds: tuple[Threshold, ...] = (),
    severity: Severity = Severity.NOTICE,
    code: str = "",
    applies_to_all_ranks: bool = False,
    fires_on_absence: bool = False,
) -> Callable[[CheckFunction], CheckFunction]:
    """Register a check under its id. Raises ValueError for a duplicate id."""

    def register(check: CheckFunction) -> CheckFunction:
        if id in _REGISTRY:
            raise ValueError(f"two patterns called {id}")
        _REGISTRY[id] = Pattern(
            id,
            section,
            title,
            meaning,
            action,
            decided,
            check,
            thresholds,
            severity,
            code,
            applies_to_all_ranks,
            fires_on_absence,
        )
        return check

    return register


def registered_patterns() -> dict[str, Pattern]:
    """Return each pattern by its id, in the order in which their modules were imported."""
    return _REGISTRY
