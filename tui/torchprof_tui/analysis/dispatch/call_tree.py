"""The whole trace as one tree of calls: all events that were reached the same way are one node.

A node is a path of names, below the thread that it ran on: `CPU 431 › ProfilerStep* › aten::linear › aten::addmm ›
cudaLaunchKernel ⇢ gemm`; all `ProfilerStep#N` share one. GPU work hangs below the call that launched it; what has no
launch in the trace hangs below a root of its own. Nodes are numbered in the order of a walk through the tree, heaviest
child first, so what is beneath a node is a run of numbers, and what is on screen can be found without walking anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import compute_depths, find_nearest_ancestor
from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace

NO_LAUNCH_LABEL = "GPU work whose launch is not in this trace"


@dataclass(frozen=True)
class DispatchTree:
    """Arrays over n nodes in the tree's order; times in ns.

    `parent`: -1 for a root. `size`: nodes of the subtree, itself included. `name`: the event's, -1 for a root, whose
    label is in `roots`. `example`: the node's longest event, -1 for a root. `gpu`: time of all GPU work beneath it.
    `unlisted`: calls deeper than MOST_LEVELS.
    """

    parent: I32
    depth: I32
    size: I32
    name: I32
    kind: U8
    count: I64
    total: I64
    self_time: I64
    gpu_time: I64
    longest_event: I32
    root_labels: dict[int, str]
    unlisted_calls: int

    def __len__(self) -> int:
        return len(self.parent)

    def list_visible(self, collapsed: Bool, matching: Bool | None = None) -> I32:
        """The nodes to list, in order: those with no closed node above them; with `matching` bool[n] only what matches
        and what leads there. Linear, and vectorised: a million nodes take some ms."""
        change = np.zeros(len(self) + 1, np.int32)
        shut = np.flatnonzero(collapsed)
        np.add.at(change, shut + 1, 1)
        np.add.at(change, shut + self.size[shut], -1)
        listed = np.cumsum(change[:-1]) == 0
        if matching is not None:
            listed &= self.count_in_subtrees(matching) > 0
        return np.flatnonzero(listed).astype(np.int32)

    def count_in_subtrees(self, selected: Bool) -> I64:
        """int64[n]: how many of the chosen nodes, bool[n], lie in each node's subtree, itself included."""
        before = np.concatenate([[0], np.cumsum(selected)])
        place = np.arange(len(self))
        counts: I64 = before[place + self.size] - before[place]
        return counts

    def collapse_from_depth(self, depth: int = 2) -> Bool:
        """bool[n]: what is closed at first: everything from `depth` on that has something beneath it."""
        return (self.depth >= depth) & (self.size > 1)


MAX_LEVELS = 1000
"""Deeper calls are counted in the time of those above them, and not listed: Python itself stops there."""


def build_dispatch_tree(trace: Trace) -> DispatchTree:
    """One pass a level over the events of that level; about a second for a million events in deep stacks."""
    threads = [number for number, lane in enumerate(trace.lanes) if lane.role is Role.THREAD]
    of_thread = np.zeros(len(trace.lanes) + 1, np.bool_)
    of_thread[threads] = True
    on_cpu = of_thread[trace.lane]
    labels = [trace.lanes[number].label for number in threads] + [NO_LAUNCH_LABEL]
    root_of_lane = np.full(len(trace.lanes) + 1, len(threads), np.int32)
    root_of_lane[threads] = np.arange(len(threads), dtype=np.int32)

    name = trace.name
    steps = np.flatnonzero(trace.kind == Kind.STEP)
    if len(steps):
        name = name.copy()
        name[steps] = name[steps[0]]

    node_of = np.full(len(trace), -1, np.int32)
    made = _NodeTable(len(labels))
    level = np.flatnonzero(on_cpu & (trace.parent < 0)).astype(np.int32)
    above = root_of_lane[trace.lane[level]]
    children = _ChildIndex(np.where(on_cpu, trace.parent, -1))
    for _ in range(MAX_LEVELS):
        if not len(level):
            break
        node_of[level] = made.add(above, name[level], trace.kind[level])
        level, parents = children.find_children(level)
        above = node_of[parents]
    unlisted = int(np.count_nonzero(on_cpu & (node_of < 0)))
    work = np.flatnonzero(np.isin(trace.kind, [int(kind) for kind in GPU_WORK])).astype(np.int32)
    launch = trace.links.launch_of[work]
    deeper = np.flatnonzero((launch >= 0) & (node_of[launch] < 0))
    launch[deeper] = find_nearest_ancestor(trace.parent, launch[deeper], node_of >= 0)
    above = np.where(launch >= 0, node_of[launch], np.int32(len(threads)))
    node_of[work] = made.add(np.where(above >= 0, above, np.int32(len(threads))), name[work], trace.kind[work])
    return _order_nodes(trace, node_of, made, labels, unlisted)


class _NodeTable:
    """Nodes in the order in which they are met: a parent always before its children."""

    def __init__(self, roots: int) -> None:
        self.count = roots
        self.parents = [np.full(roots, -1, np.int32)]
        self.names = [np.full(roots, -1, np.int32)]
        self.kinds = [np.full(roots, Kind.OTHER, np.uint8)]

    def add(self, above: I32, name: I32, kind: U8) -> I32:
        """The node of each event, int32[k]: one for each (node above, name)."""
        keys = above.astype(np.int64) << 32 | name
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        self.parents.append(above[first])
        self.names.append(name[first])
        self.kinds.append(kind[first])
        base = self.count
        self.count += len(first)
        found: I32 = (base + which).astype(np.int32)
        return found


class _ChildIndex:
    """The children of many events at once."""

    def __init__(self, parent: I32) -> None:
        self._order = np.argsort(parent, kind="stable").astype(np.int32)
        self._sorted = parent[self._order]

    def find_children(self, events: I32) -> tuple[I32, I32]:
        """(all children of the events, the parent of each)."""
        first = np.searchsorted(self._sorted, events, side="left")
        last = np.searchsorted(self._sorted, events, side="right")
        counts = last - first
        parents = np.repeat(events, counts)
        within = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
        return self._order[np.repeat(first, counts) + within], parents


def _order_nodes(trace: Trace, node_of: I32, nodes: _NodeTable, labels: list[str], unlisted: int) -> DispatchTree:
    """Sums up the subtrees and renumbers: heaviest child first, what is beneath a node right behind it."""
    parent: I32 = np.concatenate(nodes.parents)
    name: I32 = np.concatenate(nodes.names)
    kind: U8 = np.concatenate(nodes.kinds)
    count_of = len(parent)
    events = np.flatnonzero(node_of >= 0)
    node = node_of[events]
    duration = trace.duration[events]
    on_gpu = np.isin(trace.kind[events], [int(each) for each in GPU_WORK])
    count = np.bincount(node, minlength=count_of)
    total = _sum_by_node(node, duration, count_of)
    own = _sum_by_node(node, np.where(on_gpu, duration, trace.self_duration[events]), count_of)
    gpu = _sum_by_node(node[on_gpu], duration[on_gpu], count_of)
    by_length = np.argsort(duration, kind="stable")
    example = np.full(count_of, -1, np.int32)
    example[node[by_length]] = events[by_length]  # the last one written is the longest

    depth = compute_depths(parent)
    by_depth = np.argsort(depth, kind="stable")
    levels = np.split(by_depth, np.cumsum(np.bincount(depth))[:-1])
    size = np.ones(count_of, np.int64)
    for members in reversed(levels[1:]):
        np.add.at(size, parent[members], size[members])
        np.add.at(gpu, parent[members], gpu[members])
    for number in range(len(labels)):  # a root has no event: it is as long as what is beneath it
        total[number] = int(total[parent == number].sum())

    weight = np.where(np.isin(kind, [int(each) for each in GPU_WORK]), total, np.maximum(total, gpu))
    place = np.zeros(count_of, np.int64)
    for members in levels:
        order = members[np.lexsort((-weight[members], parent[members]))]
        before = np.cumsum(size[order]) - size[order]
        first = np.concatenate([[True], parent[order][1:] != parent[order][:-1]])
        group = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
        start = np.where(parent[order] >= 0, place[parent[order]] + 1, 0)
        place[order] = start + before - before[group]
    inverse = np.empty(count_of, np.int64)
    inverse[place] = np.arange(count_of)
    renumbered = np.where(parent[inverse] >= 0, place[parent[inverse]], -1)
    roots = {int(place[number]): label for number, label in enumerate(labels)}
    tree = DispatchTree(
        parent=renumbered.astype(np.int32),
        depth=depth[inverse],
        size=size[inverse].astype(np.int32),
        name=name[inverse],
        kind=kind[inverse],
        count=count[inverse],
        total=total[inverse],
        self_time=own[inverse],
        gpu_time=gpu[inverse],
        longest_event=example[inverse],
        root_labels=roots,
        unlisted_calls=unlisted,
    )
    return _drop_empty_roots(tree)


def _drop_empty_roots(tree: DispatchTree) -> DispatchTree:
    """Threads without events have no place in the list, nor has an empty rest."""
    empty = [number for number in tree.root_labels if tree.size[number] == 1]
    if not empty:
        return tree
    keep = np.ones(len(tree), np.bool_)
    keep[empty] = False
    number = np.cumsum(keep) - 1
    parent = tree.parent[keep]
    return DispatchTree(
        parent=np.where(parent >= 0, number[parent], -1).astype(np.int32),
        depth=tree.depth[keep],
        size=tree.size[keep],
        name=tree.name[keep],
        kind=tree.kind[keep],
        count=tree.count[keep],
        total=tree.total[keep],
        self_time=tree.self_time[keep],
        gpu_time=tree.gpu_time[keep],
        longest_event=tree.longest_event[keep],
        root_labels={int(number[root]): label for root, label in tree.root_labels.items() if keep[root]},
        unlisted_calls=tree.unlisted_calls,
    )


def _sum_by_node(node: I32, values: I64, count: int) -> I64:
    """Exact sums of int64 by node."""
    out = np.zeros(count, np.int64)
    np.add.at(out, node, values)
    return out
