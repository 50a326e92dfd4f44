"""Estimate what a remedy saves from the step times of several processes, and compare their losses.

The interval is a bootstrap over processes and, within them, over blocks of steps (Davison and Hinkley, Bootstrap
Methods and their Application, 1997, section 3.8), widened by half the range of the baseline's own processes: what two
runs of the same program differ by is no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
LEVEL = 0.95
ROUNDING = 0.02
"""Largest relative difference of losses that is called rounding, where two baselines differ by less than half of it."""

Runs = Sequence[Sequence[float]]
"""Step times in seconds: of each process, of each block of steps."""


@dataclass(frozen=True, slots=True)
class Saving:
    """A share of the baseline's step that is saved, with its interval; negative: slower."""

    share: float
    low: float
    high: float

    @property
    def is_won(self) -> bool:
        return self.low > 0

    @property
    def is_lost(self) -> bool:
        return self.high < 0


def estimate_saving(baseline: Runs, changed: Runs) -> Saving:
    """Estimate the saving of `changed` over `baseline`, each of at least one process with at least one block."""
    share = 1 - _median(changed) / _median(baseline)
    generator = np.random.default_rng(0)
    resampled = [1 - _resample(changed, generator) / _resample(baseline, generator) for _ in range(RESAMPLES)]
    tail = (1 - LEVEL) / 2 * 100
    low, high = np.percentile(resampled, [tail, 100 - tail])
    noise = measure_noise(baseline)
    return Saving(share, min(float(low), share) - noise, max(float(high), share) + noise)


def measure_noise(baseline: Runs) -> float:
    """Measure half the range of the processes' medians, as a share of their median."""
    medians = [float(np.median(run)) for run in baseline]
    return (max(medians) - min(medians)) / 2 / float(np.median(medians))


def _median(runs: Runs) -> float:
    return float(np.median([time for run in runs for time in run]))


def _resample(runs: Runs, generator: np.random.Generator) -> float:
    picked = generator.integers(0, len(runs), len(runs))
    blocks = [np.asarray(runs[index])[generator.integers(0, len(runs[index]), len(runs[index]))] for index in picked]
    return float(np.median(np.concatenate(blocks)))


def compare_losses(baselines: Sequence[Sequence[float]], changed: Sequence[float]) -> str:
    """Compare the losses of the same steps: "equal", "within rounding", "different", or "" where there are none.

    Differences are relative; what baselines differ by among each other is allowed twice over.
    """
    first = baselines[0] if baselines else []
    if not first or not changed:
        return ""
    difference = _differ(first, changed)
    if difference == 0:
        return "equal"
    own = max((_differ(first, other) for other in baselines[1:]), default=0.0)
    return "within rounding" if difference <= max(ROUNDING, 2 * own) else "different"


def _differ(one: Sequence[float], other: Sequence[float]) -> float:
    count = min(len(one), len(other))
    left, right = np.asarray(one[:count], np.float64), np.asarray(other[:count], np.float64)
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        return 0.0 if np.array_equal(left, right, equal_nan=True) else float("inf")
    scale = np.maximum(np.maximum(np.abs(left), np.abs(right)), 1e-8)
    return float(np.max(np.abs(left - right) / scale))
