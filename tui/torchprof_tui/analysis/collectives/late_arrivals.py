"""Who came late to which collective, by how much, and how long the others waited.

A rank arrives when its kernel of the collective starts: it spins on the GPU until the last rank has come. So the
latest start is the rank that all wait for, and what it does before is where to look.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.time.host_stalls import HostStall, find_host_stalls
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.model.ranks import Ranks

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Arrivals:
    """m collectives of r ranks, on the common clock. `present` bool[m, r]: who took part; `start`, `end` int64[m, r],
    0 for who did not. Only collectives in which all wait for all: of a broadcast only the root is waited for.

    `meeting` int64[m]: which of `Ranks.meetings`.
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
        """int64[m]: when the first rank arrived."""
        found: I64 = np.where(self.present, self.start, _NEVER).min(axis=1, initial=_NEVER)
        return found

    @cached_property
    def last_start(self) -> I64:
        found: I64 = np.where(self.present, self.start, -_NEVER).max(axis=1, initial=-_NEVER)
        return found

    @cached_property
    def last_rank(self) -> I64:
        """int64[m]: the place of the rank that came last; of several the first."""
        found: I64 = np.where(self.present, self.start, -_NEVER).argmax(axis=1)
        return found

    @cached_property
    def late_by(self) -> I64:
        """int64[m]: ns between the last arrival and the one before it: what all others wait for this one rank."""
        if not len(self):
            return np.zeros(0, np.int64)
        ordered = np.sort(np.where(self.present, self.start, -_NEVER), axis=1)
        found: I64 = ordered[:, -1] - ordered[:, -2]
        return found

    @property
    def spread(self) -> I64:
        """int64[m]: ns between the first arrival and the last: the longest wait."""
        return self.last_start - self.first_start

    @cached_property
    def wait_times(self) -> I64:
        """int64[m, r]: ns that each rank waited for the last one."""
        return np.where(self.present, self.last_start[:, None] - self.start, 0)

    @cached_property
    def host_stalls(self) -> list[HostStall]:
        """Where one rank stands still and the others do not."""
        return find_host_stalls(self.ranks)

    def wait_intervals(self, rank_index: int, selected: Bool | None = None) -> Intervals:
        """When a rank (a place) waited in these collectives (all); each moment once."""
        mine = self.present[:, rank_index] if selected is None else self.present[:, rank_index] & selected
        return union(self.start[mine, rank_index], self.last_start[mine])

    def select_events(self, selected: Bool, rank_index: int) -> I64:
        """The events of one rank in these, numbered as in its own trace."""
        found: I64 = self.ranks.matched_collectives.events[
            self.collective_index[selected & self.present[:, rank_index]], rank_index
        ].astype(np.int64)
        return found


def compute_arrivals(ranks: Ranks) -> Arrivals:
    """Of all collectives that at least two ranks came to."""
    meetings = ranks.matched_collectives
    meeting = np.flatnonzero(meetings.is_synchronizing).astype(np.int64)
    events: I32 = meetings.events[meeting]
    present = events >= 0
    start = np.zeros(events.shape, np.int64)
    end = np.zeros(events.shape, np.int64)
    for place, rank in enumerate(ranks.all):
        mine = present[:, place]
        rows = events[mine, place]
        start[mine, place] = rank.trace.start[rows]
        end[mine, place] = start[mine, place] + rank.trace.duration[rows]
    order = np.argsort(np.where(present, start, _NEVER).min(axis=1, initial=_NEVER), kind="stable")
    return Arrivals(ranks, meeting[order], present[order], start[order], end[order])
