"""Estimate what a remedy saves from the step times of several processes, and compare their losses.

Processes of one program differ by more than the steps of one process do, so a process counts once: by the median of
its blocks of steps. Of the logarithms of these, the interval is Student's t for a difference of two means, with one
variance for all rows (pooled; Snedecor and Cochran, Statistical Methods, 8th edition, sections 6.8 and 12.9): times
differ by factors, and a saving stays below 100 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from torchprof_tui.trace.core.records import record

LEVEL = 0.95
LEAST_BASELINES = 3  # processes of the program as it is, before anything is said of a difference

ROUNDING, EXACT = 0.02, 1e-5
"""Largest relative difference of losses that is called rounding: of a remedy that changes numbers, and of another."""

Runs = Sequence[Sequence[float]]  # step times in seconds: of each process, of each block of steps


@record
class Saving:
    """A share of the baseline's step that is saved, with its interval; negative: slower."""

    share: float
    low: float
    high: float

    @property
    def is_won(self) -> bool:
        return self.low > 0


def estimate_saving(baseline: Runs, changed: Runs, others: Sequence[Runs] = ()) -> Saving:
    """Estimate the saving of `changed` over `baseline`. `others`: of the other rows, whose repeats show the noise, too.

    Both have at least one process; with fewer than `LEAST_BASELINES` the interval has no bounds.
    """
    before, after = _logarithms(baseline), _logarithms(changed)
    difference = float(before.mean() - after.mean())
    groups = [before, after, *(_logarithms(each) for each in others)]
    freedom = sum(len(group) - 1 for group in groups)
    if len(before) < LEAST_BASELINES or freedom < 1:
        return Saving(1 - math.exp(-difference), -math.inf, 1.0)
    variance = sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / freedom
    error = math.sqrt(variance * (1 / len(before) + 1 / len(after)))
    half = find_t_quantile((1 + LEVEL) / 2, freedom) * error
    share, low, high = (1 - math.exp(-(difference + each)) for each in (0.0, -half, half))
    return Saving(share, low, high)


def _logarithms(runs: Runs) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.log([float(np.median(run)) for run in runs])


def find_t_quantile(probability: float, freedom: int) -> float:
    """Find a quantile of Student's t: exact for 1 and 2 degrees, else a series (Abramowitz and Stegun 26.7.5)."""
    if freedom == 1:
        return math.tan(math.pi * (probability - 0.5))
    if freedom == 2:
        return (2 * probability - 1) * math.sqrt(2 / (4 * probability * (1 - probability)))
    z, n = NormalDist().inv_cdf(probability), freedom
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / n ** (index + 1) for index, term in enumerate(terms))


def compare_losses(baselines: Sequence[Sequence[float]], changed: Sequence[float], is_exact: bool = False) -> str:
    """Compare the losses of the same steps: "equal", "within rounding", "different", or "" where there are none.

    `is_exact`: the remedy does not change numbers. What baselines differ by among each other is allowed twice over.
    """
    first = baselines[0] if baselines else []
    if not first or not changed:
        return ""
    difference = _differ(first, changed)
    if difference == 0:
        return "equal"
    own = max((_differ(first, other) for other in baselines[1:]), default=0.0)
    allowed = max(EXACT if is_exact else ROUNDING, 2 * own)
    return "within rounding" if difference <= allowed else "different"


def _differ(one: Sequence[float], other: Sequence[float]) -> float:
    count = min(len(one), len(other))
    left, right = np.asarray(one[:count], np.float64), np.asarray(other[:count], np.float64)
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        return 0.0 if np.array_equal(left, right, equal_nan=True) else float("inf")
    scale = np.maximum(np.maximum(np.abs(left), np.abs(right)), 1e-8)
    return float(np.max(np.abs(left - right) / scale))
