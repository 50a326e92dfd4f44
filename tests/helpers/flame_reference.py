"""Fold a trace slowly: climb from each event to its caller, in plain Python."""

from __future__ import annotations

from collections import Counter

from torchprof_tui.analysis.flame.flame_tree import FlameTree, FoldBy, FoldTime
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace

Path = tuple[str, ...]


def fold_slowly(trace: Trace, fold_by: FoldBy, time: FoldTime, only: set[int] | None = None) -> Counter[Path]:
    """Return the ns of each path of names, outermost first."""
    result: Counter[Path] = Counter()
    for event in range(len(trace)):
        if only is not None and event not in only:
            continue
        kind = int(trace.kind[event])
        on_thread = trace.lanes[int(trace.lane[event])].role is Role.THREAD if trace.lane[event] >= 0 else False
        if time is FoldTime.GPU and kind in GPU_WORK:
            value = int(trace.duration[event])
        elif time is FoldTime.CPU and on_thread:
            value = int(trace.self_duration[event])
        else:
            continue
        if value:
            result[_path_of(trace, event, fold_by)] += value
    return result


def list_tree_paths(tree: FlameTree) -> Counter[Path]:
    """Return the ns of each path of a folded tree."""
    result: Counter[Path] = Counter()
    for node in range(len(tree)):
        if tree.value_ns[node]:
            result[tuple(tree.label(above) for above in tree.list_path(node))] += int(tree.value_ns[node])
    return result


def _path_of(trace: Trace, event: int, fold_by: FoldBy) -> Path:
    is_work = int(trace.kind[event]) in GPU_WORK
    path: list[str] = []
    current = event
    if is_work:
        path.append(_name(trace, event))
        current = int(trace.links.launch_of[event])
        if current < 0:
            return ("(GPU work without a recorded launch)", *path)
    while current >= 0:
        if _is_frame(trace, current, fold_by):
            path.append(_name(trace, current))
        current = _caller_of(trace, current, fold_by)
    if len(path) == is_work:
        missing = {FoldBy.STACK: "(no Python stack)", FoldBy.MODULE: "(no module)", FoldBy.OP: "(no op)"}[fold_by]
        path.append(missing)
    return tuple(reversed(path))


def _caller_of(trace: Trace, event: int, fold_by: FoldBy) -> int:
    """Return the forward op of a backward op or of the engine's call around one, else the parent."""
    if fold_by is not FoldBy.OP:
        pairs = list(zip(trace.links.forward.tolist(), trace.links.backward.tolist(), strict=True))
        for forward, backward in reversed(pairs):
            if backward == event and trace.start[forward] < trace.start[event]:
                return int(forward)
        if _name(trace, event).startswith("autograd::engine::evaluate_function"):
            for forward, backward in reversed(pairs):
                if trace.parent[backward] == event and trace.start[forward] < trace.start[event]:
                    return int(forward)
    return int(trace.parent[event])


def _is_frame(trace: Trace, event: int, fold_by: FoldBy) -> bool:
    is_python = trace.kind[event] == Kind.PYTHON
    if fold_by is FoldBy.OP:
        return not is_python
    return bool(is_python) and (fold_by is FoldBy.STACK or _name(trace, event).startswith("nn.Module: "))


def _name(trace: Trace, event: int) -> str:
    is_step = trace.kind[event] == Kind.STEP and len(trace.steps) > 1
    return "ProfilerStep*" if is_step else trace.event(event).name


def list_children(tree: FlameTree, node: int) -> list[int]:
    """List the children of a node, heaviest first."""
    children, child, end = [], node + 1, node + int(tree.size[node])
    while child < end:
        children.append(child)
        child += int(tree.size[child])
    return children
