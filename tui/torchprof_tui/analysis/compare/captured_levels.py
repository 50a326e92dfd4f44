"""Add the captured ops of replays to the calls that are compared, in the place of the graph's launch.

A replay is then compared as an eager run is: its ops follow the launch, below the same caller, without CPU time, and
the replayed kernels belong to them. Work without a captured op stays with the launch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.graphs.captured_nodes import (
    CapturedNodes,
    list_captured_nodes,
    number_marked_names,
    select_ops,
)
from torchprof_tui.analysis.graphs.captured_ops import CapturedOps, get_captured_ops
from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.model.trace import Trace


@dataclass(frozen=True, slots=True)
class Levels:
    """k calls that are nodes of a call tree, by lane and start.

    `call` int32[k]: row of the trace, of a captured op that of the launch of its graph. `event` int32[k]: row to show,
    of a captured op its first GPU work. `start` int64[k] ns: captured ops are spread over their launch, in their order.
    `name` int32[k]: index into `names`, those of the trace and marked names. `parent` int32[k]: the level around each,
    -1 for none. `source` int32[k]: index into `sources`, -1 for calls of the trace itself; `source_event` int32[k]: row
    in the source. `owner` int32[selected calls]: the level that each belongs to, -1 for none; `owner_of_work`
    int32[selected work]: the captured op, -1 for none.
    """

    call: I32
    event: I32
    start: I64
    name: I32
    names: list[str]
    parent: I32
    source: I32
    source_event: I32
    sources: tuple[Trace, ...]
    owner: I32
    owner_of_work: I32


def find_compared_nodes(trace: Trace, calls: I32, work: I32) -> tuple[CapturedOps, CapturedNodes] | None:
    """Find the captured ops of the work among these rows, launched by these calls; None where there are none.

    Opens the captures of the trace on the first call, which blocks.
    """
    ops = get_captured_ops(trace)
    if ops is None or not ops.matched_count:
        return None
    nodes = list_captured_nodes(trace, ops, select_ops)
    launch = ops.replays.launch[nodes.replay[nodes.node_of_work]]
    nodes = nodes.select_work(np.isin(launch, calls) & np.isin(ops.replays.work[nodes.work], work))
    return (ops, nodes) if len(nodes) else None


def list_levels(trace: Trace, calls: I32, work: I32, events: I32, parent: I32, owner: I32) -> Levels:
    """List the levels among the selected calls and work: `events` int32[...] and what was captured.

    `parent`: the index of the nearest of `events` around each; `owner`: the one that each of `calls` belongs to.
    """
    no_work = np.full(len(work), -1, np.int32)
    none = np.full(len(events), -1, np.int32)
    own = Levels(
        events, events, trace.start[events], trace.name[events], trace.names, parent, none, none, (), owner, no_work
    )
    found = find_compared_nodes(trace, calls, work)
    return own if found is None else _add_captured(trace, own, calls, work, *found)


def _add_captured(trace: Trace, own: Levels, calls: I32, work: I32, ops: CapturedOps, nodes: CapturedNodes) -> Levels:
    names = [*trace.names]
    name = number_marked_names(trace, ops, nodes, names)
    launch = ops.replays.launch[nodes.replay]
    count = len(own.call)
    row = np.concatenate([own.call, launch])
    start = np.concatenate([own.start, _spread_over_launch(trace, nodes, launch)])
    order = np.lexsort((start, trace.lane[row]))  # stable: captured ops after what began at the same time
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    top = _find_levels_around(own, np.searchsorted(calls, launch), launch)
    parent = np.concatenate([own.parent, np.where(nodes.parent >= 0, count + nodes.parent, top)])[order]
    source = np.concatenate([own.source, nodes.source])[order]
    owner_of_work = own.owner_of_work.copy()
    owner_of_work[np.searchsorted(work, ops.replays.work[nodes.work])] = number[count + nodes.node_of_work]
    return Levels(
        call=row[order].astype(np.int32),
        event=np.concatenate([own.event, _find_first_work(trace, ops, nodes)])[order].astype(np.int32),
        start=start[order],
        name=np.concatenate([own.name, name])[order].astype(np.int32),
        names=names,
        parent=np.where(parent >= 0, number[np.maximum(parent, 0)], -1).astype(np.int32),
        source=source.astype(np.int32),
        source_event=np.concatenate([own.source_event, nodes.event])[order].astype(np.int32),
        sources=(*ops.captures, trace),
        owner=np.where(own.owner >= 0, number[np.maximum(own.owner, 0)], -1).astype(np.int32),
        owner_of_work=owner_of_work,
    )


def _find_levels_around(own: Levels, place: I64, launch: I32) -> I64:
    """Find the level around each launch, -1 for none: int64[k]. `place`: of the launches among the selected calls."""
    owner = own.owner[place].astype(np.int64)
    is_level = (owner >= 0) & (own.call[np.maximum(owner, 0)] == launch)  # outside of all ops
    return np.where(is_level, own.parent[np.maximum(owner, 0)], owner)


def _spread_over_launch(trace: Trace, nodes: CapturedNodes, launch: I32) -> I64:
    """Return a time within the launch for each node, in their order: int64[k] ns."""
    first = np.flatnonzero(np.diff(nodes.replay, prepend=-1) != 0)
    size = np.diff(first, append=len(nodes))
    index = np.arange(len(nodes)) - np.repeat(first, size)
    times: I64 = trace.start[launch] + trace.duration[launch] * (index + 1) // (np.repeat(size, size) + 1)
    return times


def _find_first_work(trace: Trace, ops: CapturedOps, nodes: CapturedNodes) -> I64:
    """Find the first GPU work below each node, by start: int64[k] rows."""
    work = ops.replays.work[nodes.work]
    first = np.full(len(nodes), -1, np.int64)
    by_start = np.argsort(-trace.start[work], kind="stable")
    node, event = nodes.node_of_work[by_start], work[by_start].astype(np.int64)
    while len(node):
        better = (first[node] < 0) | (trace.start[event] <= trace.start[np.maximum(first[node], 0)])
        node, event = node[better], event[better]
        first[node] = event  # the earliest is written last
        node = nodes.parent[node]
        node, event = node[node >= 0], event[node >= 0]
    return first
