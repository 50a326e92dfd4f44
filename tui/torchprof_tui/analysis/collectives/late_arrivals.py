"""Find the rank that arrives last at each collective, its delay, and the waiting time of the other ranks.

A rank arrives when its kernel of the collective starts; the kernel spins on the GPU until the last rank has arrived.
The rank with the latest start therefore delays all others, and the cause is what it does before.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.time.host_stalls import HostSpeed, HostStall, compare_host_speed, find_host_stalls
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.analysis.time.kernel_speed import KernelSpeed, compare_kernel_speed
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.model.ranks import Ranks

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Arrivals:
    """Arrivals of r ranks at m collectives, on the common clock.

    `present` bool[m, r]: the ranks that took part. `start`, `end` int64[m, r], ns, 0 for ranks that did not. Only
    synchronizing collectives are included, not a broadcast, where ranks wait for the root only.
    `collective_index` int64[m]: index into `Ranks.matched_collectives`.
    """

    ranks: Ranks
    collective_index: I64
    present: Bool
    start: I64
    end: I64

    def __len__(self) -> int:
        return len(self.collective_index)

    @cached_property
    def first_start(self) -> I64:
        """int64[m]: ns, arrival of the first rank."""
        first: I64 = np.where(self.present, self.start, _NEVER).min(axis=1, initial=_NEVER)
        return first

    @cached_property
    def last_start(self) -> I64:
        """int64[m]: ns, arrival of the last rank."""
        last: I64 = np.where(self.present, self.start, -_NEVER).max(axis=1, initial=-_NEVER)
        return last

    @cached_property
    def last_rank(self) -> I64:
        """int64[m]: index of the rank that arrived last; the lowest if several tie."""
        rank_index: I64 = np.where(self.present, self.start, -_NEVER).argmax(axis=1)
        return rank_index

    @cached_property
    def late_by(self) -> I64:
        """int64[m]: ns between the last arrival and the one before it: the delay caused by the last rank alone."""
        if not len(self):
            return np.zeros(0, np.int64)
        ordered = np.sort(np.where(self.present, self.start, -_NEVER), axis=1)
        delay: I64 = ordered[:, -1] - ordered[:, -2]
        return delay

    @property
    def spread(self) -> I64:
        """int64[m]: ns between the first arrival and the last: the longest wait."""
        return self.last_start - self.first_start

    @cached_property
    def wait_times(self) -> I64:
        """int64[m, r]: ns that each rank waited for the last one; 0 for ranks that did not take part."""
        return np.where(self.present, self.last_start[:, None] - self.start, 0)

    @cached_property
    def host_stalls(self) -> list[HostStall]:
        """Places where one rank idles and the others do not."""
        return find_host_stalls(self.ranks)

    @cached_property
    def host_speed(self) -> HostSpeed:
        """How fast the ranks' hosts run the same ops."""
        return compare_host_speed(self.ranks)

    @cached_property
    def kernel_speed(self) -> KernelSpeed:
        """How fast the ranks' GPUs run the same kernels."""
        return compare_kernel_speed(self.ranks)

    def wait_intervals(self, rank_index: int, selected: Bool | None = None) -> Intervals:
        """Compute when a rank waited in the selected collectives (bool[m]; all by default)."""
        attended = self.present[:, rank_index] if selected is None else self.present[:, rank_index] & selected
        return union(self.start[attended, rank_index], self.last_start[attended])

    def select_events(self, selected: Bool, rank_index: int) -> I64:
        """Select the events of one rank in the selected collectives (bool[m]), numbered as in the rank's own trace."""
        events: I64 = self.ranks.matched_collectives.events[
            self.collective_index[selected & self.present[:, rank_index]], rank_index
        ].astype(np.int64)
        return events


def compute_arrivals(ranks: Ranks) -> Arrivals:
    """Compute the arrivals at all matched, synchronizing collectives, ordered by the first arrival."""
    collectives = ranks.matched_collectives
    index = np.flatnonzero(collectives.is_synchronizing).astype(np.int64)
    events: I32 = collectives.events[index]
    present = events >= 0
    start = np.zeros(events.shape, np.int64)
    end = np.zeros(events.shape, np.int64)
    for rank_index, rank in enumerate(ranks.all):
        attended = present[:, rank_index]
        rows = events[attended, rank_index]
        start[attended, rank_index] = rank.trace.start[rows]
        end[attended, rank_index] = start[attended, rank_index] + rank.trace.duration[rows]
    order = np.argsort(np.where(present, start, _NEVER).min(axis=1, initial=_NEVER), kind="stable")
    return Arrivals(ranks, index[order], present[order], start[order], end[order])
