"""Find what limits a step: its critical path, the slack of everything else, and how far the graph can be trusted."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from torchprof_tui.analysis.critical_path.build_graph import build_graph, describe_missing_edges, sum_earlier
from torchprof_tui.analysis.critical_path.dependency_graph import (
    INFERRED_KINDS,
    DependencyGraph,
    compute_node_slack,
    find_path,
    replay_graph,
)
from torchprof_tui.analysis.critical_path.range_window import end_on_autograd, select_range, select_repetition
from torchprof_tui.analysis.critical_path.segments import (
    NO_CLASS,
    NO_RANK,
    SegmentKind,
    Segments,
    begin_segments,
    build_segments,
    describe_kind,
)
from torchprof_tui.analysis.critical_path.step_window import StepWindow, select_step, select_window
from torchprof_tui.trace.core.arrays import I32, I64, NONE, is_in
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace

MAX_REPLAY_ERROR = 0.05  # share of the recorded time above which the graph lacks dependencies that matter


@record
class KindShare:
    """Time of one kind on the path, ns; `share` of the window, 0..1; in `count` segments.

    `kernel_class`: KernelClass of kernels, else NO_CLASS. `rank`: the one that is waited for, else NO_RANK.
    """

    label: str
    kind: SegmentKind
    time: int
    share: float
    count: int
    kernel_class: int = NO_CLASS
    rank: int = NO_RANK


@record
class RankShare:
    """Time of one rank on a path of several ranks, ns; `share` of the path, 0..1; in `count` contiguous parts."""

    rank: int
    time: int
    share: float
    count: int


@record
class PathEvent:
    """An event on the path: its row, and how much of its time is on the path, ns."""

    event: int
    time: int


@record
class OffPathWork:
    """GPU work of one name, an index of `trace.names`, that is not on the path: `time` and least `slack` in ns."""

    name: int
    count: int
    time: int
    slack: int


@record(slots=False)
class CriticalPath:
    """What limits a window. All times ns.

    `segments` tile the window: their times sum to `duration`. `replayed`: the duration that the unchanged graph
    predicts, never above the recorded one. `event` int32[k], ascending, and `slack` int64[k]: each event of the window
    on threads and streams, and how much later it could end. `inferred`: edges of the path that follow from the order
    of calls and from times because they were not recorded. `missing`: the dependencies that the graph lacks, one line
    each; empty while the replay error is small and little time of the path is spent in work launched before the
    recording. `advice`: what to record.
    """

    window: StepWindow
    graph: DependencyGraph
    segments: Segments
    replayed: int
    event: I32
    slack: I64
    inferred: int
    missing: tuple[str, ...]
    advice: str

    @property
    def duration(self) -> int:
        return self.window.duration

    @property
    def replay_error(self) -> float:
        """(replayed - recorded) / recorded: 0 at best, negative where dependencies are missing."""
        return (self.replayed - self.duration) / self.duration

    @property
    def is_trusted(self) -> bool:
        """Whether the replay error is small enough."""
        return abs(self.replay_error) <= MAX_REPLAY_ERROR

    @cached_property
    def shares(self) -> tuple[KindShare, ...]:
        """Sum the time by kind, of kernels by class, longest first; the times sum to `duration`."""
        segments = self.segments
        waited = np.where(segments.kind == SegmentKind.RANK, segments.rank, NO_RANK)
        key = np.stack([segments.kind, segments.kernel_class, waited], axis=1).astype(np.int64)
        packed = np.zeros(len(key), np.int64)
        for column in key.T if len(key) else ():
            packed = packed * (column.max() - column.min() + 1) + (column - column.min())
        _, first, index, counts = np.unique(packed, return_index=True, return_inverse=True, return_counts=True)
        times = np.zeros(len(first), np.int64)
        np.add.at(times, index, segments.end - segments.start)
        found = []
        for (number, kernel_class, rank), time, count in zip(
            key[first].tolist(), times.tolist(), counts.tolist(), strict=True
        ):
            kind = SegmentKind(number)
            label = describe_kind(kind, kernel_class, rank)
            found.append(KindShare(label, kind, time, time / self.duration, count, kernel_class, rank))
        return tuple(sorted(found, key=lambda share: -share.time))

    @cached_property
    def rank_shares(self) -> tuple[RankShare, ...]:
        """Sum the time by rank, longest first; the times sum to `duration`. Empty for a path of one process."""
        segments = self.segments
        if not len(segments) or not (segments.rank != NO_RANK).all():
            return ()
        begins = np.append(True, segments.rank[1:] != segments.rank[:-1])
        ranks, index = np.unique(segments.rank, return_inverse=True)
        times = np.zeros(len(ranks), np.int64)
        np.add.at(times, index, segments.end - segments.start)
        counts = np.bincount(index[begins], minlength=len(ranks))
        found = [
            RankShare(rank, time, time / self.duration, count)
            for rank, time, count in zip(ranks.tolist(), times.tolist(), counts.tolist(), strict=True)
        ]
        return tuple(sorted(found, key=lambda share: -share.time))

    @cached_property
    def path_events(self) -> tuple[I32, I64]:
        """The events on the path, ascending int32[p], and the time of each on it int64[p]."""
        segments = self.segments
        waits = is_in(segments.kind, (SegmentKind.QUEUE, SegmentKind.UNATTRIBUTED, SegmentKind.RANK))
        named = np.flatnonzero((segments.event != NONE) & ~waits)
        events, index = np.unique(segments.event[named], return_inverse=True)
        times = np.zeros(len(events), np.int64)
        np.add.at(times, index, (segments.end - segments.start)[named])
        return events.astype(np.int32), times

    def find_longest(self, count: int) -> list[PathEvent]:
        """Find the events with most time on the path, longest first."""
        events, times = self.path_events
        order = np.argsort(-times, kind="stable")[:count]
        return [PathEvent(int(events[index]), int(times[index])) for index in order]

    def sum_off_path(self, trace: Trace, count: int) -> list[OffPathWork]:
        """Sum the GPU work that is not on the path by name, most time first, at most `count` names."""
        events, slack = self.window.work.event, self.slack_of_events(self.window.work.event)
        off = ~is_in(events, self.path_events[0]) & (self.window.work.end > self.window.begin)
        events, slack = events[off], slack[off]
        names, index, counts = np.unique(trace.name[events], return_inverse=True, return_counts=True)
        times, least = np.zeros(len(names), np.int64), np.full(len(names), self.duration, np.int64)
        np.add.at(times, index, trace.duration[events])
        np.minimum.at(least, index, slack)
        order = np.argsort(-times, kind="stable")[:count]
        return [OffPathWork(int(names[k]), int(counts[k]), int(times[k]), int(least[k])) for k in order.tolist()]

    def slack_of_events(self, events: I32) -> I64:
        """Return how much later each of these events of the window could end: int64[k] ns."""
        return self.slack[self.event.searchsorted(events)]

    def slack_of(self, event: int) -> int | None:
        """Return how much later an event could end, ns; None for events that are not part of the window."""
        index = int(self.event.searchsorted(np.int32(event)))
        return int(self.slack[index]) if index < len(self.event) and self.event[index] == event else None


def find_critical_path(
    trace: Trace, step: int | None = None, time_range: tuple[int, int] | None = None
) -> CriticalPath:
    """Find the critical path of step number `step`, by default of the step of median duration; or of a range, ns.

    `trace`: of one process. Without steps it is the whole recording, and `step` the number of a repetition. Raises
    WindowError if there is no such step, or nothing in the range.
    """
    if time_range is None and step is not None and not trace.steps:
        repetition = select_repetition(trace, step)
        time_range = repetition.start, repetition.start + repetition.duration
    if time_range is not None:
        return find_path_of_window(trace, select_range(trace, *time_range))
    return find_path_of_window(trace, select_window(trace, select_step(trace, step)))


def find_path_of_window(trace: Trace, window: StepWindow) -> CriticalPath:
    """Find the critical path of a window of a trace of one process."""
    built = build_graph(trace, window)
    graph = end_on_autograd(trace, built.graph, built.host_lanes[1:])
    edges = find_path(graph)
    edges = edges[graph.time[graph.target[edges]] > window.begin]
    segments = begin_segments(build_segments(trace, graph, edges, built.host_lanes), window.begin)
    inferred = int(is_in(graph.edge_kind[edges], INFERRED_KINDS).sum())
    replayed = int(replay_graph(graph).max()) - window.begin
    event, slack = compute_event_slack(trace, graph, compute_node_slack(graph), window.end)
    error = abs(replayed - window.duration) / window.duration
    earlier = sum_earlier(graph, edges, window.begin)
    is_unknown = error > MAX_REPLAY_ERROR or earlier > MAX_REPLAY_ERROR * window.duration
    missing, advice = describe_missing_edges(trace, built, earlier) if is_unknown else ((), "")
    return CriticalPath(window, graph, segments, replayed, event, slack, inferred, missing, advice)


def compute_event_slack(trace: Trace, graph: DependencyGraph, nodes: I64, end: int) -> tuple[I32, I64]:
    """Compute the slack of the events of a window: rows int32[k] ascending, ns int64[k].

    `nodes` int64[n]: slack of the nodes; `end`: ns, of the path. An event of a thread has the slack of the
    thread's next node, because CPU time between two nodes is fixed.
    """
    window = graph.window
    events, slacks = [window.work.event], [nodes[graph.work_end]]
    for number, lane in enumerate(trace.lanes):
        if lane.role is not Role.THREAD or not len(lane):
            continue
        rows = slice(lane.first, lane.last)
        ends = trace.start[rows] + trace.duration[rows]
        inside = np.flatnonzero((trace.start[rows] >= window.start) & (ends <= window.cpu_end))
        own = np.flatnonzero(graph.node_lane == number)
        index = graph.time[own].searchsorted(ends[inside], side="left")
        known = index < len(own)
        slack = end - ends[inside]
        slack[known] = nodes[own[index[known]]]
        events.append((lane.first + inside).astype(np.int32))
        slacks.append(slack)
    event, slack = np.concatenate(events), np.concatenate(slacks)
    order = np.argsort(event, kind="stable")
    return event[order], slack[order]
