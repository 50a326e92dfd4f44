"""The label of what a problem costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Finding
from torchprof_tui.analysis.patterns.verdict.costs import CostBase
from torchprof_tui.ui.common.labels import describe_cost, list_reasons

STEPS = CostBase(30_000_000, steps=3)


def finding(cost: int, won: float | None = None, pattern: str = "input-starved") -> Finding:
    answer = Answer.fired("seen", np.arange(1), 20_000_000)
    return replace(Finding(PATTERNS[pattern], answer, 0.0).with_cost(cost, STEPS.time), won=won)


@pytest.mark.parametrize(
    ("cost", "won", "expected"),
    [
        (15_000_000, None, "up to 5.00 ms, 50 %"),
        (15_000_000, 0.5, "up to 5.00 ms, 50 %"),
        (15_000_000, 0.46, "up to 5.00 ms, 50 %"),
        (15_000_000, 0.2, "up to 5.00 ms, 50 %; a fix saves at most 20 %"),
        (15_000_000, 0.0, "up to 5.00 ms, 50 %"),
        (0, None, ""),
    ],
)
def test_it_is_one_number_and_a_lower_saving(cost: int, won: float | None, expected: str) -> None:
    assert describe_cost(finding(cost, won), STEPS) == expected


def test_a_saving_below_a_wait_that_is_gone_says_why() -> None:
    """ "costs 43 %" beside "a fix saves at most 8 %" read as two numbers for the same thing."""
    late = finding(12_900_000, 0.08, "straggler")
    assert describe_cost(late, STEPS) == (
        "up to 4.30 ms, 43 %; a fix saves at most 8.0 %: then the other ranks' own work limits the step"
    )


@pytest.mark.parametrize(
    ("base", "described"),
    [
        (STEPS, "a step: 10.0 ms, the mean of 3"),
        (replace(STEPS, differ=True), "all 3 steps: 30.0 ms"),
        (replace(STEPS, steps=1), "the step: 30.0 ms"),
        (CostBase(30_000_000), "the recording: 30.0 ms"),
        (CostBase(30_000_000, is_range=True), "the range: 30.0 ms"),
    ],
)
def test_the_base_is_named(base: CostBase, described: str) -> None:
    assert base.describe() == described


def test_a_doubtful_saving_is_not_said() -> None:
    doubtful = replace(finding(15_000_000, 0.2), is_won_doubtful=True)
    assert describe_cost(doubtful, STEPS) == "up to 5.00 ms, 50 %"


def test_why_and_what_to_do_are_one_clause_each() -> None:
    found = finding(1)
    assert list_reasons(found) == [("why", found.pattern.meaning), ("do", found.remedy.action)]
