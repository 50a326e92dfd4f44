"""Replay a dependency graph forwards, and find how late each node could be.

The loops run over columns of plain numbers in topological order: one addition and one comparison an edge.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.critical_path.dependency_graph import DependencyGraph
from torchprof_tui.trace.core.arrays import I64


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
    while binding[node] >= 0:
        path.append(binding[node])
        node = source[binding[node]]
    return np.array(path[::-1], np.int64)
