"""The places that a finding's evidence leads to, the costliest first: events, or gaps between events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from torchprof_tui.trace.core.arrays import I64, argsort_stable

if TYPE_CHECKING:
    from torchprof_tui.analysis.time.intervals import Intervals
    from torchprof_tui.trace.model.trace import Trace

MAX_HOST_GAPS = 50
"""Gaps of plain code that are kept: thousands of short ones lie between the ops of any program."""


@dataclass(frozen=True, slots=True)
class EvidencePlaces:
    """k places at which time was lost, by `cost` (ns), largest first; of equal ones, the earliest first.

    `start`, `end`: when, int64[k], ns. `event`: row of the trace to select there, int64[k], -1 for none.
    `are_gaps`: whether the time lies between events; `event` is then beside the gap or begins in it.
    """

    start: I64
    end: I64
    event: I64
    cost: I64
    are_gaps: bool

    def __len__(self) -> int:
        return len(self.start)

    def shift_events(self, offset: int) -> EvidencePlaces:
        """Return the places with `offset` added to their events: from one rank's numbers to the merged trace's."""
        return replace(self, event=np.where(self.event >= 0, self.event + offset, -1))


def sort_places(start: I64, end: I64, event: I64, cost: I64, are_gaps: bool) -> EvidencePlaces:
    """Build places from int64[k] each (ns; rows), in any order."""
    is_by_start = not (start[1:] < start[:-1]).any()  # most are, and one sort is enough
    order = argsort_stable(-cost) if is_by_start else np.lexsort((start, -cost))
    return EvidencePlaces(start[order], end[order], event[order].astype(np.int64), cost[order], are_gaps)


def find_event_places(trace: Trace, events: I64, cost: I64 | None = None) -> EvidencePlaces:
    """Build the places of events, int64[k]; `cost`: ns that each costs, int64[k]; None: its duration."""
    start, duration = np.asarray(trace.start[events]), np.asarray(trace.duration[events])
    return sort_places(start, start + duration, events, duration if cost is None else cost, False)


def find_gap_places(trace: Trace, gaps: Intervals, inside: I64, beside: I64, lane: int) -> EvidencePlaces:
    """Build the places of the longest times without an op on a thread's `lane`, at most MAX_HOST_GAPS.

    `inside`, `beside`: rows, int64[n]. Each gap gets the first event of `inside` that begins in it, else the event of
    `beside` that begins next, else the last one before it.
    """
    longest = np.argsort(gaps.starts - gaps.ends, kind="stable")[:MAX_HOST_GAPS]
    start, end = gaps.starts[longest], gaps.ends[longest]
    inside, beside = (np.sort(rows[np.asarray(trace.lane[rows]) == lane]) for rows in (inside, beside))
    event = np.full(len(start), -1, dtype=np.int64)
    if len(beside):
        event = beside[np.minimum(np.searchsorted(trace.start[beside], end), len(beside) - 1)]
    if len(inside):
        inside_start = np.asarray(trace.start[inside])
        first = np.minimum(inside_start.searchsorted(start), len(inside) - 1)
        begins_inside = (inside_start[first] >= start) & (inside_start[first] < end)
        event = np.where(begins_inside, inside[first], event)
    return sort_places(start, end, event, end - start, True)


def merge_places(parts: Sequence[EvidencePlaces]) -> EvidencePlaces:
    """Merge the places of one finding on several ranks, costliest first."""
    columns = [np.concatenate([getattr(part, name) for part in parts]) for name in ("start", "end", "event", "cost")]
    return sort_places(columns[0], columns[1], columns[2], columns[3], parts[0].are_gaps)
