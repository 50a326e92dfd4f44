"""Where patterns are written down: a decorator over the function that decides, and the list of all in reading order."""

from __future__ import annotations

from collections.abc import Callable

from torchprof_tui.analysis.patterns.engine.pattern import Answer, Pattern, Section, Threshold, Weight
from torchprof_tui.analysis.patterns.engine.scope_view import View

Check = Callable[[View], Answer]

_ALL: dict[str, Pattern] = {}


def pattern(
    id: str,  # noqa: A002
    section: Section,
    title: str,
    *,
    meaning: str,
    action: str,
    decided: str,
    thresholds: tuple[Threshold, ...] = (),
    weight: Weight = Weight.NOTICE,
    code: str = "",
    of_all: bool = False,
    by_absence: bool = False,
) -> Callable[[Check], Check]:
    """Register a check under its id. Raises ValueError for one that is taken."""

    def register(check: Check) -> Check:
        if id in _ALL:
            raise ValueError(f"two patterns called {id}")
        _ALL[id] = Pattern(
            id, section, title, meaning, action, decided, check, thresholds, weight, code, of_all, by_absence
        )
        return check

    return register


def registered() -> dict[str, Pattern]:
    """id -> pattern, in the order in which their modules were imported."""
    return _ALL
