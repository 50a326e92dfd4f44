"""Estimate by how much the times of two recordings may differ by chance."""

from __future__ import annotations

import math

import numpy as np

from torchprof_tui.trace.core.arrays import F64

_NORMAL_SCALE = 1.4826
"""1 / 0.6745, the upper quartile of the standard normal distribution: scales a median absolute deviation to a standard
deviation."""

_SMALL_SAMPLE = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}
"""The median absolute deviation of few values is too small: correction factors of Croux and Rousseeuw, Time-efficient
algorithms for two highly robust estimators of scale (1992); n / (n - 0.8) above 9."""

_STUDENT_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Two-sided 95 % quantiles of Student's t distribution for 1 to 30 degrees of freedom; 1.96 above."""


def estimate_spread(values: F64) -> float:
    """Estimate the standard deviation of at least two values (ns) from their median absolute deviation.

    Robust: a long step among the values does not change it, so it can tell whether another one is out of the ordinary.
    """
    count = len(values)
    deviation = float(np.median(np.abs(values - np.median(values))))
    return deviation * _NORMAL_SCALE * _SMALL_SAMPLE.get(count, count / (count - 0.8))


def estimate_standard_error(values: F64, count: int | None = None) -> float | None:
    """Estimate the error of the mean of `count` steps from the values of some or all of them, s / sqrt(n), ns.

    The classical one, not a robust one: the account divides the mean, because the parts of means sum and those of
    medians do not. One long step moves the mean, and the error has to cover that. None for a single step.
    """
    if len(values) < 2:
        return None
    return float(np.std(values, ddof=1)) / math.sqrt(count or len(values))


def estimate_difference_noise(a: F64, b: F64, count_a: int | None = None, count_b: int | None = None) -> float | None:
    """Estimate the half width of the 95 % confidence interval of the difference of two means, ns.

    Welch's t interval, with the degrees of freedom of Welch and Satterthwaite rounded down. `count_a`, `count_b`: the
    steps behind each mean, if `a` and `b` are a sample of them. None where a side has a single step.
    """
    error_a, error_b = estimate_standard_error(a, count_a), estimate_standard_error(b, count_b)
    if error_a is None or error_b is None:
        return None
    square_a, square_b = error_a**2, error_b**2
    divisor = square_a**2 / (len(a) - 1) + square_b**2 / (len(b) - 1)
    if divisor <= 0.0:
        return 0.0
    freedom = max(int((square_a + square_b) ** 2 / divisor), 1)
    return _find_quantile(freedom) * math.sqrt(square_a + square_b)


def _find_quantile(freedom: int) -> float:
    return _STUDENT_T[freedom - 1] if freedom <= len(_STUDENT_T) else 1.96


_TAKEN_BACK = 4.0
"""A paired difference counts if the steps that go the other way take back less than a fifth of it: at eight steps of
normally distributed differences the t interval decides the same."""


def estimate_paired_noise(differences: F64, count: int | None = None) -> float | None:
    """Estimate the noise of the mean of paired differences (float64[steps], ns), as those of two ranks in one step.

    The half width of the 95 % confidence interval of a paired t test, unless steps agree better than that tells: few
    steps that differ by unequal amounts in the same direction are no chance. None for a single step.
    """
    error = estimate_standard_error(differences, count)
    if error is None:
        return None
    total = float(differences.sum())
    other_way = float(np.abs(differences[differences * np.sign(total) < 0]).sum())
    return min(_find_quantile(len(differences) - 1) * error, _TAKEN_BACK * other_way / len(differences))
