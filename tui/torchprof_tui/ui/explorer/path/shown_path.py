"""A critical path with what the screen shows of it; read on worker threads, which import this module.

Of several ranks it is the path of all, with the events of the whole trace, or of one: then its events are those of its
own trace, `first` less than in the whole trace.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.critical_path.critical_path import CriticalPath, find_critical_path, find_path_of_window
from torchprof_tui.analysis.critical_path.segments import (
    NO_RANK,
    WAITS,
    PathRows,
    SegmentKind,
    describe_kind,
    find_path_rows,
    list_longest,
)
from torchprof_tui.analysis.critical_path.step_window import WindowError, select_window
from torchprof_tui.analysis.rank_path.joined_path import find_joined_path, split_path
from torchprof_tui.trace.core.arrays import I32
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.debounced_worker import WorkResult
from torchprof_tui.ui.explorer.path.path_panel import ALL_RANKS, PathScope, covers_whole


@dataclass
class PathRead(WorkResult):
    """A worker has found the critical path of a scope; None where there is none, for the reason in `problem`."""

    scope: PathScope
    path: ShownPath | None
    problem: str = ""


MAX_LONGEST = 50  # segments that the panel lists


@record
class PathSegment:
    """One segment, ns. `event`: in the whole trace, -1 for none; of a wait the work or the launch that waits.

    `rank`: number of the rank on a path of all ranks, else NO_RANK.
    """

    label: str
    start: int
    end: int
    event: int
    is_wait: bool
    rank: int = NO_RANK


@record(slots=False)
class ShownPath:
    """A path, its rows on the lanes, and its longest segments, int32[k] indexes."""

    scope: PathScope
    path: CriticalPath
    rows: PathRows
    longest: I32
    rank_label: str
    first: int
    last: int

    def segment(self, index: int) -> PathSegment:
        segments = self.path.segments
        kind, event, kernel_class, rank = (
            int(column[index]) for column in (segments.kind, segments.event, segments.kernel_class, segments.rank)
        )
        label = describe_kind(SegmentKind(kind), kernel_class, rank)
        whole = event + self.first if event >= 0 else -1
        own = rank if self.path.rank_shares else NO_RANK
        return PathSegment(label, int(segments.start[index]), int(segments.end[index]), whole, kind in WAITS, own)

    def list_segments(self, kind: int) -> I32:
        """List the segments of a kind, an index of `path.shares`, in time order; of all for -1."""
        segments = self.path.segments
        if kind < 0:
            return np.arange(len(segments), dtype=np.int32)
        share = self.path.shares[kind]
        chosen = (segments.kind == share.kind) & (segments.kernel_class == share.kernel_class)
        if share.rank != NO_RANK:
            chosen &= segments.rank == share.rank
        return np.flatnonzero(chosen).astype(np.int32)

    def describe_event(self, trace: Trace, event: int) -> str:
        """Say whether an event of the whole trace is on the path, or by how much it could take longer."""
        if not self.first <= event < self.last:
            return f"of another rank: this is the path of {self.rank_label}"
        slack = self.path.slack_of(event - self.first)
        start = int(trace.start[event])
        row = trace.lanes[int(trace.lane[event])].row_base + int(trace.row[event])
        time = self.rows.sum_inside(row, start, start + int(trace.duration[event]))
        if time:
            events, times = self.path.path_events
            index = int(events.searchsorted(event - self.first))
            is_own = index < len(events) and int(events[index]) == event - self.first
            own = int(times[index]) if is_own else 0
            text = f"on the critical path with {format_duration(time)} of its {format_duration(trace.duration[event])}"
            return text if own >= time else f"{text}, {format_duration(own)} by itself"
        if slack is None:
            return "not part of what this path is about"
        if slack > 0:
            noun = "step" if self.scope.event >= 0 else "range"
            return f"off the critical path: could take {format_duration(slack)} longer before the {noun} grows"
        return "off the critical path, but without slack: it could take no longer"


def read_path(trace: Trace, scope: PathScope) -> PathRead:
    """Find the critical path of a scope, or why there is none."""
    ranks = trace.merged_ranks
    is_joined = ranks is not None and scope.rank_index == ALL_RANKS
    rank = trace.all_ranks[0 if is_joined else scope.rank_index]
    whole, first, last, label = (
        (trace, 0, len(trace), f"all {len(trace.all_ranks)} ranks")
        if is_joined
        else (rank.trace, rank.first, rank.last, rank.label)
    )
    try:
        if is_joined:
            path = _find_joined_path(trace, scope)
        else:
            path = _find_path(rank, scope)
            path = path if ranks is None else split_path(path, ranks, scope.rank_index)
    except WindowError as error:
        return PathRead(scope, None, str(error))
    lanes = trace.lanes if is_joined else trace.lanes[rank.first_lane : rank.last_lane]
    row_base = np.array([lane.row_base for lane in lanes], np.int64)
    rows = find_path_rows(whole, path.segments, row_base, trace.row_index.rows)
    _ = path.shares, path.path_events, path.rank_shares  # computed here, not when the screen asks
    longest = list_longest(path.segments, MAX_LONGEST)
    return PathRead(scope, ShownPath(scope, path, rows, longest, label, first, last))


def _find_joined_path(trace: Trace, scope: PathScope) -> CriticalPath:
    """Find the path of all ranks. The scope names the step as it is on the first rank."""
    ranks = trace.merged_ranks
    assert ranks is not None
    for step in ranks.all[0].steps:
        if step.event == scope.event:
            return find_joined_path(ranks, step.number)
    if covers_whole(trace, scope) and not any(rank.trace.steps for rank in ranks.all):
        return find_joined_path(ranks)
    return find_joined_path(ranks, time_range=(scope.start, scope.end))


def _find_path(rank: Rank, scope: PathScope) -> CriticalPath:
    trace = rank.trace
    for step in trace.steps:
        if step.event + rank.first == scope.event:
            return find_path_of_window(trace, select_window(trace, step))
    if covers_whole(trace, scope) and not trace.steps:
        return find_critical_path(trace)
    return find_critical_path(trace, time_range=(scope.start, scope.end))
