"""List the calls of captures that launched the kernels of each replay, as trees: modules and ops above the kernels.

A replay is one call on the CPU. Its captured calls take the place of what an eager run has there: below the launch of
the graph, once for each replay, without CPU time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import (
    find_nearest_ancestor,
    find_nearest_ancestor_or_self,
    include_ancestors,
)
from torchprof_tui.analysis.dispatch.call_tree import DispatchTree, InsertedCalls, build_dispatch_tree
from torchprof_tui.analysis.dispatch.frame_names import MODULE_CALL_PREFIX
from torchprof_tui.analysis.graphs.captured_ops import CapturedOps, get_captured_ops
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.trace.core.arrays import I32, I64, Bool, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

CAPTURED = " (captured)"  # suffix of names that come from a capture
FindLevels = Callable[[Trace], Bool]  # select the events of a capture that are levels of the trees: bool[n]
_MAX_NESTING = 200  # levels inside each other that become nodes: only runaway recursion is deeper


@record
class CapturedNodes:
    """k captured calls, one for each replay and call; w pieces of replayed work that have one.

    `source` int64[k]: which capture, see `CapturedOps.source_trace`. `event` int32[k]: row there. `replay` int64[k]:
    index into `CapturedOps.replays`. `parent` int64[k]: the node around each, -1 at the top; a parent precedes its
    children, and siblings of one capture are in the order of their rows. `work` int64[w]: index into the columns of
    `CapturedOps`; `node_of_work` int64[w]: the innermost node around each launch.
    """

    source: I64
    event: I32
    replay: I64
    parent: I64
    work: I64
    node_of_work: I64

    def __len__(self) -> int:
        return len(self.event)

    def select_work(self, wanted: Bool) -> CapturedNodes:
        """Keep these pieces of work, bool[w], and the nodes around them."""
        if wanted.all():
            return self
        used = np.zeros(len(self), np.bool_)
        used[self.node_of_work[wanted]] = True
        kept = include_ancestors(self.parent.astype(np.int32), used)
        number = np.cumsum(kept) - 1
        parent = self.parent[kept]
        return CapturedNodes(
            self.source[kept],
            self.event[kept],
            self.replay[kept],
            np.where(parent >= 0, number[parent], -1),
            self.work[wanted],
            number[self.node_of_work[wanted]],
        )


def remove_mark(name: str) -> str:
    """Return the name of a captured op as the capture has it, and other names unchanged."""
    return name.removesuffix(CAPTURED)


def select_ops(trace: Trace) -> Bool:
    return np.asarray(trace.kind == Kind.OP)


def select_modules_and_ops(trace: Trace) -> Bool:
    """Select calls of an nn.Module, and ops: bool[n]."""
    is_module = match_names(trace, lambda name: name.startswith(MODULE_CALL_PREFIX))
    return np.asarray(select_ops(trace) | (is_module & (trace.kind == Kind.PYTHON)))


def list_captured_nodes(trace: Trace, ops: CapturedOps, find_levels: FindLevels) -> CapturedNodes:
    """List the captured calls of all replays of `trace`, source by source."""
    replay_of_work = np.repeat(np.arange(len(ops.replays)), ops.replays.sizes)
    parts = [_list_nodes_of(trace, ops, source, replay_of_work, find_levels) for source in range(len(ops.captures) + 1)]
    offsets = np.cumsum([0, *(len(part) for part in parts)])[:-1].tolist()
    return CapturedNodes(
        np.concatenate([part.source for part in parts]),
        np.concatenate([part.event for part in parts]),
        np.concatenate([part.replay for part in parts]),
        np.concatenate(
            [np.where(part.parent >= 0, part.parent + k, -1) for part, k in zip(parts, offsets, strict=True)]
        ),
        np.concatenate([part.work for part in parts]),
        np.concatenate([part.node_of_work + k for part, k in zip(parts, offsets, strict=True)]),
    )


def number_marked_names(trace: Trace, ops: CapturedOps, nodes: CapturedNodes, names: list[str]) -> I32:
    """Return the index of each node's marked name: int32[k]. Appends those that are missing to `names`."""
    numbers = np.zeros(len(nodes), np.int32)
    index = {name: number for number, name in enumerate(names) if name.endswith(CAPTURED)}
    for source in sorted_unique(nodes.source).tolist():
        chosen = np.flatnonzero(nodes.source == source)
        captured = ops.source_trace(trace, source)
        used, inverse = np.unique(captured.name[nodes.event[chosen]], return_inverse=True)
        numbers_of_names = []
        for name in used.tolist():
            text = captured.names[name] + CAPTURED
            if text not in index:
                index[text] = len(names)
                names.append(text)
            numbers_of_names.append(index[text])
        numbers[chosen] = np.array(numbers_of_names, np.int32)[inverse]
    return numbers


def _list_nodes_of(
    trace: Trace, ops: CapturedOps, source: int, replay_of_work: I64, find_levels: FindLevels
) -> CapturedNodes:
    work = np.flatnonzero((ops.join.capture == source) & (ops.join.launch >= 0))
    nothing = np.empty(0, np.int64)
    if not len(work):
        return CapturedNodes(nothing, nothing.astype(np.int32), nothing, nothing, nothing, nothing)
    captured = ops.source_trace(trace, source)
    is_level = find_levels(captured)
    innermost = find_nearest_ancestor_or_self(captured.parent, is_level)[ops.join.launch[work]].astype(np.int64)
    work, innermost = work[innermost >= 0], innermost[innermost >= 0]
    above = _find_levels_above(captured, innermost, is_level)
    size = max(len(captured), 1)
    work_keys = replay_of_work[work] * size + innermost  # one number for each replay and captured event
    added = sorted_unique(work_keys)
    found = [added]
    while len(added):  # the levels above
        outer = above[added % size]
        added = sorted_unique((added - added % size + outer)[outer >= 0])
        found.append(added)
    keys = sorted_unique(np.concatenate(found))
    event = (keys % size).astype(np.int32)
    outer = above[event].astype(np.int64)
    parent = np.searchsorted(keys, keys - event + np.maximum(outer, 0))
    return CapturedNodes(
        source=np.full(len(keys), source, np.int64),
        event=event,
        replay=keys // size,
        parent=np.where(outer >= 0, parent, -1),
        work=work,
        node_of_work=np.searchsorted(keys, work_keys),
    )


def _find_levels_above(trace: Trace, events: I64, is_level: Bool) -> I32:
    """Find the level around each of these events and around those above: int32[n], -1 for none and all others."""
    above = np.full(len(trace), -1, np.int32)
    events = sorted_unique(events)
    for _ in range(_MAX_NESTING):
        if not len(events):
            return above
        above[events] = find_nearest_ancestor(trace.parent, events, is_level)
        events = sorted_unique(above[events]).astype(np.int64)
        events = events[events >= 0]
    above[events] = -1
    return above


def build_call_tree(trace: Trace) -> DispatchTree:
    """Build the call tree; modules and ops that were captured are between a launch and its kernels, names marked.

    Opens the captures of the trace on the first call, which blocks.
    """
    ops = get_captured_ops(trace)
    if ops is None:
        return build_dispatch_tree(trace, None)
    nodes = list_captured_nodes(trace, ops, select_modules_and_ops)
    if not len(nodes):
        return build_dispatch_tree(trace, None)
    kind = np.zeros(len(nodes), np.uint8)
    for source in sorted_unique(nodes.source).tolist():
        chosen = nodes.source == source
        kind[chosen] = ops.source_trace(trace, source).kind[nodes.event[chosen]]
    names = [*trace.names]
    inserted = InsertedCalls(
        names=names,
        name=number_marked_names(trace, ops, nodes, names),
        kind=kind,
        parent=nodes.parent,
        launch=ops.replays.launch[nodes.replay],
        work=ops.replays.work[nodes.work],
        call_of_work=nodes.node_of_work,
    )
    return build_dispatch_tree(trace, inserted)
