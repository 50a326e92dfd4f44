"""The noise of a difference: small samples, single long steps, one step."""

from __future__ import annotations

import numpy as np
import pytest

from torchprof_tui.analysis.compare.noise import estimate_difference_noise, estimate_spread, estimate_standard_error


def test_the_spread_of_normal_values_is_their_standard_deviation() -> None:
    values = np.random.default_rng(1).normal(1000, 50, 20_000)
    assert estimate_spread(values) == pytest.approx(50, rel=0.03)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 12])
def test_the_spread_of_few_values_is_not_too_small(count: int) -> None:
    samples = np.random.default_rng(count).normal(0, 1, (4_000, count))
    assert np.mean([estimate_spread(sample) for sample in samples]) == pytest.approx(1, rel=0.05)


def test_one_long_step_makes_the_mean_uncertain() -> None:
    """The median absolute deviation does not see it, but the mean moves by 50."""
    values = np.array([1000.0] * 19 + [2000.0])
    assert estimate_spread(values) == 0
    error = estimate_standard_error(values)
    assert error is not None
    assert error == pytest.approx(50)


def test_welch_interval_of_two_equal_samples() -> None:
    """Two of five values with s = sqrt(2.5): the error of the difference is 1, with 8 degrees of freedom."""
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert estimate_difference_noise(values, values) == pytest.approx(2.306)


def test_a_sample_of_the_steps_stands_for_all() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0])
    all_of_them, sampled = estimate_standard_error(values), estimate_standard_error(values, 400)
    assert all_of_them is not None
    assert sampled == pytest.approx(all_of_them / 10)


def test_sides_that_do_not_overlap_differ() -> None:
    """Steps of a starved loader: far apart among themselves, and further from those with workers."""
    starved, mended = np.array([370.2, 109.6, 191.7, 361.1]), np.array([24.6, 24.2, 27.4, 28.4])
    noise = estimate_difference_noise(starved, mended)
    assert noise is not None
    assert noise < starved.mean() - mended.mean()


def test_one_step_cannot_tell_and_equal_steps_have_none() -> None:
    one, equal = np.array([5.0]), np.array([5.0, 5.0, 5.0])
    assert estimate_difference_noise(one, equal) is None
    assert estimate_difference_noise(equal, equal) == 0.0


def test_chance_alone_is_called_noise() -> None:
    random = np.random.default_rng(0)
    outside = 0
    for _ in range(2000):
        a, b = random.normal(100, 5, 4), random.normal(100, 5, 4)
        noise = estimate_difference_noise(a, b)
        assert noise is not None
        outside += abs(a.mean() - b.mean()) > noise
    assert outside < 0.06 * 2000
