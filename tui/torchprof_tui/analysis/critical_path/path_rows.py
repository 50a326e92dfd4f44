"""Where a critical path lies on the rows of the lanes: an event's row, and those of the events around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.critical_path.segments import SegmentKind, Segments
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.model.trace import Trace

WAITS = (SegmentKind.QUEUE, SegmentKind.UNATTRIBUTED, SegmentKind.RANK)
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
    kept = end > start
    found = _add_parents(trace, event[kept], start[kept], end[kept])
    event, start, end = (np.concatenate([column, *columns]) for column, *columns in zip(*found, strict=True))
    return _join(row_base[trace.lane[event]] + trace.row[event], start, end, row_count)


def _add_parents(trace: Trace, event: I64, start: I64, end: I64) -> list[tuple[I64, I64, I64]]:
    """Add the same times of the events around each piece: events, starts, ends, in parts.

    From the innermost row outwards: most pieces continue the one before inside the same parent and become one there, so
    that a row has about as many pieces as events, however deep the stacks are.
    """
    found = [(event[:0], start[:0], end[:0])]
    depth = trace.row[event].astype(np.int64)
    order = np.argsort(depth, kind="stable")
    own = depth[order].searchsorted(np.arange(int(depth.max(initial=-1)) + 2))
    outer = event[:0], start[:0], end[:0]
    for row in range(len(own) - 2, -1, -1):
        chosen = order[own[row] : own[row + 1]]
        is_here = trace.row[outer[0]] == row
        here = [
            np.concatenate([column[chosen], other[is_here]])
            for column, other in zip((event, start, end), outer, strict=True)
        ]
        pieces = _join_pieces(*here)
        found.append(pieces)
        parent = trace.parent[pieces[0]].astype(np.int64)
        inside = parent >= 0
        added = parent[inside], pieces[1][inside], pieces[2][inside]
        outer = (
            np.concatenate([outer[0][~is_here], added[0]]),
            np.concatenate([outer[1][~is_here], added[1]]),
            np.concatenate([outer[2][~is_here], added[2]]),
        )
    return found


def _join_pieces(event: I64, start: I64, end: I64) -> tuple[I64, I64, I64]:
    """Sort pieces by start, and join those of one event that touch."""
    order = np.lexsort((start, event))
    event, start, end = event[order], start[order], end[order]
    is_new = np.ones(len(event), np.bool_)
    is_new[1:] = (event[1:] != event[:-1]) | (start[1:] > end[:-1])
    index = np.flatnonzero(is_new)
    last = np.append(index[1:], len(event))[: len(index)] - 1
    return event[index], start[index], end[last]


def _join(row: I64, start: I64, end: I64, row_count: int) -> PathRows:
    """Sort intervals by row and join those that touch; at each time a row has at most one."""
    row, start, end = _join_pieces(row, start, end)
    return PathRows(row.searchsorted(np.arange(row_count + 1), side="left").astype(np.int64), start, end)


def list_longest(segments: Segments, count: int) -> I32:
    """List the longest segments, longest first: int32[k] indexes."""
    return np.argsort(segments.start - segments.end, kind="stable")[:count].astype(np.int32)
