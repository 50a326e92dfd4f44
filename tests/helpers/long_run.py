"""Leave some cases of a parametrized test, and most examples of a property, to the long run, `nox -s long`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings


def keep_some(cases: Iterable[Any], kept: int) -> list[Any]:
    """Make a parameter of each case: `kept` of them, spread from first to last, are tested on each push.

    Cases that are marked `long` stay so.
    """
    listed = [_take_apart(case) for case in cases]
    quick = [position for position, (_, _, marks) in enumerate(listed) if pytest.mark.long not in marks]
    chosen = {quick[round(k * (len(quick) - 1) / max(kept - 1, 1))] for k in range(kept) if quick}
    return [
        pytest.param(*values, id=name, marks=marks if position in chosen else (*marks, pytest.mark.long))
        for position, (values, name, marks) in enumerate(listed)
    ]


def scale_examples(factor: float) -> int:
    """Multiply the number of examples of the current hypothesis profile, for a property that needs more or fewer."""
    return max(round(settings.default.max_examples * factor), 1)  # type: ignore[union-attr]


def _take_apart(case: Any) -> tuple[tuple[Any, ...], str | None, tuple[Any, ...]]:
    if hasattr(case, "marks"):  # made by pytest.param
        return case.values, case.id, tuple(case.marks)
    return (case if type(case) is tuple else (case,)), None, ()
