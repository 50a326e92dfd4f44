"""Algebra of time sets, stored as sorted intervals that neither overlap nor touch. Vectorised; all times ns."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from torchprof_tui.trace.core.arrays import I64, NONE, Bool
from torchprof_tui.trace.core.records import record


@record(slots=False)
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
        beyond = np.maximum(self.ends[index - 1] - times, 0)
        covered: I64 = self._cumulative[index] - np.where(index > 0, beyond, 0)
        return covered

    def measure_within(self, starts: I64, ends: I64) -> I64:
        """Measure how much of the set lies in each range: int64[k]."""
        return self.measure_before(ends) - self.measure_before(starts)

    def measure_overlap(self, other: Intervals) -> int:
        """Measure the time that lies in both sets, ns; as the total of their intersection, which is not built."""
        few, many = sorted((self, other), key=len)
        return int(many.measure_within(few.starts, few.ends).sum())

    def contains(self, times: I64) -> Bool:
        """Test which times lie in an interval: bool[k]."""
        return np.asarray(find_range_at(self.starts, self.ends, times) != NONE)

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
        return unite((self, other))

    def __and__(self, other: Intervals) -> Intervals:
        """Intersect by binary search of the smaller set in the other, so that few intervals cost little."""
        few, many = sorted((self, other), key=len)
        if not len(few):
            return NO_INTERVALS
        first = many.ends.searchsorted(few.starts, side="right")
        count = np.maximum(many.starts.searchsorted(few.ends) - first, 0)
        # Each interval of the smaller set meets `count` intervals of the other in a row, from `first` on.
        ours = np.repeat(np.arange(len(few)), count)
        theirs = np.arange(len(ours)) + np.repeat(first - np.cumsum(count) + count, count)
        return Intervals(
            np.maximum(few.starts[ours], many.starts[theirs]), np.minimum(few.ends[ours], many.ends[theirs])
        )

    def __sub__(self, other: Intervals) -> Intervals:
        if not len(self) or not len(other):
            return self
        other = other.clip(int(self.starts[0]), int(self.ends[-1]))
        return self & Intervals(np.append(_EARLIEST, other.ends), np.append(other.starts, _LATEST))


_EARLIEST, _LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
NO_INTERVALS = Intervals(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def find_range_at(starts: I64, ends: I64, times: I64) -> I64:
    """Find the last range that began before or at each time: its index, by start, -1 where it has ended: int64[k]."""
    if not len(starts):
        return np.full(len(times), NONE, dtype=np.int64)
    index = starts.searchsorted(times, side="right") - 1
    return np.where((index != NONE) & (times < ends[index]), index, NONE)


def unite(sets: Iterable[Intervals]) -> Intervals:
    """Build the set covered by any of these, sorted once for all of them."""
    parts = [part for part in sets if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else NO_INTERVALS
    return union(np.concatenate([part.starts for part in parts]), np.concatenate([part.ends for part in parts]))


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
