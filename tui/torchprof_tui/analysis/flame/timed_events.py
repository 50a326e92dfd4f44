"""Select the events whose time a flame graph adds up, and link each event to the one that called it."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.frame_names import MODULE_CALL_PREFIX
from torchprof_tui.analysis.flame.flame_tree import FoldBy, FoldTime, NoFramesError
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace

_ENGINE_PREFIX = "autograd::engine::evaluate_function"

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
    selected = (is_gpu_work(trace) if time is FoldTime.GPU else is_on_thread(trace)) & (np.asarray(values) > 0)
    if only is not None:
        selected &= only
    events = np.flatnonzero(selected).astype(np.int32)
    return events, np.asarray(values)[events].astype(np.int64)


def is_gpu_work(trace: Trace) -> Bool:
    """Select kernels, collectives, copies and memsets: bool[n]."""
    return _kind_table(GPU_WORK)[trace.kind]


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
        is_module_name = np.fromiter((name.startswith(MODULE_CALL_PREFIX) for name in trace.names), np.bool_)
        frames = is_python & (is_module_name[trace.name] if len(is_module_name) else is_python)
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
        is_engine = np.fromiter((name.startswith(_ENGINE_PREFIX) for name in trace.names), np.bool_, len(trace.names))
        around = trace.parent[backward].astype(np.int64)
        in_engine = np.flatnonzero(around >= 0)
        in_engine = in_engine[is_engine[trace.name[around[in_engine]]]]
        in_engine = in_engine[trace.start[around[in_engine]] > trace.start[forward[in_engine]]]
        caller[around[in_engine]] = forward[in_engine]
        caller[backward] = forward
    work = np.flatnonzero(is_gpu_work(trace))
    caller[work] = trace.links.launch_of[work]
    return caller


def has_frames(trace: Trace, fold_by: FoldBy) -> bool:
    """Return whether a trace has frames of this sort."""
    try:
        select_frames(trace, fold_by)
    except NoFramesError:
        return False
    return True


def _kind_table(kinds: frozenset[Kind]) -> Bool:
    table = np.zeros(256, np.bool_)
    table[[int(kind) for kind in kinds]] = True
    return table
