"""Build the dependency graph of a window: collect nodes and edges, order them, and set the delay of each edge."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.critical_path.autograd_edges import add_hand_overs
from torchprof_tui.analysis.critical_path.dependency_graph import (
    DELAYED_KINDS,
    DependencyGraph,
    EdgeKind,
    GraphColumns,
)
from torchprof_tui.analysis.critical_path.launch_edges import (
    add_earlier_edges,
    add_launch_edges,
    add_queue_room,
    add_replay_edges,
    add_stream_edges,
)
from torchprof_tui.analysis.critical_path.step_window import NO_EVENT, StepWindow
from torchprof_tui.analysis.critical_path.wait_edges import add_blocking_calls, add_stream_waits
from torchprof_tui.trace.core.arrays import I32, I64, NONE, U8, is_in, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

MAX_TYPICAL_DELAY = 20_000
"""ns: a machine takes no longer to start launched work, or to return from a wait; medians above are waits."""

UNKNOWN_DELAY = 5_000  # ns, where no edge of a kind decided when its target was reached, so that no delay was measured
_LONG_FACTOR = 4
_ALWAYS_SHORT = 10_000
"""A delay up to this many times the median of its kind, or ns, is latency; a longer one hides a dependency."""


@record
class BuiltGraph:
    """A graph, and what its builders learned. `unknown_waits`: of streams; `unknown_blocks`: of blocking calls."""

    graph: DependencyGraph
    host_lanes: list[int]  # the step's thread and autograd's
    unknown_waits: int
    unknown_blocks: int
    unlaunched: int


def build_graph(trace: Trace, window: StepWindow) -> BuiltGraph:
    """Build the dependency graph of a window."""
    columns = GraphColumns(window)
    columns.add_points(np.full(2, window.lane, np.int32), np.array([window.start, window.cpu_end], np.int64))
    number = np.arange(len(window.work), dtype=np.int64)
    columns.add_edges(EdgeKind.WORK, columns.work_starts(number), columns.work_ends(number), window.work.event)
    add_launch_edges(columns, trace)
    add_stream_edges(columns)
    add_earlier_edges(columns, trace)
    add_replay_edges(columns, trace)
    unknown_waits = add_stream_waits(columns, trace)
    unknown_blocks = add_blocking_calls(columns, trace)
    add_queue_room(columns, trace)
    autograd = add_hand_overs(columns, trace)
    work = window.work
    unlaunched = int(np.count_nonzero(~work.is_launched & (work.launch_start >= window.start)))
    return BuiltGraph(_join(columns), [window.lane, *autograd], len(unknown_waits), unknown_blocks, unlaunched)


def _join(columns: GraphColumns) -> DependencyGraph:
    """Join the columns to a graph in topological order."""
    window, work = columns.window, columns.window.work
    lanes = sorted_unique(columns.join_points()[0])
    columns.add_points(lanes, np.full(len(lanes), window.start, np.int64))
    cpu_lane, cpu_time, index = columns.join_points()
    count = len(work)
    time = np.concatenate([work.start, work.end, cpu_time])
    # At the same time work ends, then threads go on, then work starts.
    rank = np.concatenate([np.full(count, 2), np.zeros(count), np.ones(len(cpu_time))]).astype(np.int8)
    order = np.lexsort((rank, time))
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    lane = np.concatenate([np.full(2 * count, NONE, np.int32), cpu_lane])
    main = np.flatnonzero(lane == window.lane)
    first = int(number[main[0]])
    last = int(number[main[-1]]) if window.end <= window.cpu_end else int(number[count + int(work.end.argmax())])

    kind, source, target, event = columns.join_edges(index)
    chain = 2 * count + np.flatnonzero(cpu_lane[1:] == cpu_lane[:-1])
    kind = np.concatenate([kind, np.full(len(chain), EdgeKind.THREAD, np.uint8)])
    from_node: I32 = number[np.concatenate([source, chain])]
    to_node: I32 = number[np.concatenate([target, chain + 1])]
    event = np.concatenate([event, np.full(len(chain), NO_EVENT, np.int32)])
    forward = from_node < to_node
    dropped = int(np.count_nonzero(~forward))
    kind, from_node, to_node, event = kind[forward], from_node[forward], to_node[forward], event[forward]
    nodes = sorted_unique(number[:count])
    rootless = nodes[~is_in(nodes, to_node) & (nodes > first)].astype(np.int32)
    kind = np.concatenate([kind, np.full(len(rootless), EdgeKind.BEFORE, np.uint8)])
    from_node = np.concatenate([from_node, np.full(len(rootless), first, np.int32)])
    to_node = np.concatenate([to_node, rootless])
    event = np.concatenate([event, np.full(len(rootless), NO_EVENT, np.int32)])

    by_target = np.lexsort((from_node, to_node))
    kind, from_node, to_node, event = kind[by_target], from_node[by_target], to_node[by_target], event[by_target]
    binding = np.full(len(order), NONE, np.int32)
    known = np.flatnonzero(kind != EdgeKind.EARLIER).astype(np.int32)
    binding[to_node[known]] = known  # of equal targets the last write, the latest source
    waits, own = columns.join_waits(index)
    time = time[order]
    delay = _set_delays(kind, from_node, to_node, time, binding, number[waits], own)
    return DependencyGraph(
        window=window, time=time, node_lane=lane[order], work_start=number[:count], work_end=number[count : 2 * count],
        edge_kind=kind, source=from_node, target=to_node, event=event, delay=delay, binding=binding, dropped=dropped,
        first=first, last=last,
    )  # fmt: skip


def _set_delays(kind: U8, source: I32, target: I32, time: I64, binding: I32, waits: I32, own: I64) -> I64:
    """Set the delay of each edge: int64[e] ns.

    What a thread or a GPU does takes as long as recorded, except waits. The latency of launches, streams and returns is
    what was recorded where that edge decided when its target was reached and it is no longer than usual; else the
    median of its kind. An edge never takes longer than recorded: the recording proves that less was possible. Work from
    before the recording holds a stream where nothing else explains its wait; `binding` is set to that edge.
    """
    recorded = time[target] - time[source]
    delay: I64 = recorded.copy()
    own_time = np.full(len(time), np.iinfo(np.int64).max, np.int64)
    np.minimum.at(own_time, waits, own)
    thread = np.flatnonzero(kind == EdgeKind.THREAD)
    delay[thread] = np.minimum(delay[thread], own_time[target[thread]])
    is_binding = np.zeros(len(kind), np.bool_)
    is_binding[binding[binding != NONE]] = True
    for each in (*DELAYED_KINDS, EdgeKind.CALL):
        edges = np.flatnonzero(kind == each)
        decided = is_binding[edges]
        measured = recorded[edges[decided]]
        typical = min(int(np.median(measured)), MAX_TYPICAL_DELAY) if len(measured) else UNKNOWN_DELAY
        usual = decided & (recorded[edges] <= max(_LONG_FACTOR * typical, _ALWAYS_SHORT))
        if each is EdgeKind.CALL:
            usual = decided
        delay[edges] = np.where(usual, recorded[edges], np.minimum(recorded[edges], typical))
    earlier = np.flatnonzero(kind == EdgeKind.EARLIER)
    other = binding[target[earlier]]
    explains = (other == NONE) | (delay[other] < recorded[other])  # nothing else does
    delay[earlier] = np.where(explains, recorded[earlier], 0)
    binding[target[earlier[explains]]] = earlier[explains]
    return delay


_WHERE = {
    EdgeKind.LAUNCH: "between the return of a launch call and the start of its GPU work",
    EdgeKind.STREAM: "between two works of a stream",
    EdgeKind.EVENT: "between an event and the work that waits for it",
    EdgeKind.EVENT_BY_ORDER: "between an event and the work that waits for it",
    EdgeKind.GRAPH: "between two works of a graph's replay",
    EdgeKind.SYNC: "between the end of GPU work and the return of the call that waits for it",
    EdgeKind.SYNC_BY_ORDER: "between the end of GPU work and the return of the call that waits for it",
}
SYNC_EVENTS_ADVICE = (
    "record cuda_sync events: profile(experimental_config=torch._C._profiler._ExperimentalConfig("
    "enable_cuda_sync_events=True))"
)
MORE_STEPS_ADVICE = "record the steps before as well: the GPU may have been busy with work that is not in the recording"


def describe_missing_edges(trace: Trace, built: BuiltGraph, earlier: int) -> tuple[tuple[str, ...], str]:
    """Describe the waits that no edge explains, longest first, and what to record; "" if nothing would help.

    `earlier`: ns of the path in which a stream was held by work from before the recording.
    """
    graph = built.graph
    is_inside = graph.time[graph.target] > graph.window.begin
    waits = np.where(graph.is_binding & is_inside, graph.recorded - graph.delay, 0)
    found: dict[str, tuple[int, int]] = {}
    for kind, where in _WHERE.items():
        chosen = waits[(graph.edge_kind == kind) & (waits > 0)]
        time, count = found.get(where, (0, 0))
        found[where] = time + int(chosen.sum()), count + len(chosen)
    lines = [
        f"{format_duration(time)} in {count:,} {'wait' if count == 1 else 'waits'} {where}: no recorded dependency"
        for where, (time, count) in sorted(found.items(), key=lambda each: -each[1][0])
        if time
    ]
    if earlier:
        lines.insert(0, f"{format_duration(earlier)} in which a stream did work from before the recording")
    if built.unknown_waits:
        lines.append(f"{built.unknown_waits:,} cudaStreamWaitEvent: which event they wait for was not recorded")
    if built.unknown_blocks:
        lines.append(f"{built.unknown_blocks:,} blocking calls: no GPU work that they wait for was recorded")
    if built.unlaunched:
        lines.append(f"{built.unlaunched:,} works of the GPU: their launch was not recorded")
    if graph.dropped:
        lines.append(f"{graph.dropped:,} dependencies left out: the recorded times contradict them")
    longest, starts = int(waits.argmax()), graph.window.work.start
    is_first_work = len(starts) > 0 and int(graph.time[graph.target[longest]]) == int(starts.min())
    if earlier or is_first_work or built.unlaunched:
        return tuple(lines), MORE_STEPS_ADVICE
    return tuple(lines), "" if bool((trace.kind == Kind.SYNC).any()) else SYNC_EVENTS_ADVICE


def sum_earlier(graph: DependencyGraph, path: I64, begin: int) -> int:
    """Sum the time of a path from `begin` on, ns, in which work from before the recording held a stream."""
    earlier = path[graph.edge_kind[path] == EdgeKind.EARLIER]
    inside = graph.time[graph.target[earlier]] - np.maximum(graph.time[graph.source[earlier]], begin)
    return int(np.maximum(inside, 0).sum())
