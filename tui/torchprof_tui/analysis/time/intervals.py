"""Algebra of time sets, stored as sorted intervals that neither overlap nor touch. Vectorised; all times ns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from torchprof_tui.trace.core.arrays import I8, I64


@dataclass(frozen=True)
class Intervals:
    """k half-open intervals [`starts[i]`, `ends[i]`): int64[k] each, ascending; none empty, no two touch.

    Create one with `union`; the other operations keep these properties.
    """

    starts: I64
    ends: I64

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def _cumulative(self) -> I64:
        """int64[k + 1]: total length of the intervals before each."""
        sums = np.zeros(len(self) + 1, dtype=np.int64)
        np.cumsum(self.ends - self.starts, out=sums[1:])
        return sums

    @property
    def total(self) -> int:
        """Total length, ns."""
        return int(self._cumulative[-1])

    def measure_before(self, times: I64) -> I64:
        """Measure how much of the set lies before each time: int64[...]. One binary search per time."""
        if not len(self):
            return np.zeros(np.shape(times), dtype=np.int64)
        index = self.starts.searchsorted(times)
        beyond = np.maximum(self.ends[np.maximum(index - 1, 0)] - times, 0)
        covered: I64 = self._cumulative[index] - np.where(index > 0, beyond, 0)
        return covered

    def measure_between(self, t0: int, t1: int) -> int:
        """Measure how much of the set lies between two times."""
        first, last = self.measure_before(np.array([t0, max(t0, t1)], dtype=np.int64)).tolist()
        return int(last - first)

    def clip(self, t0: int, t1: int) -> Intervals:
        """Restrict the set to the time between t0 and t1; empty if t1 is not after t0."""
        if t1 <= t0:
            return NO_INTERVALS
        first = int(self.ends.searchsorted(t0, side="right"))
        last = max(int(self.starts.searchsorted(t1)), first)
        return Intervals(np.maximum(self.starts[first:last], t0), np.minimum(self.ends[first:last], t1))

    def __or__(self, other: Intervals) -> Intervals:
        return union(np.concatenate([self.starts, other.starts]), np.concatenate([self.ends, other.ends]))

    def __and__(self, other: Intervals) -> Intervals:
        return self._combine(other, _IN_BOTH)

    def __sub__(self, other: Intervals) -> Intervals:
        return self._combine(other, _IN_FIRST_ALONE)

    def _combine(self, other: Intervals, kept_states: I8) -> Intervals:
        """Combine two sets in one sweep over their bounds.

        The state after a bound is 1 inside this set plus 2 inside the other; `kept_states` int8[4] says which states
        are in the result.
        """
        bounds = np.concatenate([self.starts, self.ends, other.starts, other.ends])
        if not len(bounds):
            return NO_INTERVALS
        change = np.repeat(np.array([1, -1, 2, -2], dtype=np.int8), [len(self)] * 2 + [len(other)] * 2)
        order = np.argsort(bounds, kind="stable")  # four sorted runs, which a stable sort merges
        bounds, state = bounds[order], np.cumsum(change[order], dtype=np.int8)
        is_last = np.append(bounds[1:] != bounds[:-1], True)  # the state between bounds, not among equal ones
        step = np.diff(kept_states[state[is_last]], prepend=np.int8(0))
        bounds = bounds[is_last]
        return Intervals(bounds[step > 0], bounds[step < 0])


_IN_BOTH = np.array([0, 0, 0, 1], dtype=np.int8)
_IN_FIRST_ALONE = np.array([0, 1, 0, 0], dtype=np.int8)
NO_INTERVALS = Intervals(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def union(starts: I64, ends: I64) -> Intervals:
    """Build the set covered by any intervals: int64[n] each, in any order, may overlap; empty ones are ignored."""
    nonempty = ends > starts
    if not nonempty.all():
        starts, ends = starts[nonempty], ends[nonempty]
    if not len(starts):
        return NO_INTERVALS
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")  # one sorted run per stream, which a stable sort merges quickly
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    opens = np.flatnonzero(starts[1:] > reach[:-1]) + 1
    return Intervals(starts[np.append(0, opens)], reach[np.append(opens, len(reach)) - 1])
