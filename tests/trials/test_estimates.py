"""The interval of a saving, by simulation and by published quantiles; the comparison of losses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.helpers.long_run import keep_some
from torchprof_try.estimates import compare_losses, estimate_saving, find_t_quantile


@pytest.mark.parametrize(
    ("freedom", "published"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (8, 2.306), (12, 2.179), (30, 2.042)],
)
def test_the_quantiles_are_those_of_tables(freedom: int, published: float) -> None:
    assert find_t_quantile(0.975, freedom) == pytest.approx(published, rel=0.004)


@pytest.mark.parametrize(("between", "within"), keep_some([(0.0, 0.02), (0.01, 0.01), (0.02, 0.005), (0.05, 0.02)], 1))
@pytest.mark.parametrize(("baselines", "runs"), keep_some([(3, 1), (5, 1), (5, 2)], 1))
@pytest.mark.parametrize("factor", [1.0, 0.7])
def test_the_interval_covers_the_truth(between: float, within: float, baselines: int, runs: int, factor: float) -> None:
    generator = np.random.default_rng(7)

    def draw(count: int, scale: float) -> list[list[float]]:
        level = scale * np.exp(between * generator.standard_normal((count, 1)))
        times: list[list[float]] = (level * np.exp(within * generator.standard_normal((count, 6)))).tolist()
        return times

    covered = won = 0
    for _ in range(600):
        saving = estimate_saving(draw(baselines, 1.0), draw(runs, factor))
        covered += saving.low <= 1 - factor <= saving.high
        won += saving.is_won
    assert 0.92 <= covered / 600 <= 0.98
    assert won / 600 <= 0.045 or factor < 1


def test_too_few_runs_say_nothing() -> None:
    saving = estimate_saving([[1.0], [1.0]], [[0.1]])
    assert saving.share == pytest.approx(0.9)
    assert not saving.is_won
    assert saving.low == -math.inf


def test_a_saving_stays_below_the_whole_step() -> None:
    saving = estimate_saving([[1.0], [4.0], [0.5]], [[0.001]])
    assert saving.low < saving.share < saving.high < 1


@pytest.mark.parametrize(
    ("changed", "is_exact", "said"),
    [
        ([1.0, 0.5], True, "equal"),
        ([1.0, 0.505], False, "within rounding"),
        ([1.0, 0.505], True, "different"),
        ([1.0, 0.6], False, "different"),
        ([1.0, math.nan], False, "different"),
        ([], False, ""),
    ],
)
def test_losses(changed: list[float], is_exact: bool, said: str) -> None:
    assert compare_losses([[1.0, 0.5]], changed, is_exact) == said
    assert compare_losses([[1.0, 0.5], [1.0, 0.3]], [1.0, 0.6], True) == "within rounding"  # the program differs itself
