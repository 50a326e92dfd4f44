"""Sets of time as sorted intervals that neither overlap nor touch, and their algebra. Vectorised; all times ns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from torchprof_tui.trace.core.arrays import I64, Bool


@dataclass(frozen=True)
class Intervals:
    """k intervals `starts[i]` up to, not with, `ends[i]`: int64[k] each, ascending; none empty, no two touch.

    Make one with `union`; the other operations return such sets again.
    """

    starts: I64
    ends: I64

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def _cumulative(self) -> I64:
        """int64[k + 1]: the length of all intervals before each."""
        sums = np.zeros(len(self) + 1, dtype=np.int64)
        np.cumsum(self.ends - self.starts, out=sums[1:])
        return sums

    @property
    def total(self) -> int:
        return int(self._cumulative[-1])

    def measure_before(self, times: I64) -> I64:
        """int64[...]: how much of the set lies before each time. One binary search each."""
        if not len(self):
            return np.zeros(np.shape(times), dtype=np.int64)
        place = self.starts.searchsorted(times)
        beyond = np.maximum(self.ends[np.maximum(place - 1, 0)] - times, 0)
        covered: I64 = self._cumulative[place] - np.where(place > 0, beyond, 0)
        return covered

    def measure_between(self, t0: int, t1: int) -> int:
        """How much of the set lies between two times."""
        first, last = self.measure_before(np.array([t0, max(t0, t1)], dtype=np.int64)).tolist()
        return int(last - first)

    def clip(self, t0: int, t1: int) -> Intervals:
        """The part of the set between two times; nothing where they leave no time."""
        if t1 <= t0:
            return NO_INTERVALS
        first = int(self.ends.searchsorted(t0, side="right"))
        last = max(int(self.starts.searchsorted(t1)), first)
        return Intervals(np.maximum(self.starts[first:last], t0), np.minimum(self.ends[first:last], t1))

    def __or__(self, other: Intervals) -> Intervals:
        return union(np.concatenate([self.starts, other.starts]), np.concatenate([self.ends, other.ends]))

    def __and__(self, other: Intervals) -> Intervals:
        return self._combine(other, lambda mine, theirs: mine & theirs)

    def __sub__(self, other: Intervals) -> Intervals:
        return self._combine(other, lambda mine, theirs: mine & ~theirs)

    def _contains(self, times: I64) -> Bool:
        """bool[...]: is each time in the set?"""
        inside: Bool = self.starts.searchsorted(times, side="right") > self.ends.searchsorted(times, side="right")
        return inside

    def _combine(self, other: Intervals, keep: Callable[[Bool, Bool], Bool]) -> Intervals:
        """Between two neighbouring bounds of either set nothing changes: decide each such piece by its start."""
        # Four sorted runs, which a stable sort merges; `np.unique` would hash them first, at ten times the price.
        bounds = np.sort(np.concatenate([self.starts, self.ends, other.starts, other.ends]), kind="stable")
        if not len(bounds):
            return NO_INTERVALS
        bounds = bounds[np.append(True, bounds[1:] != bounds[:-1])]
        kept = keep(self._contains(bounds), other._contains(bounds))  # the last bound is in neither set
        change = np.diff(kept.astype(np.int8), prepend=0)
        return Intervals(bounds[change > 0], bounds[change < 0])


NO_INTERVALS = Intervals(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def union(starts: I64, ends: I64) -> Intervals:
    """The set that any intervals cover: int64[n] each, in any order, overlapping or not; empty ones count nothing."""
    some = ends > starts
    if not some.all():
        starts, ends = starts[some], ends[some]
    if not len(starts):
        return NO_INTERVALS
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")  # a few sorted runs, one a stream: merging them is fast
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    opens = np.flatnonzero(starts[1:] > reach[:-1]) + 1
    return Intervals(starts[np.append(0, opens)], reach[np.append(opens, len(reach)) - 1])
