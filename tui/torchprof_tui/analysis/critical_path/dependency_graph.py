"""The dependency graph of a step: columns of nodes and edges, no object per node.

Nodes are starts and ends of GPU work, and the times on CPU threads at which a thread and something else depend on each
other (launches, blocking calls, hand-overs). What a thread does between two such times is one edge: it is rigid.

The loops of the replay run over columns of plain numbers in topological order: one addition and one comparison an edge.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.critical_path.step_window import NO_EVENT, StepWindow
from torchprof_tui.trace.core.arrays import I32, I64, NONE, U8, Bool
from torchprof_tui.trace.core.records import record


class EdgeKind(IntEnum):
    """What makes the end of an edge wait for its start."""

    THREAD = 0  # what a CPU thread does from one node to its next
    WORK = 1  # a kernel, copy or memset, from its start to its end
    CALL = 2  # launch: work that started before its launch call returned, from the start of the call
    LAUNCH = 3  # launch: from the return of the call
    STREAM = 4  # order of a stream
    EVENT = 5  # a stream waits for an event of another one, as recorded by a `cuda_sync` event
    EVENT_BY_ORDER = 6  # the same, inferred from the order of calls
    GRAPH = 7  # order within the replay of a graph
    SYNC = 8  # a blocking call returns
    SYNC_BY_ORDER = 9  # the same, with the work inferred from the order of calls
    HAND_OVER = 10  # between a thread that calls backward() and autograd's thread
    BEFORE = 11  # from the start of the step to work that depends on nothing in it
    EARLIER = 12  # the same, to the first work launched on a stream in the recording: earlier work is not recorded
    ROOM = 13  # a launch call returns when the full queue of the GPU has room; inferred from times
    ARRIVAL = 14  # a rank has come to a collective, for all ranks
    TRANSFER = 15  # a collective, from the arrival of the last rank to its end on one


DELAYED_KINDS = (
    EdgeKind.LAUNCH,
    EdgeKind.STREAM,
    EdgeKind.EVENT,
    EdgeKind.EVENT_BY_ORDER,
    EdgeKind.GRAPH,
    EdgeKind.SYNC,
    EdgeKind.SYNC_BY_ORDER,
    EdgeKind.ROOM,
)
"""Edges whose delay is the latency of the machine, so that a long one hides a dependency that was not recorded."""

INFERRED_KINDS = (EdgeKind.EVENT_BY_ORDER, EdgeKind.SYNC_BY_ORDER, EdgeKind.HAND_OVER, EdgeKind.ROOM)
"""Edges that follow from the order of calls and from times; nothing recorded says so."""


@record
class DependencyGraph:
    """Nodes in topological order and edges by target. Times in ns from the trace's first event.

    `time` int64[n]: when a node was reached; `node_lane` int32[n]: its thread, -1 for nodes of GPU work; `work_start`,
    `work_end` int32[m]: the nodes of each piece of the window's GPU work. `edge_kind` uint8[e]; `source`, `target`
    int32[e], always source < target; `event` int32[e]: the row of the trace that an edge stands for, or -1. `delay`
    int64[e]: how long after its source an edge lets its target be reached, at most what was recorded. `binding`
    int32[n]: the edge into each node whose source was reached last; -1 for the first nodes of threads. `dropped`: edges
    that the recorded times contradict. `first`, `last`: the nodes at the start of the step and at its end.
    """

    window: StepWindow
    time: I64
    node_lane: I32
    work_start: I32
    work_end: I32
    edge_kind: U8
    source: I32
    target: I32
    event: I32
    delay: I64
    binding: I32
    dropped: int
    first: int
    last: int

    @property
    def recorded(self) -> I64:
        """Recorded time between the ends of each edge: int64[e], never less than `delay`."""
        return self.time[self.target] - self.time[self.source]

    @property
    def is_binding(self) -> Bool:
        """Select the edges that decided when their target was reached: bool[e]."""
        chosen = np.zeros(len(self.source), np.bool_)
        chosen[self.binding[self.binding != NONE]] = True
        return chosen


class GraphColumns:
    """Collects nodes and edges of a window. Nodes have ids: GPU work from 0 on, CPU nodes negative ones."""

    def __init__(self, window: StepWindow) -> None:
        self.window = window
        self._lanes: list[I32] = []
        self._times: list[I64] = []
        self._points = 0
        self._edges: list[tuple[U8, I64, I64, I32]] = []
        self._waits: list[tuple[I64, I64]] = []

    @cached_property
    def before(self) -> I64:
        """The work of its stream that ended last before each work started: int64[m], NONE for none."""
        work = self.window.work
        lane = work.lane.astype(np.int64)
        return find_last_ended(lane, work.end, lane, work.start, self.window.start)

    @property
    def ready_times(self) -> I64:
        """When each work could start: once it is launched and its stream has ended what came before. int64[m] ns."""
        free = np.append(self.window.work.end, self.window.start)[self.before]
        ready: I64 = np.maximum(self.window.work.launch_end, free)
        return ready

    def work_starts(self, work: I64) -> I64:
        """Return the ids of the starts of pieces of work: int64[k]."""
        return work.astype(np.int64)

    def work_ends(self, work: I64) -> I64:
        """Return the ids of the ends of pieces of work: int64[k]."""
        return work + len(self.window.work)

    def add_points(self, lane: I32, time: I64) -> I64:
        """Add nodes on CPU threads and return their ids: int64[k]. Equal ones become one node."""
        ids = -1 - np.arange(self._points, self._points + len(time), dtype=np.int64)
        self._lanes.append(lane.astype(np.int32))
        self._times.append(np.clip(time, self.window.start, self.window.cpu_end))
        self._points += len(time)
        return ids

    def add_edges(self, kind: EdgeKind, source: I64, target: I64, event: I32 | None = None) -> None:
        """Add edges of one kind between ids; `event` int32[k]: what each stands for."""
        events = np.full(len(source), NO_EVENT, np.int32) if event is None else event.astype(np.int32)
        self._edges.append((np.full(len(source), kind, np.uint8), source, target, events))

    def add_waits(self, target: I64, own: I64) -> None:
        """Let the thread's own edges into these CPU nodes take `own` ns only: the rest of their time is a wait."""
        self._waits.append((target, own))

    def join_points(self) -> tuple[I32, I64, I64]:
        """Join equal CPU nodes: lanes int32[c], times int64[c] by (lane, time), and the index of each point's node."""
        lanes, times = np.concatenate(self._lanes), np.concatenate(self._times)
        key = lanes.astype(np.int64) * (self.window.end + 1) + times
        _, first, index = np.unique(key, return_index=True, return_inverse=True)
        return lanes[first], times[first], index.astype(np.int64)

    def join_edges(self, index: I64) -> tuple[U8, I64, I64, I32]:
        """Join all edges; nodes become numbers: GPU starts, GPU ends, then the CPU nodes of `join_points`."""
        kinds, sources, targets, events = (np.concatenate(columns) for columns in zip(*self._edges, strict=True))
        return kinds, self._resolve(sources, index), self._resolve(targets, index), events

    def join_waits(self, index: I64) -> tuple[I64, I64]:
        """Join all waits: numbers of nodes int64[w], and the thread's own time int64[w]."""
        empty = np.zeros(0, np.int64)
        targets = np.concatenate([empty, *(target for target, _ in self._waits)])
        return self._resolve(targets, index), np.concatenate([empty, *(own for _, own in self._waits)])

    def _resolve(self, ids: I64, index: I64) -> I64:
        resolved: I64 = ids.copy()
        cpu = np.flatnonzero(ids < 0)
        resolved[cpu] = 2 * len(self.window.work) + index[-1 - ids[cpu]]
        return resolved


def find_last_ended(groups: I64, ends: I64, wanted_groups: I64, times: I64, origin: int) -> I64:
    """Find the member of a group that ended last at or before a time: int64[k] indexes, -1 for none.

    `groups`, `ends` int64[m]: the members; `wanted_groups`, `times` int64[k]: the questions. No time is before `origin`
    but those that are later searched for with the answer -1.
    """
    if not len(ends):
        return np.full(len(times), NONE, np.int64)
    span = int(max(ends.max(), times.max(initial=origin))) - origin + 2
    _, number = np.unique(np.concatenate([groups, wanted_groups]), return_inverse=True)
    own, wanted = number[: len(groups)].astype(np.int64), number[len(groups) :].astype(np.int64)
    keys = own * span + np.maximum(ends - origin, 0)
    order = np.argsort(keys, kind="stable")
    index = np.searchsorted(keys[order], wanted * span + np.maximum(times - origin, -1), side="right") - 1
    found = order[np.maximum(index, 0)]
    found[(index < 0) | (own[found] != wanted)] = NONE
    return found


def replay_graph(graph: DependencyGraph, delay: I64 | None = None) -> I64:
    """Compute when each node is reached if every edge takes its delay: int64[n] ns.

    `delay` int64[e] replaces the graph's own. Nodes that wait for nothing are reached as recorded: the start of the
    step on each thread and rank; and so are the ends of work that was launched before the step.
    """
    is_first = np.ones(len(graph.time), np.bool_)
    is_first[graph.target] = False
    is_first[graph.work_end[graph.window.work.is_backlog]] = True
    reached = np.where(is_first, graph.time, int(graph.time.min(initial=graph.window.start))).tolist()
    delays = (graph.delay if delay is None else delay).tolist()
    for source, target, takes in zip(graph.source.tolist(), graph.target.tolist(), delays, strict=True):
        time = reached[source] + takes
        if time > reached[target]:
            reached[target] = time
    return np.array(reached, np.int64)


def compute_node_slack(graph: DependencyGraph) -> I64:
    """Compute how much later each node could be reached without a longer window: int64[n] ns.

    Edges that decided when their target was reached are taken as recorded, so that the critical path has no slack.
    """
    slack = (graph.window.end - graph.time).tolist()
    spare = np.where(graph.is_binding, 0, graph.recorded - graph.delay)
    backwards = (column[::-1].tolist() for column in (graph.source, graph.target, spare))
    for source, target, more in zip(*backwards, strict=True):
        room = slack[target] + more
        if room < slack[source]:
            slack[source] = room
    return np.array(slack, np.int64)


def find_path(graph: DependencyGraph) -> I64:
    """Find the edges of the critical path in time order: int64[k].

    From the last node backwards, to the source that was reached last among those that a node waited for. Their times
    tile the window.
    """
    binding, source = graph.binding.tolist(), graph.source.tolist()
    path, node = [], graph.last
    while binding[node] != NONE:
        path.append(binding[node])
        node = source[binding[node]]
    return np.array(path[::-1], np.int64)
