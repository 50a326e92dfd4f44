"""What a CPU thread does at each time: its innermost event."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.critical_path.step_window import NO_EVENT
from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

_INSTANT_KINDS = (Kind.INSTANT, Kind.MEMORY, Kind.ASYNC)


@dataclass(frozen=True, slots=True)
class ThreadTimeline:
    """From `time[i]` to `time[i + 1]` the innermost event is `event[i]` (-1 for none): int64[k], int32[k]."""

    time: I64
    event: I32

    def split(self, starts: I64, ends: I64) -> tuple[I64, I64, I32, I64]:
        """Split intervals by innermost event: starts, ends, events, and the interval of each piece.

        `starts`, `ends` int64[p]: not empty, none before `time[0]`.
        """
        first = self.time.searchsorted(starts, side="right") - 1
        count = self.time.searchsorted(ends, side="left") - first
        owner = np.repeat(np.arange(len(starts)), count)
        piece = np.arange(len(owner)) + np.repeat(first - np.cumsum(count) + count, count)
        until = np.append(self.time[1:], np.iinfo(np.int64).max)
        return (
            np.maximum(self.time[piece], starts[owner]),
            np.minimum(until[piece], ends[owner]),
            self.event[piece],
            owner,
        )


def build_timeline(trace: Trace, lane: int, start: int, end: int) -> ThreadTimeline:
    """Build the timeline of a thread between two times."""
    rows = slice(trace.lanes[lane].first, trace.lanes[lane].last)
    begin, duration = trace.start[rows], trace.duration[rows]
    chosen = (begin < end) & (begin + duration > start) & (duration > 0)
    chosen &= ~np.isin(trace.kind[rows], _INSTANT_KINDS)
    events = (rows.start + np.flatnonzero(chosen)).astype(np.int32)
    count = len(events)
    time = np.concatenate([trace.start[events], trace.start[events] + trace.duration[events]])
    is_start = np.arange(2 * count) < count
    # Events that end at a time end before others start, inner ones first; of those that start the outer one first.
    depth = np.concatenate([np.arange(count), -np.arange(count)])
    order = np.lexsort((depth, is_start, time))
    after = np.concatenate([events, trace.parent[events]]).astype(np.int32)[order]
    time = np.maximum(time[order], start)
    return ThreadTimeline(np.append(start, time), np.append(np.int32(NO_EVENT), after).astype(np.int32))
