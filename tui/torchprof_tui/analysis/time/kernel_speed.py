"""Compare how fast the GPUs of several ranks run: the same kernels on the same grids, against the fastest rank."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.time.gpu_time import cover_events
from torchprof_tui.trace.core.arrays import F64
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.ranks import Ranks
from torchprof_tui.trace.model.trace import Trace

MIN_RUNS = 4  # runs of a kernel on each rank
MIN_DURATION = 20_000  # ns; shorter kernels vary with launches and caches, not with clocks

_Key = tuple[str, bytes]


@record(slots=False)
class KernelSpeed:
    """The speed of r GPUs. `kernel_count`: the kernels compared, 0 where none can be.

    `factor` float64[r]: the median, by GPU time, of a kernel's median duration over that on the fastest rank.
    """

    kernel_count: int
    factor: F64

    @property
    def slowest(self) -> int:
        return int(self.factor.argmax())

    @property
    def fastest(self) -> int:
        return int(self.factor.argmin())

    @property
    def spread(self) -> float:
        """The slowest rank's time over the fastest one's."""
        return float(self.factor.max() / self.factor.min()) if self.kernel_count else 1.0


def compare_kernel_speed(ranks: Ranks) -> KernelSpeed:
    """Compare the median durations of the kernels that all ranks ran often enough."""
    times = [_kernel_times(rank.trace) for rank in ranks.all]
    common = sorted(set.intersection(*(set(of_rank) for of_rank in times))) if times else []
    if len(times) < 2 or not common:
        return KernelSpeed(0, np.ones(len(times)))
    median = np.array([[of_rank[key][0] for key in common] for of_rank in times])  # [r, kernels]
    total = np.array([[of_rank[key][1] for key in common] for of_rank in times]).mean(axis=0)
    ratio = median / median.min(axis=0)
    return KernelSpeed(len(common), np.array([weighted_median(row, total) for row in ratio]))


def weighted_median(values: F64, weights: F64) -> float:
    """Return the value at half of the total weight, in the order of the values; at least one value is needed."""
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order])
    return float(values[order][min(int(cumulative.searchsorted(cumulative[-1] / 2)), len(values) - 1)])


def _kernel_times(trace: Trace) -> dict[_Key, tuple[float, float]]:
    """Return (median, total) ns of each long kernel by name and launch shape, without those beside a collective."""
    rows = np.flatnonzero(np.asarray(trace.kind) == Kind.KERNEL)
    rows = rows[np.asarray(trace.duration[rows]) >= MIN_DURATION]
    communicating = cover_events(trace, np.flatnonzero(np.asarray(trace.kind) == Kind.COLLECTIVE))
    start = np.asarray(trace.start[rows])
    rows = rows[communicating.measure_before(start + trace.duration[rows]) == communicating.measure_before(start)]
    if not len(rows):
        return {}
    shapes = [trace.numbers_at(arg, rows, shape=(3,)) for arg in ("grid", "block")]
    keys, back = np.unique(np.column_stack([trace.name[rows], *shapes]), axis=0, return_inverse=True)
    order = np.lexsort((trace.duration[rows], back.reshape(-1)))
    duration = np.asarray(trace.duration[rows])[order]
    bounds = np.searchsorted(back.reshape(-1)[order], np.arange(len(keys) + 1))
    times = {}
    for key, first, last in zip(keys, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if last - first >= MIN_RUNS:
            of_key = duration[first:last]
            times[(trace.names[int(key[0])], key[1:].tobytes())] = (float(np.median(of_key)), float(of_key.sum()))
    return times
