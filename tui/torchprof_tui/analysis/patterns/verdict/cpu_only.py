"""Diagnose a scope without GPU work: what the program's main thread did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.host_activity import COMMUNICATION_REGEX, DATA_LOADER_REGEX
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_percent
from torchprof_tui.analysis.patterns.rules.op_loop import OP_LOOP_ID
from torchprof_tui.analysis.patterns.verdict.diagnosis import Diagnosis
from torchprof_tui.analysis.patterns.verdict.time_tree import OUTSIDE, TimePart, TimeTree
from torchprof_tui.analysis.patterns.verdict.tree_lines import part_sort_key
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.event_kind import Kind

INPUT, COMMUNICATION, OPS, HOST_CODE, PROFILER = "input", "communication", "ops", "host_code", "profiler"

_LABELS = {
    INPUT: "data loader",
    COMMUNICATION: "communication",
    OPS: "ops",
    HOST_CODE: "host code outside any op",
    PROFILER: "profiler",
    OUTSIDE: "outside the recorded program",
}
_RECORD_STACKS = "record with stacks (with_stack=True) to see which code it is"
_MAX_OPS_LISTED = 8
_NAME_CELLS = 40


@dataclass(frozen=True, slots=True)
class _MainThread:
    """The lane that the program runs on, and its events in the scope."""

    lane: int
    first: int
    last: int


def build_cpu_time_tree(view: ScopeView) -> TimeTree | None:
    """Divide the time of the program's main thread; None if no op was recorded in the scope."""
    tables = view.tables
    main = _find_main_thread(view)
    t0, t1 = _find_window(view, main) if main is not None else (0, 0)
    if main is None or t1 <= t0:
        return None
    assigned = tables.overhead_intervals.clip(t0, t1)
    parts = [TimePart(PROFILER, _LABELS[PROFILER], assigned.total)]

    def take(covered: Intervals) -> Intervals:
        nonlocal assigned
        remaining = covered.clip(t0, t1) - assigned
        assigned = assigned | remaining
        return remaining

    def on_main(pattern: str) -> Intervals:
        table = tables.match_names(pattern)
        table = table.select((table.row >= main.first) & (table.row < main.last))
        return union(table.start, table.end)

    for part_id, pattern in ((INPUT, DATA_LOADER_REGEX), (COMMUNICATION, COMMUNICATION_REGEX)):
        parts.append(TimePart(part_id, _LABELS[part_id], take(on_main(pattern)).total))
    ops = tables.ops.select((tables.ops.row >= main.first) & (tables.ops.row < main.last))
    op_time = take(union(ops.start, ops.end))
    parts.append(TimePart(OPS, _LABELS[OPS], op_time.total, _divide_ops(view, ops.row, op_time)))
    host = (t1 - t0) - assigned.total
    parts.append(TimePart(HOST_CODE, _LABELS[HOST_CODE], host))
    parts.append(TimePart(OUTSIDE, _LABELS[OUTSIDE], view.scope.length - (t1 - t0)))
    parts.sort(key=part_sort_key)
    return TimeTree(tuple(part for part in parts if part.time), view.scope.length, 1)


def _find_window(view: ScopeView, main: _MainThread) -> tuple[int, int]:
    """Find when the main thread worked (ns): in the steps; without any from its first op or annotation to its last."""
    t0, t1 = view.window
    if len(view.tables.steps):
        return t0, t1
    ranges = view.select_in_scope(view.tables.annotations)
    ranges = ranges.select((ranges.row >= main.first) & (ranges.row < main.last))
    if len(ranges):
        t0, t1 = min(t0, int(ranges.start.min())), max(t1, int(ranges.end.max()))
    return max(t0, view.scope.t0), min(t1, view.scope.t1)


def _host_intervals(view: ScopeView, main: _MainThread) -> Intervals:
    """Return when the main thread was outside ops, loader calls and the profiler's own work."""
    t0, t1 = _find_window(view, main)
    tables, host = view.tables, Intervals(np.array([t0], dtype=np.int64), np.array([t1], dtype=np.int64))
    for table in (tables.ops, tables.match_names(DATA_LOADER_REGEX), tables.match_names(COMMUNICATION_REGEX)):
        table = table.select((table.row >= main.first) & (table.row < main.last))
        host = host - union(table.start, table.end).clip(t0, t1)
    return host - tables.overhead_intervals.clip(t0, t1)


def diagnose_cpu(view: ScopeView, tree: TimeTree, findings: Sequence[Finding] = ()) -> Diagnosis:
    """Diagnose what takes most of the main thread's time."""
    measured = sum(part.time for part in tree.parts if part.id not in (OUTSIDE, PROFILER)) or 1
    worst = max(
        (part for part in tree.parts if part.id not in (OUTSIDE, PROFILER)), key=lambda part: part.time, default=None
    )
    if worst is None:
        return Diagnosis(HOST_CODE, 0.0, "the program did almost no work")
    share = worst.time / measured
    percent = format_percent(share)
    if worst.id == INPUT:
        remedy = (
            "its workers are too slow: use more workers, a larger prefetch_factor, or faster decoding"
            if view.tables.practices.uses_workers
            else "load in worker processes (num_workers), ahead of the step"
        )
        waits = view.select_in_scope(view.tables.match_names(DATA_LOADER_REGEX))
        return Diagnosis(INPUT, share, f"the data loader takes {percent} of the CPU's time", remedy, "", waits.row)
    if worst.id == OPS and worst.parts:
        return _diagnose_ops(view, worst, measured, findings)
    if worst.id == COMMUNICATION:
        return Diagnosis(COMMUNICATION, share, f"communication takes {percent} of the CPU's time")
    return _diagnose_host_code(view, share)


def _diagnose_ops(view: ScopeView, ops_part: TimePart, measured: int, findings: Sequence[Finding]) -> Diagnosis:
    """Diagnose a main thread that is mostly in ops: a loop of small ones, many calls of one, or the longest."""
    share = ops_part.time / measured
    percent = format_percent(share)
    op = ops_part.parts[0]
    ops = view.ops
    events = ops.row[ops.name == view.trace.names.index(op.id)]
    what = f"ops take {percent} of the CPU's time, {op.id} {format_percent(op.time / measured)}"
    loop = next((found for found in findings if found.id == OP_LOOP_ID and found.has_fired), None)
    if loop is not None and loop.answer.at_stake >= thresholds.EXPLAINED_SHARE_OF_WAIT.value * ops_part.time:
        what = f"ops take {percent} of the CPU's time; {loop.answer.seen}"
        return Diagnosis(OPS, share, what, loop.remedy.action, "", loop.answer.events)
    calls = next((found for found in findings if found.id == "call-count" and found.has_fired), None)
    if calls is not None and np.isin(calls.answer.events, events).any():
        what = f"ops take {percent} of the CPU's time; {calls.answer.seen}"
        return Diagnosis(OPS, share, what, calls.remedy.action, "", events)
    return Diagnosis(OPS, share, what, "", "", events)


def _diagnose_host_code(view: ScopeView, share: float) -> Diagnosis:
    """Diagnose a main thread that is mostly outside any op: by the frame or annotation it is in."""
    what, events = f"code outside any op takes {format_percent(share)} of the CPU's time", _find_host_owner(view)
    if len(events):
        owner = view.tables.short_name(int(events[0]), _NAME_CELLS)
        what += f", most of it in {owner}"
        is_frame = int(view.trace.kind[events[0]]) == Kind.PYTHON
        remedy = "move it out of the loop, or into another process" if is_frame else _RECORD_STACKS
        return Diagnosis(HOST_CODE, share, what, remedy, "", events)
    if _is_other_threads_turn(view):
        return Diagnosis(HOST_CODE, share, f"{what}, most of it while another thread runs ops")
    if len(view.tables.practices.python_frames):
        return Diagnosis(HOST_CODE, share, what)
    return Diagnosis(HOST_CODE, share, what, _RECORD_STACKS)


def _find_host_owner(view: ScopeView) -> I64:
    """Find the frames or annotations of one name that most of the time outside ops is spent in: int64[k], or none.

    Each ns counts for the innermost one. Steps and loader calls are no owners: they say nothing of the code.
    """
    trace, tables, main = view.trace, view.tables, _find_main_thread(view)
    nothing = np.empty(0, dtype=np.int64)
    if main is None:
        return nothing
    kind = np.asarray(trace.kind[main.first : main.last])
    rows = main.first + np.flatnonzero(np.isin(kind, (Kind.PYTHON, Kind.ANNOTATION, Kind.STEP)))
    if not len(rows):
        return nothing
    host = _host_intervals(view, main)
    time = host.total
    host = host - union(tables.ops.start, tables.ops.end)  # not what another thread's ops are waited for
    start = np.asarray(trace.start[rows])
    covered = host.measure_before(start + trace.duration[rows]) - host.measure_before(start)
    own, parent = covered.copy(), np.asarray(trace.parent[rows])
    is_child = np.isin(parent, rows)
    np.subtract.at(own, np.searchsorted(rows, parent[is_child]), covered[is_child])
    own[np.isin(rows, np.concatenate([tables.steps.row, tables.match_names(DATA_LOADER_REGEX).row]))] = 0
    by_name = np.bincount(np.asarray(trace.name[rows]), weights=np.maximum(own, 0))
    name = int(by_name.argmax())
    if by_name[name] < thresholds.HOST_OWNER_SHARE.value * time:
        return nothing
    owners: I64 = rows[(np.asarray(trace.name[rows]) == name) & (own > 0)].astype(np.int64)
    return owners


def _is_other_threads_turn(view: ScopeView) -> bool:
    """Return whether other threads run ops for most of the time in which the main thread is outside any op."""
    main = _find_main_thread(view)
    if main is None:
        return False
    host, ops = _host_intervals(view, main), view.tables.ops
    return 2 * (host & union(ops.start, ops.end)).total > host.total


def _find_main_thread(view: ScopeView) -> _MainThread | None:
    """Find the lane of the steps, else the one with most ops in the scope."""
    trace = view.trace
    ops = view.ops.row if len(view.ops) else view.tables.ops.row
    rows = view.steps.row if len(view.steps) else ops
    if not len(ops):
        return None
    lane_number = int(np.bincount(trace.lane[rows]).argmax())
    lane = trace.lanes[lane_number]
    return _MainThread(lane_number, lane.first, lane.last)


def _divide_ops(view: ScopeView, rows: I64, op_time: Intervals) -> tuple[TimePart, ...]:
    """Divide the time of ops by the name of the innermost op, largest first; the rest as "others"."""
    trace = view.trace
    start = np.asarray(trace.start[rows])
    end = start + trace.duration[rows]
    # Self time inside the op time: what the op covers, less what its child ops cover.
    covered = op_time.measure_before(end) - op_time.measure_before(start)
    is_op = np.zeros(len(trace), dtype=np.bool_)
    is_op[rows] = True
    parent = find_nearest_ancestor(trace.parent, rows, is_op)  # a Python frame may lie between two ops
    is_child = parent >= 0
    self_time = covered.copy()
    np.subtract.at(self_time, np.searchsorted(rows, parent[is_child]), covered[is_child])
    by_name = np.bincount(np.asarray(trace.name[rows]), weights=np.maximum(self_time, 0))
    order = np.argsort(-by_name, kind="stable")[:_MAX_OPS_LISTED]
    parts = [TimePart(trace.names[name], trace.names[name], int(by_name[name])) for name in order if by_name[name]]
    rest = op_time.total - sum(part.time for part in parts)
    return (*parts, TimePart("others", "other ops", rest)) if rest > 0 else tuple(parts)
