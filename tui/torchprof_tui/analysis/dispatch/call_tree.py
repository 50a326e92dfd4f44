"""The call tree of a trace: events with the same path of names are one node.

A node is a path of names below a thread: `CPU 431 › ProfilerStep* › aten::linear › aten::addmm › cudaLaunchKernel ⇢
gemm`; all `ProfilerStep#N` share one node. GPU work is a child of the call that launched it, or of a separate root if
its launch is not in the trace. Nodes are numbered in preorder, heaviest child first, so that a subtree is a range of
numbers and the visible nodes are found without a traversal. Calls that are known from elsewhere, as those of the
capture of a graph, are inserted between a launch and its GPU work.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import compute_depths, find_nearest_ancestor, place_siblings
from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool, is_in, sum_by_index
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace

NO_LAUNCH_LABEL = "GPU work whose launch is not in this trace"


@record(slots=False)
class DispatchTree:
    """Arrays over n nodes in preorder; times in ns.

    `parent`: -1 for a root. `size`: nodes of the subtree, including the node. `name`: index into `names`, -1 for a
    root, whose label is in `root_labels`. `longest_event`: -1 for a root; of inserted calls the longest GPU work below.
    `gpu_time`: of all GPU work in the subtree. `is_inserted`: no events of the trace, see `InsertedCalls`; they have no
    CPU time. `unlisted_calls`: calls deeper than MAX_LEVELS.
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
    is_inserted: Bool
    names: list[str]
    root_labels: dict[int, str]
    unlisted_calls: int

    def __len__(self) -> int:
        return len(self.parent)

    def list_visible(self, collapsed: Bool, matching: Bool | None = None) -> I32:
        """List the nodes without a collapsed ancestor, in order; with `matching` bool[n], only matches and their
        ancestors. Linear and vectorised: a few ms for a million nodes.
        """
        change = np.zeros(len(self) + 1, np.int32)
        nodes = np.flatnonzero(collapsed)
        np.add.at(change, nodes + 1, 1)
        np.add.at(change, nodes + self.size[nodes], -1)
        listed = np.cumsum(change[:-1]) == 0
        if matching is not None:
            listed &= self.count_in_subtrees(matching) > 0
        return np.flatnonzero(listed).astype(np.int32)

    def count_in_subtrees(self, selected: Bool) -> I64:
        """Count the selected nodes (bool[n]) in the subtree of each node, including the node itself: int64[n]."""
        before = np.concatenate([[0], np.cumsum(selected)])
        nodes = np.arange(len(self))
        counts: I64 = before[nodes + self.size] - before[nodes]
        return counts

    def collapse_from_depth(self, depth: int = 2) -> Bool:
        """Select the nodes to collapse initially: all with children from `depth` on: bool[n]."""
        return (self.depth >= depth) & (self.size > 1)


MAX_LEVELS = 1000
"""Deeper calls are not listed; their time counts for their ancestors. It is Python's default recursion limit."""


@record
class InsertedCalls:
    """k calls between launches and their GPU work. `names`: of the trace, then others; `name` int32[k] indexes them.

    `kind` uint8[k]. `parent` int64[k]: the call around each, an earlier one; -1 for the launch. `launch` int32[k]: row
    of the trace. `work` int32[w]: rows of GPU work; `call_of_work` int64[w]: the innermost call around each launch.
    """

    names: list[str]
    name: I32
    kind: U8
    parent: I64
    launch: I32
    work: I32
    call_of_work: I64


def build_dispatch_tree(trace: Trace, inserted: InsertedCalls | None = None) -> DispatchTree:
    """Build the tree, one pass per level over its events; about a second for a million events in deep stacks."""
    threads = [number for number, lane in enumerate(trace.lanes) if lane.role is Role.THREAD]
    is_thread = np.zeros(len(trace.lanes) + 1, np.bool_)
    is_thread[threads] = True
    on_cpu = is_thread[trace.lane]
    labels = [trace.lanes[number].label for number in threads] + [NO_LAUNCH_LABEL]
    root_of_lane = np.full(len(trace.lanes) + 1, len(threads), np.int32)
    root_of_lane[threads] = np.arange(len(threads), dtype=np.int32)

    name = trace.name
    steps = np.flatnonzero(trace.kind == Kind.STEP)
    if len(steps):
        name = name.copy()
        name[steps] = name[steps[0]]

    node_of = np.full(len(trace), -1, np.int32)
    nodes = _NodeTable(len(labels))
    level = np.flatnonzero(on_cpu & (trace.parent < 0)).astype(np.int32)
    parent_nodes = root_of_lane[trace.lane[level]]
    children = _ChildIndex(np.where(on_cpu, trace.parent, -1))
    for _ in range(MAX_LEVELS):
        if not len(level):
            break
        node_of[level] = nodes.add(parent_nodes, name[level], trace.kind[level])
        level, parents = children.find_children(level)
        parent_nodes = node_of[parents]
    unlisted = int(np.count_nonzero(on_cpu & (node_of < 0)))
    work = np.flatnonzero(is_in(trace.kind, [int(kind) for kind in GPU_WORK])).astype(np.int32)
    launch = trace.links.launch_of[work]
    unlisted_launches = np.flatnonzero((launch >= 0) & (node_of[launch] < 0))
    launch[unlisted_launches] = find_nearest_ancestor(trace.parent, launch[unlisted_launches], node_of >= 0)
    no_launch_root = np.int32(len(threads))
    parent_nodes = np.where(launch >= 0, node_of[launch], no_launch_root)
    parent_nodes = np.where(parent_nodes >= 0, parent_nodes, no_launch_root).astype(np.int32)
    if inserted is not None:
        _insert_calls(nodes, inserted, node_of, work, parent_nodes)
    node_of[work] = nodes.add(parent_nodes, name[work], trace.kind[work])
    return _order_nodes(trace, node_of, nodes, labels, unlisted, trace.names if inserted is None else inserted.names)


def _insert_calls(nodes: _NodeTable, inserted: InsertedCalls, node_of: I32, work: I32, parent_nodes: I32) -> None:
    """Add the nodes of inserted calls, level by level, and put their GPU work below them, in `parent_nodes`."""
    own = np.full(len(inserted.name), -1, np.int32)
    depth = compute_depths(inserted.parent.astype(np.int32))
    for level in range(int(depth.max(initial=-1)) + 1):
        members = np.flatnonzero(depth == level)
        above = inserted.parent[members]
        parents = np.where(above >= 0, own[np.maximum(above, 0)], node_of[inserted.launch[members]])
        members, parents = members[parents >= 0], parents[parents >= 0]  # the launch itself may be left out
        own[members] = nodes.add(parents.astype(np.int32), inserted.name[members], inserted.kind[members])
        nodes.inserted_calls.append(own[members])
    below = own[inserted.call_of_work]
    place = np.searchsorted(work, inserted.work)
    parent_nodes[place[below >= 0]] = below[below >= 0]


class _NodeTable:
    """Nodes in the order of creation: a parent always precedes its children."""

    def __init__(self, roots: int) -> None:
        self.count = roots
        self.parents = [np.full(roots, -1, np.int32)]
        self.names = [np.full(roots, -1, np.int32)]
        self.kinds = [np.full(roots, Kind.OTHER, np.uint8)]
        self.inserted_calls: list[I32] = []  # the node of each inserted call

    def add(self, parent: I32, name: I32, kind: U8) -> I32:
        """Add one node per distinct (parent, name), and return the node of each event: int32[k]."""
        keys = parent.astype(np.int64) << 32 | name
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        self.parents.append(parent[first])
        self.names.append(name[first])
        self.kinds.append(kind[first])
        base = self.count
        self.count += len(first)
        nodes: I32 = (base + inverse).astype(np.int32)
        return nodes


class _ChildIndex:
    """Index from parents to children, for lookups of many events at once."""

    def __init__(self, parent: I32) -> None:
        self._order = np.argsort(parent, kind="stable").astype(np.int32)
        self._sorted = parent[self._order]

    def find_children(self, events: I32) -> tuple[I32, I32]:
        """Find (all children of the events, the parent of each)."""
        first = np.searchsorted(self._sorted, events, side="left")
        last = np.searchsorted(self._sorted, events, side="right")
        counts = last - first
        parents = np.repeat(events, counts)
        within = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
        return self._order[np.repeat(first, counts) + within], parents


def _order_nodes(
    trace: Trace, node_of: I32, nodes: _NodeTable, labels: list[str], unlisted: int, names: list[str]
) -> DispatchTree:
    """Sum up the subtrees and renumber the nodes in preorder, heaviest child first; roots without nodes are dropped."""
    parent: I32 = np.concatenate(nodes.parents)
    kind: U8 = np.concatenate(nodes.kinds)
    node_count = len(parent)
    events = np.flatnonzero(node_of >= 0)
    node = node_of[events]
    duration = trace.duration[events]
    on_gpu = is_in(trace.kind[events], [int(kind) for kind in GPU_WORK])
    inserted_calls = np.concatenate([np.empty(0, np.int32), *nodes.inserted_calls])
    count = np.bincount(np.concatenate([node, inserted_calls]), minlength=node_count)
    is_inserted = np.zeros(node_count, np.bool_)
    is_inserted[inserted_calls] = True
    total = sum_by_index(node, duration, node_count)
    self_time = sum_by_index(node, np.where(on_gpu, duration, trace.self_duration[events]), node_count)
    gpu = sum_by_index(node[on_gpu], duration[on_gpu], node_count)
    by_length = np.argsort(duration, kind="stable")
    longest_event = np.full(node_count, -1, np.int32)
    longest_event[node[by_length]] = events[by_length]  # ascending: the longest is written last

    depth = compute_depths(parent)
    levels = np.split(np.argsort(depth, kind="stable"), np.cumsum(np.bincount(depth))[:-1])
    size = np.ones(node_count, np.int64)
    for members in reversed(levels[1:]):
        np.add.at(size, parent[members], size[members])
        np.add.at(gpu, parent[members], gpu[members])
        children = members[is_inserted[parent[members]]]  # an inserted call has the longest event of its children
        children = children[np.argsort(trace.duration[longest_event[children]], kind="stable")]
        longest_event[parent[children]] = longest_event[children]
    for number in range(len(labels)):  # a root has no event: its time is the sum of its children
        total[number] = int(total[parent == number].sum())

    weight = np.where(is_in(kind, [int(kind) for kind in GPU_WORK]), total, np.maximum(total, gpu))
    order = np.argsort(place_siblings(levels, parent, weight, size[:, None], [1])[:, 0])
    order = order[(parent[order] >= 0) | (size[order] > 1)]
    position = np.full(node_count, -1, np.int64)
    position[order] = np.arange(len(order))
    return DispatchTree(
        parent=np.where(parent[order] >= 0, position[parent[order]], -1).astype(np.int32),
        depth=depth[order],
        size=size[order].astype(np.int32),
        name=np.concatenate(nodes.names)[order],
        kind=kind[order],
        count=count[order],
        total=total[order],
        self_time=self_time[order],
        gpu_time=gpu[order],
        longest_event=longest_event[order],
        is_inserted=is_inserted[order],
        names=names,
        root_labels={int(position[number]): label for number, label in enumerate(labels) if position[number] >= 0},
        unlisted_calls=unlisted,
    )
