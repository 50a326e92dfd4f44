"""Compare how fast the GPUs and the CPUs of all ranks run the same work, against the median rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.fleet.fleet import Fleet
from torchprof_tui.analysis.fleet.rank_sketch import DurationQuantiles
from torchprof_tui.trace.core.arrays import F64

MIN_RUNS = 10
"""Runs of an op on a rank: fewer have no steady median."""

MIN_RANK_SHARE = 0.9
"""Share of the ranks that must run an op for a comparison of it."""

MIN_NAMES = 3
"""Ops or classes to compare: fewer do not describe a machine."""


@dataclass(frozen=True)
class Speed:
    """How slow each rank is, for n names. `factor` float64[r]: 1 for the median rank, 2 for half as fast; NaN: unknown.

    `ratio` float64[r, n]: of each name, over that of the median rank; NaN where a rank did not run it.
    """

    names: tuple[str, ...]
    factor: F64
    ratio: F64

    def rank_names(self, members: Sequence[int]) -> list[tuple[str, float]]:
        """Return all names with the median ratio of some ranks (indexes), the slowest first; without unknown ones."""
        chosen = np.asarray(list(members), np.int64)
        pairs = []
        for name, ratios in zip(self.names, self.ratio[chosen].T, strict=True):
            known = ratios[np.isfinite(ratios)]
            if len(known):
                pairs.append((name, float(np.median(known))))
        return sorted(pairs, key=lambda pair: -pair[1])

    def slowest_names(self, index: int, limit: int = 3) -> list[tuple[str, float]]:
        """Return the names that are slowest on a rank, with their ratios."""
        ratio = np.nan_to_num(self.ratio[index])
        return [(self.names[name], float(ratio[name])) for name in np.argsort(-ratio, kind="stable")[:limit].tolist()]


def compare_gpus(fleet: Fleet) -> Speed:
    """Compare the time of kernels by class, by their mean duration; a class counts by its time on the median rank."""
    names, count, total, _ = _gather(fleet, [sketch.kernels for sketch in fleet.sketches])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(count > 0, total / count, np.nan)
    names, mean, total = _select(names, mean, count, total, 1)
    if not names:
        return Speed((), np.full(len(fleet), np.nan), np.zeros((len(fleet), 0)))
    ratio = mean / np.nanmedian(mean, axis=0)
    weight = np.where(np.isnan(ratio), 0.0, np.median(total, axis=0))
    factor = np.nansum(ratio * weight, axis=1) / np.maximum(weight.sum(axis=1), 1)
    return Speed(names, factor, ratio)


def compare_cpus(fleet: Fleet) -> Speed:
    """Compare the median time of each op without what it calls; a rank's factor is the median over the ops."""
    names, count, total, median = _gather(fleet, [sketch.ops for sketch in fleet.sketches])
    with np.errstate(invalid="ignore"):
        median = np.where(count >= MIN_RUNS, median, np.nan)
    names, median, _ = _select(names, median, count, total, MIN_RUNS)
    if len(names) < MIN_NAMES:
        return Speed((), np.full(len(fleet), np.nan), np.zeros((len(fleet), 0)))
    ratio = median / np.nanmedian(median, axis=0)
    return Speed(names, np.nanmedian(ratio, axis=1), ratio)


def _gather(fleet: Fleet, tables: Sequence[DurationQuantiles]) -> tuple[tuple[str, ...], F64, F64, F64]:
    """Gather runs, total ns and median ns (over the steps) of all names: float64[r, n] each, 0 or NaN without runs."""
    index_of: dict[str, int] = {}
    codes = [np.array([index_of.setdefault(name, len(index_of)) for name in each.names] or [0]) for each in tables]
    shape = (len(fleet), len(index_of))
    count, total, median = np.zeros(shape), np.zeros(shape), np.full(shape, np.nan)
    for index, (table, code) in enumerate(zip(tables, codes, strict=True)):
        name = code[table.name]
        count[index] = np.bincount(name, table.count, shape[1])
        total[index] = np.bincount(name, table.total, shape[1])
        order = np.lexsort((table.median, name))
        used, first = np.unique(name[order], return_index=True)
        size = np.diff(np.append(first, len(order)))
        values = table.median[order]
        median[index, used] = (values[first + (size - 1) // 2] + values[first + size // 2]) / 2
    return tuple(index_of), count, total, median


def _select(names: Sequence[str], values: F64, count: F64, total: F64, runs: int) -> tuple[tuple[str, ...], F64, F64]:
    """Select the names that nearly all ranks ran often enough, and that take any time."""
    common = (count >= runs).mean(axis=0) >= MIN_RANK_SHARE
    common &= (total > 0).mean(axis=0) >= MIN_RANK_SHARE
    with np.errstate(all="ignore"):
        common &= np.nanmedian(np.where(common, values, 0.0), axis=0) > 0
    kept = np.flatnonzero(common)
    return tuple(names[index] for index in kept.tolist()), values[:, kept], total[:, kept]
