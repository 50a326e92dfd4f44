"""Compare how fast the hosts of several ranks run: the same ops on each rank, against the fastest rank.

All ranks run the same program. A rank on a slow host (a busy node, a lower clock, a process on the wrong socket) takes
longer for nearly every op; one that stalls at one place (`host_stalls`) or has more work does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals, union
from torchprof_tui.trace.core.arrays import F64
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.ranks import Ranks
from torchprof_tui.trace.model.trace import Trace

MIN_RUNS = 10
"""Runs of an op on each rank: fewer have no steady median."""

MIN_OPS = 10
"""Ops to compare: a handful does not describe a host."""

SLOWER_RATIO = 1.15
"""From here on an op counts as slower than on the fastest rank."""


@dataclass(frozen=True)
class HostSpeed:
    """The speed of r hosts. `op_count`: the ops compared; 0 where they cannot be.

    `factor` float64[r]: median over the ops of an op's median duration over that on the fastest rank, which has 1.
    `slower_share` float64[r]: the share of ops that take at least `SLOWER_RATIO` times as long. `slowest_op_time`: when
    the slowest rank ran ops, on the common clock.
    """

    op_count: int
    factor: F64
    slower_share: F64
    fastest: int
    slowest: int
    slowest_op_time: Intervals

    @property
    def slowest_factor(self) -> float:
        return float(self.factor[self.slowest]) if self.op_count else 1.0


def compare_host_speed(ranks: Ranks) -> HostSpeed:
    """Compare the median durations of the ops that all ranks ran often enough."""
    medians = [_median_durations(rank.trace) for rank in ranks.all]
    common = sorted(set.intersection(*(set(of_rank) for of_rank in medians))) if medians else []
    if len(medians) < 2 or len(common) < MIN_OPS:
        return HostSpeed(0, np.ones(len(medians)), np.zeros(len(medians)), 0, 0, NO_INTERVALS)
    duration = np.array([[of_rank[name] for name in common] for of_rank in medians])  # [r, ops]
    to_best = np.median(duration / duration.min(axis=0), axis=1)
    fastest = int(to_best.argmin())
    ratio = duration / duration[fastest]
    factor = np.median(ratio, axis=1)
    slowest = int(factor.argmax())
    return HostSpeed(
        op_count=len(common),
        factor=factor,
        slower_share=(ratio >= SLOWER_RATIO).mean(axis=1),
        fastest=fastest,
        slowest=slowest,
        slowest_op_time=_op_time(ranks.all[slowest].trace),
    )


def _median_durations(trace: Trace) -> dict[str, float]:
    """Return the median duration (ns) of each `aten` op that ran often enough and takes any time, by name."""
    rows = np.flatnonzero(np.asarray(trace.kind) == Kind.OP)
    name, duration = np.asarray(trace.name[rows]), np.asarray(trace.duration[rows])
    order = np.lexsort((duration, name))
    name, duration = name[order], duration[order]
    names, first, count = np.unique(name, return_index=True, return_counts=True)
    median = (duration[first + (count - 1) // 2] + duration[first + count // 2]) / 2 if len(names) else duration
    return {
        trace.names[int(name_id)]: float(value)
        for name_id, value, runs in zip(names, median, count, strict=True)
        if runs >= MIN_RUNS and value > 0 and trace.names[int(name_id)].startswith("aten::")
    }


def _op_time(trace: Trace) -> Intervals:
    rows = np.flatnonzero(np.asarray(trace.kind) == Kind.OP)
    return union(trace.start[rows], trace.start[rows] + trace.duration[rows])
