"""Find the replays of graphs: one launch (`cudaGraphLaunch`, `hipGraphLaunch`) that started many pieces of GPU work."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

_GRAPH_LAUNCH = compile_later(r"GraphLaunch")
_SPLIT_CALL = compile_later(r"enqueueCommand|memcpy|memset", re.IGNORECASE)
"""Calls that may cause several pieces of GPU work without a graph."""


@dataclass(frozen=True, slots=True)
class Replays:
    """L replays and the W pieces of GPU work in them.

    `launch` int32[L]: the runtime call of each replay, by time. `work` int32[W]: events of GPU work, replay by replay,
    each in the order of capture as far as it is known: by graph node id where all of a replay's work has one, else by
    stream, then start. `first` int64[L + 1]: bounds of each replay in `work`. `stream` int64[W].
    `has_node_ids` bool[L].
    """

    launch: I32
    work: I32
    first: I64
    stream: I64
    has_node_ids: Bool

    def __len__(self) -> int:
        return len(self.launch)

    @property
    def sizes(self) -> I64:
        """Pieces of work of each replay: int64[L]."""
        sizes: I64 = np.diff(self.first)
        return sizes


def find_replays(trace: Trace) -> Replays:
    """Find the replays of a trace and order their work. Costs one pass over the launches and a sort of the work."""
    launch = find_graph_launches(trace)
    work_first = trace.links.work_first
    size = (work_first[launch + 1] - work_first[launch]).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    offset = np.arange(first[-1]) - np.repeat(first[:-1], size)
    work = trace.links.work_order[np.repeat(work_first[launch].astype(np.int64), size) + offset]
    replay = np.repeat(np.arange(len(launch)), size)
    node = _column_at(trace, "graph_node", work, 0)
    has_node_ids = np.ones(len(launch), np.bool_)
    has_node_ids[replay[node <= 0]] = False
    stream = _column_at(trace, "stream", work, -1)
    start = trace.start[work]
    rank = np.where(has_node_ids[replay], node, _stream_starts(replay, stream, start))
    order = np.lexsort((start, rank, replay))
    return Replays(launch, work[order].astype(np.int32), first, stream[order], has_node_ids)


def find_graph_launches(trace: Trace) -> I32:
    """Find the runtime calls that launched graphs, by time: int32[L].

    By name; else a launch with several pieces of work, of which copies and queue commands are no sign of a graph.
    """
    work_first = trace.links.work_first
    count = np.diff(work_first)
    calls = np.flatnonzero((count > 0) & (trace.kind == Kind.RUNTIME))
    names, inverse = np.unique(trace.name[calls], return_inverse=True)
    texts = [trace.names[name] for name in names.tolist()]
    is_named = np.array([_GRAPH_LAUNCH.search(text) is not None for text in texts], np.bool_)
    is_split = np.array([_SPLIT_CALL.search(text) is not None for text in texts], np.bool_)
    if not len(calls):
        return np.empty(0, np.int32)
    chosen = calls[is_named[inverse] | (~is_split[inverse] & (count[calls] > 1))]
    return chosen[np.argsort(trace.start[chosen], kind="stable")].astype(np.int32)


def _column_at(trace: Trace, name: str, events: I32, missing: int) -> I64:
    column = trace.args.get(name)
    if column is None:
        return np.full(len(events), missing, np.int64)
    return column.values_at(events, missing).astype(np.int64)


def _stream_starts(replay: I64, stream: I64, start: I64) -> I64:
    """Return the first start of each piece's stream within its replay: int64[W], so that streams sort by it."""
    if not len(replay):
        return np.empty(0, np.int64)
    order = np.lexsort((start, stream, replay))
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (np.diff(replay[order]) != 0) | (np.diff(stream[order]) != 0)
    group_start = start[order][is_first]
    rank = np.empty(len(order), np.int64)
    rank[order] = group_start[np.cumsum(is_first) - 1]
    return rank
