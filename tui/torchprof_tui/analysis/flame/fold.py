"""Fold the events of a trace into the tree of a flame graph."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import (
    compute_depths,
    find_nearest_ancestor_or_self,
    include_ancestors,
    place_siblings,
)
from torchprof_tui.analysis.dispatch.frame_names import AUTOGRAD_ENGINE_PREFIX, MODULE_CALL_PREFIX
from torchprof_tui.analysis.flame.flame_tree import FlameTree, FoldBy, FoldTime, NoFramesError
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.time.gpu_time import work_mask
from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace

RECORD_FRAMES = {
    FoldBy.STACK: "this trace has no Python stacks: record it with with_stack=True",
    FoldBy.MODULE: "this trace has no nn.Module calls: record it with with_stack=True",
    FoldBy.OP: "this trace has no ops: record it with activities=[ProfilerActivity.CPU, …]",
}
NO_GPU_WORK = "this trace has no GPU work: record it with activities=[…, ProfilerActivity.CUDA]"
NO_CPU_TIME = "this trace has no events on CPU threads: record it with activities=[ProfilerActivity.CPU, …]"


def select_timed_events(trace: Trace, time: FoldTime, only: Bool | None = None) -> tuple[I32, I64]:
    """Select the events of the scope that have time of their own: (events int32[k] ascending, ns int64[k] > 0).

    `only` bool[n]: the scope; None for the whole trace. GPU time is the duration of each kernel, copy and memset; CPU
    time is the time of each event on a thread without the events nested in it.
    """
    values = trace.duration if time is FoldTime.GPU else trace.self_duration
    selected = (work_mask(np.asarray(trace.kind)) if time is FoldTime.GPU else is_on_thread(trace)) & (
        np.asarray(values) > 0
    )
    if only is not None:
        selected &= only
    events = np.flatnonzero(selected).astype(np.int32)
    return events, np.asarray(values)[events].astype(np.int64)


def is_on_thread(trace: Trace) -> Bool:
    """Select the events on lanes of CPU threads: bool[n]."""
    table = np.zeros(len(trace.lanes) + 1, np.bool_)
    table[[number for number, lane in enumerate(trace.lanes) if lane.role is Role.THREAD]] = True
    selected: Bool = table[trace.lane]
    return selected


def select_frames(trace: Trace, fold_by: FoldBy) -> Bool:
    """Select the events that are frames of a flame graph: bool[n]. Raises NoFramesError where there are none."""
    is_python = np.asarray(trace.kind == Kind.PYTHON)
    if fold_by is FoldBy.STACK:
        frames = is_python
    elif fold_by is FoldBy.MODULE:
        frames = is_python & match_names(trace, lambda name: name.startswith(MODULE_CALL_PREFIX))
    else:
        frames = is_on_thread(trace) & ~is_python
    if not frames.any():
        raise NoFramesError(RECORD_FRAMES[fold_by])
    return frames


def link_callers(trace: Trace, fold_by: FoldBy) -> I32:
    """Link each event to the event that called it: int32[n], -1 for none. There are no cycles.

    GPU work is called by its launch. In stacks and modules a backward op is called by its forward op, as in torch's
    own tables: autograd's threads have no Python stack. In ops it stays where it ran.
    """
    caller = np.array(trace.parent, np.int32)
    if fold_by is not FoldBy.OP:
        links = trace.links
        backward, forward = links.backward.astype(np.int64), links.forward.astype(np.int64)
        # A damaged file may link a forward op to a later call, which would make a cycle.
        is_later = trace.start[backward] > trace.start[forward]
        backward, forward = backward[is_later], forward[is_later]
        is_engine = match_names(trace, lambda name: name.startswith(AUTOGRAD_ENGINE_PREFIX))
        around = trace.parent[backward].astype(np.int64)
        in_engine = np.flatnonzero(around >= 0)
        in_engine = in_engine[is_engine[around[in_engine]]]
        in_engine = in_engine[trace.start[around[in_engine]] > trace.start[forward[in_engine]]]
        caller[around[in_engine]] = forward[in_engine]
        caller[backward] = forward
    work = np.flatnonzero(work_mask(np.asarray(trace.kind)))
    caller[work] = trace.links.launch_of[work]
    return caller


def has_frames(trace: Trace, fold_by: FoldBy) -> bool:
    try:
        select_frames(trace, fold_by)
    except NoFramesError:
        return False
    return True


MAX_LEVELS = 1000  # deeper frames count for their ancestor at this depth. It is Python's default recursion limit
NO_LAUNCH_LABEL = "(GPU work without a recorded launch)"
NO_FRAME_LABELS = {
    FoldBy.STACK: "(no Python stack)",
    FoldBy.MODULE: "(no module)",
    FoldBy.OP: "(no op)",
}
ROOT_LABELS = {FoldTime.GPU: "all GPU time", FoldTime.CPU: "all CPU time"}
ALL_STEPS = "ProfilerStep*"

_ROOT, _NO_FRAME, _NO_LAUNCH, _FIXED_NODES = 0, 1, 2, 3


def fold_trace(trace: Trace, fold_by: FoldBy, time: FoldTime, only: Bool | None = None) -> FlameTree:
    """Fold a trace, or the events `only` bool[n], into a tree; about a second for a million events in deep stacks.

    The values of the nodes sum to the self time of the scope. GPU work is a leaf below the frame that launched it.
    Raises NoFramesError where the trace has no such frames or no such time at all.
    """
    is_frame = select_frames(trace, fold_by)
    samples, values = select_timed_events(trace, time, only)
    if not len(samples) and (only is None or not len(select_timed_events(trace, time)[0])):
        raise NoFramesError(NO_GPU_WORK if time is FoldTime.GPU else NO_CPU_TIME)
    caller = link_callers(trace, fold_by)
    if time is FoldTime.GPU:
        is_frame = is_frame | work_mask(np.asarray(trace.kind))
    nearest = find_nearest_ancestor_or_self(caller, is_frame)
    frame_above = np.where(caller >= 0, nearest[np.maximum(caller, 0)], np.int32(-1)).astype(np.int32)
    leaf = nearest[samples]
    has_frame = leaf >= 0

    used = np.zeros(len(trace), np.bool_)
    used[leaf[has_frame]] = True
    frames = np.flatnonzero(include_ancestors(frame_above, used)).astype(np.int32)
    index = np.full(len(trace) + 1, -1, np.int32)  # the last one: of -1
    index[frames] = np.arange(len(frames), dtype=np.int32)
    names = _Names(trace, fold_by, time)
    is_work = work_mask(np.asarray(trace.kind))[frames]
    outer = np.where(caller[frames] >= 0, _NO_FRAME, _NO_LAUNCH)
    nodes = _merge_paths(
        index[frame_above[frames]],
        names.of_events(frames),
        np.where(is_work, outer, _ROOT).astype(np.int32),
    )

    node_of_sample = np.where(has_frame, nodes.of_frame[index[leaf]], np.int32(_NO_FRAME))
    events = np.concatenate([frames, samples[~has_frame]])
    node_of_event = np.concatenate([nodes.of_frame, node_of_sample[~has_frame]])
    # Count the GPU work without launch for the node above it too, which is no event itself.
    below = np.flatnonzero((node_of_event >= _FIXED_NODES) & (nodes.parent[node_of_event] <= _NO_LAUNCH))
    below = below[nodes.parent[node_of_event[below]] > _ROOT]
    above = nodes.parent[node_of_event[below]]
    node_of_event, events = np.concatenate([node_of_event, above]), np.concatenate([events, events[below]])
    value = np.zeros(nodes.count, np.int64)
    np.add.at(value, node_of_sample, values)
    name = np.concatenate([names.fixed, nodes.name])
    first = _find_earliest(trace, node_of_event, events, nodes.count)
    kind = np.where(first >= 0, trace.kind[np.maximum(first, 0)] if len(trace) else 0, Kind.OTHER).astype(np.uint8)
    kind[:_FIXED_NODES] = Kind.OTHER
    count = np.bincount(node_of_event, minlength=nodes.count)
    columns = _Columns(nodes.parent, name, kind, value, count, first)
    return _order_nodes(columns, names.texts, fold_by, time)


class _Names:
    """The names of a trace and of the nodes that are no event; all steps share one name."""

    def __init__(self, trace: Trace, fold_by: FoldBy, time: FoldTime) -> None:
        own = len(trace.names)
        self.texts = [*trace.names, ROOT_LABELS[time], NO_FRAME_LABELS[fold_by], NO_LAUNCH_LABEL, ALL_STEPS]
        self.fixed = np.arange(own, own + _FIXED_NODES, dtype=np.int32)
        self._trace = trace
        self._step_name = own + _FIXED_NODES if len(trace.steps) > 1 else -1

    def of_events(self, events: I32) -> I32:
        """Return the index of the name of each event: int32[k]."""
        names = np.array(self._trace.name[events], np.int32)
        if self._step_name >= 0:
            names[self._trace.kind[events] == Kind.STEP] = self._step_name
        return names


@record
class _Paths:
    """The paths of frames: `of_frame` int32[k]; `parent` int32[count] with the fixed nodes, `name` without them."""

    of_frame: I32
    parent: I32
    name: I32
    count: int


def _merge_paths(parent: I32, name: I32, outer: I32) -> _Paths:
    """Merge frames with the same path of names, level by level from the outermost.

    `parent` int32[k]: index of the frame above, -1 for none. `outer` int32[k]: the node above a frame without parent.
    """
    deep = np.zeros(0, np.int32)
    depth = compute_depths(parent)
    if len(depth) and int(depth.max()) >= MAX_LEVELS:
        deep = np.flatnonzero(depth >= MAX_LEVELS).astype(np.int32)
        shallow = find_nearest_ancestor_or_self(parent, depth < MAX_LEVELS)
        depth = np.where(depth < MAX_LEVELS, depth, MAX_LEVELS)
    order = np.argsort(depth.astype(np.uint16), kind="stable")
    levels = np.split(order, np.cumsum(np.bincount(depth))[:-1])[:MAX_LEVELS] if len(depth) else []
    of_frame = np.full(len(parent) + 1, _ROOT, np.int32)  # the last one: of -1
    parents = [np.array([-1, _ROOT, _ROOT], np.int32)]
    names = [np.zeros(0, np.int32)]
    count = _FIXED_NODES
    for number, members in enumerate(levels):
        above = outer[members] if number == 0 else of_frame[parent[members]]
        keys, inverse = np.unique(above.astype(np.int64) << 32 | name[members], return_inverse=True)
        parents.append((keys >> 32).astype(np.int32))
        names.append((keys & 0xFFFFFFFF).astype(np.int32))
        of_frame[members] = count + inverse.reshape(-1)
        count += len(keys)
    if len(deep):
        of_frame[deep] = of_frame[shallow[deep]]
    return _Paths(of_frame[:-1], np.concatenate(parents), np.concatenate(names), count)


def _find_earliest(trace: Trace, node_of_event: I32, events: I32, count: int) -> I32:
    """Find the event of each node that starts first: int32[count], -1 for none."""
    latest_first = np.argsort(-np.asarray(trace.start)[events], kind="stable")
    first = np.full(count, -1, np.int32)
    first[node_of_event[latest_first]] = events[latest_first]  # the earliest is written last
    return first


@record
class _Columns:
    """The columns of a tree whose nodes are numbered by level."""

    parent: I32
    name: I32
    kind: U8
    value: I64
    count: I64
    first: I32


def _order_nodes(columns: _Columns, names: list[str], fold_by: FoldBy, time: FoldTime) -> FlameTree:
    """Sum up the subtrees, drop nodes without time, and number the others in preorder, heaviest child first."""
    parent, total = columns.parent, columns.value.copy()
    depth = compute_depths(parent)
    # By name, which decides between siblings that take equally long.
    levels = np.split(np.lexsort((columns.name, depth)), np.cumsum(np.bincount(depth))[:-1])
    for members in reversed(levels[1:]):
        np.add.at(total, parent[members], total[members])
    keep = total > 0
    keep[_ROOT] = True
    size = keep.astype(np.int64)
    for members in reversed(levels[1:]):
        np.add.at(size, parent[members], size[members])
    position, offset = place_siblings(levels, parent, total, np.stack([size, total], axis=1), [1, 0]).T
    kept = np.flatnonzero(keep)
    kept = kept[np.argsort(position[kept])]
    above = parent[kept]
    return FlameTree(
        parent=np.where(above >= 0, position[np.maximum(above, 0)], -1).astype(np.int32),
        depth=depth[kept].astype(np.int32),
        size=size[kept].astype(np.int32),
        name=columns.name[kept].astype(np.int32),
        kind=columns.kind[kept],
        value_ns=columns.value[kept],
        total_ns=total[kept],
        offset_ns=offset[kept],
        count=columns.count[kept],
        first_event=columns.first[kept],
        names=names,
        missing_ns=int(total[_NO_FRAME] + total[_NO_LAUNCH]),
        fold_by=fold_by,
        time=time,
    )
