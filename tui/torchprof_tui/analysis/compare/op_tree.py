"""Aggregate the compared steps of a recording into one ordered call tree of a step.

A node stands for the calls of one name at one place: the k-th call of that name below one call of its parent node, in
every step. Python frames and steps are no levels of the tree; annotations are where the caller names them. Runtime
calls count for the op that made them; those outside of all ops are nodes. GPU work belongs to the node that launched
it, that of a replayed graph to its captured op, see `captured_levels`.

A replay is then compared as an eager run is: its ops follow the launch, below the same caller, without CPU time, and
the replayed kernels belong to them. Work without a captured op stays with the launch.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import compute_depths, find_nearest_ancestor
from torchprof_tui.analysis.graphs.captured_nodes import (
    CapturedNodes,
    list_captured_nodes,
    number_marked_names,
    select_ops,
)
from torchprof_tui.analysis.graphs.captured_ops import CapturedOps, get_captured_ops
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.time.gpu_time import work_mask
from torchprof_tui.analysis.time.step_bounds import find_launch_starts
from torchprof_tui.trace.core.arrays import I32, I64, Array, is_in, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Step, Trace


@record
class Side:
    """A trace and its compared steps. `trace` is that of one rank; times are ns of its own clock.

    Without steps the whole trace is compared as if it were one step: `steps` is empty, and `step_count` is 1.
    """

    trace: Trace
    label: str
    window: tuple[int, int]  # from the start of the first compared step to the end of the last one
    steps: tuple[Step, ...]  # the compared ones, ascending in time; consecutive
    left_out: tuple[str, ...] = ()  # why which steps are not compared, one sentence each

    @property
    def step_count(self) -> int:
        return max(len(self.steps), 1)

    @property
    def duration(self) -> int:
        """The window's length, ns."""
        return self.window[1] - self.window[0]


@record
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
    nodes = nodes.select_work(is_in(launch, calls) & is_in(ops.replays.work[nodes.work], work))
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
    first = np.flatnonzero(np.diff(nodes.replay, prepend=-1) != 0)
    size = np.diff(first, append=len(nodes))
    index = np.arange(len(nodes)) - np.repeat(first, size)
    times: I64 = trace.start[launch] + trace.duration[launch] * (index + 1) // (np.repeat(size, size) + 1)
    start = np.concatenate([own.start, times])
    order = np.lexsort((start, trace.lane[row]))  # stable: captured ops after what began at the same time
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    owner = own.owner[np.searchsorted(calls, launch)].astype(np.int64)
    is_level = (owner >= 0) & (own.call[np.maximum(owner, 0)] == launch)  # outside of all ops
    top = np.where(is_level, own.parent[np.maximum(owner, 0)], owner)
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


STEP_LABEL = "the step"
NO_LAUNCH_LABEL = "GPU work whose launch is not in this trace"

MAX_LEVELS = 500  # deeper calls count for their ancestor at this depth: no program nests that many ops on purpose
MAX_NODES = 200_000
"""Above this number of nodes the calls of one name below one parent become one node, without their order."""

_CPU_KINDS = (Kind.STEP, Kind.ANNOTATION, Kind.PYTHON, Kind.OP, Kind.RUNTIME)


@record
class SelectedEvents:
    """The events of a side that are compared, ascending rows of the trace: int32[...] each.

    `calls`: all calls on CPU threads that start in the window. `work`: the GPU work launched by calls in the window,
    and the GPU work that starts in it and has no launch.
    """

    calls: I32
    work: I32


@record
class WorkTable:
    """The GPU work of a tree, k rows by (node, order of launch and start).

    A row is the i-th launch of one name by one call of its node. `name`: index into the trace's names. `calls` and
    `time` (ns) over all compared steps.
    """

    node: I32
    name: I32
    event: I32  # the first such event of the trace
    calls: I64
    time: I64
    first: I32  # int32[nodes + 1]: bounds of each node's rows


@record
class OpTree:
    """n nodes in preorder, siblings in the order of their calls; node 0 is the step, its children are threads.

    `parent` -1 for node 0. `size`: nodes of the subtree. `labels`: the name of each label; `label` int32[n] an index
    into it. `event`: the first call of each node in the trace, -1 for the step and threads. `calls` and `cpu_time` (ns:
    self time with that of its runtime calls) over all compared steps; those of threads are outside of all ops.
    `node_of_call` int32[...]: the node of each selected call; `row_of_work`: the row of `work` of each selected GPU
    event. `threads`: children of the step. `is_merged`: see MAX_NODES. `source` int32[n]: of nodes that were captured
    the index into `sources`, else -1; `source_event` int32[n]: the row there.
    """

    parent: I32
    size: I32
    label: I32
    labels: list[str]
    event: I32
    calls: I64
    cpu_time: I64
    work: WorkTable
    selected: SelectedEvents
    node_of_call: I32
    row_of_work: I32
    threads: int
    is_merged: bool
    source: I32
    source_event: I32
    sources: tuple[Trace, ...]

    def __len__(self) -> int:
        return len(self.parent)


def select_events(side: Side) -> SelectedEvents:
    """Select the events of the compared steps; see `SelectedEvents`."""
    trace = side.trace
    is_thread = np.array([lane.role is Role.THREAD for lane in trace.lanes] + [False], np.bool_)
    is_call = np.zeros(256, np.bool_)
    is_call[[int(kind) for kind in _CPU_KINDS]] = True
    first, last = side.window
    if not side.steps:
        last += 1  # events of no length at the very end belong to the trace
    in_window = (trace.start >= first) & (trace.start < last)
    calls = np.flatnonzero(in_window & is_call[trace.kind] & is_thread[trace.lane]).astype(np.int32)
    work = np.flatnonzero(work_mask(trace.kind)).astype(np.int32)
    if not side.steps:
        launch = trace.links.launch_of[work]
        return SelectedEvents(calls, work[in_window[np.where(launch >= 0, launch, work)]])
    launched_at = find_launch_starts(trace, work)  # what was launched before the recording is of no step
    return SelectedEvents(calls, work[(launched_at >= first) & (launched_at < last)])


def list_annotations(side: Side, selected: SelectedEvents) -> set[str]:
    """List the names of annotations among the selected calls."""
    trace = side.trace
    events = selected.calls[trace.kind[selected.calls] == Kind.ANNOTATION]
    return {trace.names[name] for name in sorted_unique(trace.name[events]).tolist()}


def build_op_tree(
    side: Side, selected: SelectedEvents, annotations: Collection[str] = (), is_merged: bool = False
) -> OpTree:
    """Build the tree of a side. `annotations`: names that are levels of the tree. `is_merged`: see MAX_NODES."""
    trace = side.trace
    found = _select_levels(trace, selected, annotations)
    levels = list_levels(trace, selected.calls, selected.work, *found)
    parent = levels.parent
    step = _find_steps(side, trace.start[levels.call])
    threads = _rank_threads(trace, selected)
    tree_nodes = _NodeBuilder(1 + len(threads) + 1)
    node_of_lane = np.zeros(len(trace.lanes) + 1, np.int32)
    node_of_lane[threads] = np.arange(1, len(threads) + 1)
    top = node_of_lane[trace.lane[levels.call]]
    node = np.full(len(parent), -1, np.int32)
    depth = compute_depths(parent) if len(parent) else parent
    by_depth = np.argsort(depth, kind="stable")
    for members in np.split(by_depth, np.cumsum(np.bincount(depth, minlength=1))[:-1]):
        above = parent[members]
        inside = above >= 0
        parent_node = np.where(inside, node[np.maximum(above, 0)], top[members])
        # An instance of the parent: a call, or the part of a thread within one step.
        instance = np.where(inside, above.astype(np.int64), -1 - (step[members] * (len(threads) + 2) + top[members]))
        name = levels.name[members]
        occurrence = np.zeros(len(members), np.int64) if is_merged else count_occurrences(instance, name)
        node[members] = tree_nodes.add(parent_node, name, occurrence, members)
    return _finish(side, selected, tree_nodes, levels, node, step, threads, is_merged)


def _select_levels(trace: Trace, selected: SelectedEvents, annotations: Collection[str]) -> tuple[I32, I32, I32]:
    """Select the calls that are nodes.

    Returns (their rows in the trace, the index of the nearest one around each or -1, the index of the one that each
    selected call belongs to or -1).
    """
    calls = selected.calls
    kind = trace.kind[calls]
    is_level = kind == Kind.OP
    if annotations:
        is_level |= (kind == Kind.ANNOTATION) & match_names(trace, annotations.__contains__, trace.name[calls])
    mask = np.zeros(len(trace), np.bool_)
    mask[calls[is_level]] = True
    nearest = find_nearest_ancestor(trace.parent, calls, mask)
    is_level |= (kind == Kind.RUNTIME) & (nearest < 0)
    mask[calls[is_level]] = True
    events = calls[is_level]
    index = np.full(len(trace) + 1, -1, np.int32)
    index[events] = np.arange(len(events), dtype=np.int32)
    parent = index[nearest[is_level]]
    deep = compute_depths(parent) >= MAX_LEVELS if len(parent) else np.zeros(0, np.bool_)
    if deep.any():
        mask[events[deep]] = False
        events = events[~deep]
        index[:] = -1
        index[events] = np.arange(len(events), dtype=np.int32)
        nearest = find_nearest_ancestor(trace.parent, calls, mask)
        parent = index[nearest[mask[calls]]]
    owner = np.where(mask[calls], index[calls], index[nearest])
    return events, parent, owner.astype(np.int32)


def _find_steps(side: Side, times: I64) -> I64:
    """Return the index of the compared step of each time: int64[k]; a time after a step belongs to that step."""
    if not side.steps:
        return np.zeros(len(times), np.int64)
    starts = np.array([step.start for step in side.steps], np.int64)
    return np.maximum(np.searchsorted(starts, times, side="right") - 1, 0)


def _rank_threads(trace: Trace, selected: SelectedEvents) -> list[int]:
    """Rank the lanes of the selected calls: those with steps first, then by GPU work launched, then by calls."""
    lane = trace.lane[selected.calls]
    lanes = sorted_unique(lane)
    launch = trace.links.launch_of[selected.work]
    launches = np.bincount(trace.lane[launch[launch >= 0]], minlength=len(trace.lanes) + 1)
    calls = np.bincount(lane, minlength=len(trace.lanes) + 1)
    steps = np.bincount(
        trace.lane[np.array([step.event for step in trace.steps], np.int64)] if trace.steps else [],
        minlength=len(trace.lanes) + 1,
    )
    order = np.lexsort((lanes, -calls[lanes], -launches[lanes], -(steps[lanes] > 0).astype(int)))
    ranked: list[int] = lanes[order].tolist()
    return ranked


def count_occurrences(instance: I64, name: I32) -> I64:
    """Number the calls of one name within one instance, in their order, from 0: int64[k]."""
    order = np.lexsort((name, instance))  # stable: in the order of the calls
    sorted_instance, sorted_name = instance[order], name[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (sorted_instance[1:] != sorted_instance[:-1]) | (sorted_name[1:] != sorted_name[:-1])
    index = np.arange(len(order))
    occurrence = np.empty(len(order), np.int64)
    occurrence[order] = index - np.maximum.accumulate(np.where(is_first, index, 0))
    return occurrence


def group_keys(*columns: Array) -> tuple[I64, I64]:
    """Number the distinct rows of integer columns: (first row of each group, group of each row), both int64."""
    inverse = np.zeros(len(columns[0]), np.int64)
    first = np.zeros(0, np.int64)
    for column in columns:
        values, codes = np.unique(column, return_inverse=True)
        _, first, inverse = np.unique(inverse * max(len(values), 1) + codes, return_index=True, return_inverse=True)
    return first, inverse


class _NodeBuilder:
    """Nodes in the order of creation, level by level; the step and the threads come first."""

    def __init__(self, roots: int) -> None:
        self.count = roots
        self.parents: list[I32] = [np.array([-1] + [0] * (roots - 1), np.int32)]
        self.names: list[I32] = [np.full(roots, -1, np.int32)]
        self.first_calls: list[I64] = [np.full(roots, -1, np.int64)]

    def add(self, parent: I32, name: I32, occurrence: I64, members: I64) -> I32:
        """Add one node per distinct (parent, name, occurrence), and return the node of each call: int32[k]."""
        first, inverse = group_keys(parent, name, occurrence)
        self.parents.append(parent[first])
        self.names.append(name[first])
        self.first_calls.append(members[first])
        nodes: I32 = (self.count + inverse).astype(np.int32)
        self.count += len(first)
        return nodes


def _finish(
    side: Side,
    selected: SelectedEvents,
    nodes: _NodeBuilder,
    levels: Levels,
    node: I32,
    step: I64,
    threads: list[int],
    is_merged: bool,
) -> OpTree:
    """Renumber the nodes in preorder and sum up the calls and GPU work of each."""
    trace, owner = side.trace, levels.owner
    parent, name = np.concatenate(nodes.parents), np.concatenate(nodes.names)
    first_call = np.concatenate(nodes.first_calls)
    starts = np.array([s.start for s in side.steps] or [side.window[0]], np.int64)
    offset = np.arange(len(parent), dtype=np.int64) - len(parent) + np.iinfo(np.int64).min // 2  # roots: as numbered
    is_call = first_call >= 0
    calls = first_call[is_call]
    offset[is_call] = levels.start[calls] - starts[step[calls]]
    position, size = _number_preorder(parent, offset)
    no_launch = 1 + len(threads)
    lane_node = np.zeros(len(trace.lanes) + 1, np.int64)
    lane_node[threads] = np.arange(1, no_launch)
    created = np.where(
        owner >= 0, node[np.maximum(owner, 0)] if len(node) else 0, lane_node[trace.lane[selected.calls]]
    )
    node_of_call = position[created].astype(np.int32)
    cpu_time = np.zeros(len(parent), np.int64)
    np.add.at(cpu_time, node_of_call, trace.self_duration[selected.calls])
    owner_of_work = levels.owner_of_work
    captured_node = np.where(owner_of_work >= 0, position[_take(node, owner_of_work)], -1)
    work, row_of_work = _build_work_table(
        side, selected, node_of_call, levels, captured_node, int(position[no_launch]), len(parent), is_merged
    )
    order = np.empty(len(parent), np.int64)
    order[position] = np.arange(len(parent))
    labels = [*levels.names, STEP_LABEL, NO_LAUNCH_LABEL, *(f"thread {number + 1}" for number in range(len(threads)))]
    label = name[order].copy()
    label[0] = len(levels.names)
    label[position[no_launch]] = len(levels.names) + 1
    label[position[1:no_launch]] = len(levels.names) + 2 + np.arange(len(threads))
    moved_parent = np.where(parent[order] >= 0, position[parent[order]], -1)
    return OpTree(
        parent=moved_parent.astype(np.int32),
        size=size[order].astype(np.int32),
        label=label,
        labels=labels,
        event=np.where(is_call, _take(levels.event, first_call), -1)[order].astype(np.int32),
        calls=np.bincount(position[node], minlength=len(parent)) if len(node) else np.zeros(len(parent), np.int64),
        cpu_time=cpu_time,
        work=work,
        selected=selected,
        node_of_call=node_of_call,
        row_of_work=row_of_work,
        threads=len(threads) + 1,
        is_merged=is_merged,
        source=np.where(is_call, _take(levels.source, first_call), -1)[order].astype(np.int32),
        source_event=_take(levels.source_event, first_call)[order],
        sources=levels.sources,
    )


def _take(column: I32, indices: Array) -> I32:
    """Return `column[indices]`, with the first element for negative indices, and zeros of an empty column."""
    return column[np.maximum(indices, 0)] if len(column) else np.zeros(len(indices), np.int32)


def _number_preorder(parent: I32, offset: I64) -> tuple[I64, I64]:
    """Number the nodes in preorder, siblings by `offset`: (position of each node, size of its subtree), int64[n]."""
    depth = compute_depths(parent)
    levels = np.split(np.argsort(depth, kind="stable"), np.cumsum(np.bincount(depth))[:-1])
    size = np.ones(len(parent), np.int64)
    for members in reversed(levels[1:]):
        np.add.at(size, parent[members], size[members])
    position = np.zeros(len(parent), np.int64)
    for members in levels[1:]:
        order = members[np.lexsort((members, offset[members], parent[members]))]
        before = np.cumsum(size[order]) - size[order]
        is_first = np.concatenate([[True], parent[order][1:] != parent[order][:-1]])
        group = np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
        position[order] = position[parent[order]] + 1 + before - before[group]
    return position, size


def _build_work_table(
    side: Side,
    selected: SelectedEvents,
    node_of_call: I32,
    levels: Levels,
    captured_node: I64,
    no_launch: int,
    nodes: int,
    is_merged: bool,
) -> tuple[WorkTable, I32]:
    """Aggregate the GPU work by (node, name, occurrence below one call): (table, row of each selected GPU event)."""
    trace, work = side.trace, selected.work
    launch = trace.links.launch_of[work].astype(np.int64)
    index = np.minimum(np.searchsorted(selected.calls, launch), max(len(selected.calls) - 1, 0))
    known = (launch >= 0) & (selected.calls[index] == launch) if len(selected.calls) else np.zeros(len(work), np.bool_)
    node = np.full(len(work), no_launch, np.int64)
    node[known] = node_of_call[index[known]]
    step = _find_steps(side, trace.start[work])
    call = -1 - step  # an instance without a launch: the step
    call[known] = levels.owner[index[known]]
    # Work launched by a call without an op around it has no owner only if it is a Python frame: its thread's step.
    call = np.where(known & (call < 0), -1 - len(side.steps) - step, call)
    node = np.where(captured_node >= 0, captured_node, node)
    call = np.where(captured_node >= 0, levels.owner_of_work, call)
    order = np.lexsort((trace.start[work], np.where(known, launch, 0), step))
    name = trace.name[work]
    occurrence = np.zeros(len(work), np.int64)
    if not is_merged:
        occurrence[order] = count_occurrences((call * (nodes + 1) + node)[order], name[order])
    first, group = group_keys(node[order], name[order], occurrence[order])
    by_node = np.lexsort((first, node[order][first]))  # `first` ascends with launch and start
    row_of_group = np.empty(len(first), np.int64)
    row_of_group[by_node] = np.arange(len(first))
    row_of_work = np.empty(len(work), np.int32)
    row_of_work[order] = row_of_group[group]
    row_node = node[order][first][by_node]
    time = np.zeros(len(first), np.int64)
    np.add.at(time, row_of_work, trace.duration[work])
    table = WorkTable(
        node=row_node.astype(np.int32),
        name=name[order][first][by_node].astype(np.int32),
        event=work[order][first][by_node],
        calls=np.bincount(row_of_work, minlength=len(first)),
        time=time,
        first=np.searchsorted(row_node, np.arange(nodes + 1)).astype(np.int32),
    )
    return table, row_of_work
