"""Where a critical path lies on the rows of the lanes: an event's row, and those of the events around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.critical_path.segments import SegmentKind, Segments
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.model.trace import Trace

WAITS = (SegmentKind.QUEUE, SegmentKind.UNATTRIBUTED)
"""Segments in which no event takes the time: their event is what waits, or was waited for."""


@dataclass(frozen=True, slots=True)
class PathRows:
    """The time of a path on each row, as intervals that neither overlap nor touch, by row and start.

    `first` int64[rows + 1]: of each row's intervals in `start`, `end` int64[n], ns.
    """

    first: I64
    start: I64
    end: I64

    def select_cells(self, rows: Sequence[int], left: I64, right: I64) -> Bool:
        """Select the cells in which the path has any time on one of these rows: bool[W].

        Cell k is `left[k]` up to, but not including, `right[k]`: int64[W] ns.
        """
        found = np.zeros(len(left), np.bool_)
        for row in rows:
            chosen = slice(self.first[row], self.first[row + 1])
            if chosen.stop > chosen.start:
                begun = self.start[chosen].searchsorted(right, side="left")
                over = self.end[chosen].searchsorted(left, side="right")
                found |= begun > over
        return found

    def sum_inside(self, row: int, start: int, end: int) -> int:
        """Sum the time of the path on a row between two times, ns."""
        chosen = slice(self.first[row], self.first[row + 1])
        inside = np.minimum(self.end[chosen], end) - np.maximum(self.start[chosen], start)
        return int(np.maximum(inside, 0).sum())


def find_path_rows(trace: Trace, segments: Segments, row_base: I64, row_count: int) -> PathRows:
    """Find where a path lies. `row_base` int64[lanes]: the first row of each lane of `trace`, of `row_count` rows."""
    chosen = np.flatnonzero((segments.event >= 0) & ~np.isin(segments.kind, WAITS))
    event = segments.event[chosen].astype(np.int64)
    start = np.maximum(segments.start[chosen], trace.start[event])
    end = np.minimum(segments.end[chosen], trace.start[event] + trace.duration[event])
    rows, starts, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    while True:
        kept = (event >= 0) & (end > start)
        event, start, end = event[kept], start[kept], end[kept]
        if not len(event):
            break
        rows.append(row_base[trace.lane[event]] + trace.row[event])
        starts.append(start)
        ends.append(end)
        event = trace.parent[event].astype(np.int64)
        # Most pieces of a path continue the one before inside the same parent: they become one.
        is_new = np.ones(len(event), np.bool_)
        is_new[1:] = (event[1:] != event[:-1]) | (start[1:] != end[:-1])
        index = np.flatnonzero(is_new)
        event, start = event[index], start[index]
        end = end[np.append(index[1:], len(end)) - 1]
    return _join(np.concatenate(rows), np.concatenate(starts), np.concatenate(ends), row_count)


def _join(row: I64, start: I64, end: I64, row_count: int) -> PathRows:
    """Sort intervals by row and join those that touch; at each time a row has at most one."""
    order = np.lexsort((start, row))
    row, start, end = row[order], start[order], end[order]
    is_new = np.ones(len(row), np.bool_)
    is_new[1:] = (row[1:] != row[:-1]) | (start[1:] > end[:-1])
    index = np.flatnonzero(is_new)
    last = np.append(index[1:], len(row))[: len(index)] - 1
    first = row[index].searchsorted(np.arange(row_count + 1), side="left")
    return PathRows(first.astype(np.int64), start[index], end[last])


def list_longest(segments: Segments, count: int) -> I32:
    """List the longest segments, longest first: int32[k] indexes."""
    return np.argsort(segments.start - segments.end, kind="stable")[:count].astype(np.int32)
