"""The pattern of a program without a GPU whose ops wait for CPU cores that other threads or programs hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Severity,
    find_event_places,
    register_pattern,
)
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import NO_CPU, NO_GPU
from torchprof_tui.trace.core.arrays import F64, I32, I64, Bool
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries

_MAX_SHAPES_READ = 24
"""Slow calls, and as many usual ones, whose input shapes are read from the file."""

_PARTS = 4
"""Parts of a recording without steps, of which the first may be a warm-up."""


@dataclass(frozen=True, slots=True)
class SlowCalls:
    """k slow calls of the main thread. `calls` by start; `time`, `excess`: int64[k], ns of self time, and of that the
    part above ten times what is usual.

    `name`: the op with most excess, -1 for none; `median` (ns) of its `count` calls; the `percent` slowest of them take
    `slowest` (ns) or more. `is_recurring`: whether they are spread over the recording and cost enough of it.
    `is_comparable`: whether their inputs are known to be no larger than those of the other calls.
    """

    calls: EventTable
    time: I64
    excess: I64
    name: int = -1
    count: int = 0
    median: int = 0
    percent: int = 0
    slowest: int = 0
    is_recurring: bool = False
    is_comparable: bool = False


def find_slow_calls(tables: TraceTables) -> SlowCalls:
    """Find the calls whose self time is over ten times the median of their op.

    Where all steps make the same number of calls of an op, also over ten times the fastest call at the same position in
    any step: a call that is long in every step has more to do. Ops of which only a few calls are slow are left out.
    """
    trace, steps = tables.trace, tables.steps
    ops = tables.ops.select(tables.is_dispatcher_op[tables.ops.row])
    ops = ops.select(np.flatnonzero(trace.lane[ops.row] == _find_main_lane(tables)))
    step = steps.index_at(ops.start)
    if len(steps):
        ops, step = ops.select(step >= 0), step[step >= 0]
    time = np.asarray(trace.self_duration[ops.row]).astype(np.int64)
    if not len(ops):
        return SlowCalls(ops, time, time)
    count, median = _measure_groups(ops.name, time)
    limit = thresholds.CONTENTION_RATIO.value * median[ops.name]
    fastest, has_position = _find_fastest_at_position(ops.name, step, time, len(steps))
    limit = np.maximum(limit, thresholds.CONTENTION_RATIO.value * fastest)
    is_slow = (time > limit) & (count[ops.name] >= thresholds.CONTENTION_GROUP_MIN.value)
    slow_of_name = np.bincount(ops.name[is_slow], minlength=len(count))
    is_slow &= (slow_of_name >= thresholds.CONTENTION_CALLS_SHARE.value * count)[ops.name]
    if not is_slow.any():
        return SlowCalls(ops.select(is_slow), time[is_slow], time[is_slow])
    excess = (time - limit)[is_slow].astype(np.int64)
    slow = ops.select(is_slow)
    name = int(np.bincount(slow.name, weights=excess).argmax())
    of_name = time[ops.name == name]
    percent = 5 if slow_of_name[name] >= 0.05 * len(of_name) else 3
    is_recurring = _is_recurring(tables, slow, excess)
    has_shapes, is_same = _compare_shapes(trace, ops, is_slow, time, median, excess) if is_recurring else (False, False)
    return SlowCalls(
        slow,
        time[is_slow],
        excess,
        name,
        len(of_name),
        int(median[name]),
        percent,
        int(np.percentile(of_name, 100 - percent)),
        is_recurring and (is_same or not has_shapes),
        has_shapes or 2 * excess[has_position[is_slow]].sum() > excess.sum(),
    )


def _find_main_lane(tables: TraceTables) -> int:
    rows = tables.steps.row if len(tables.steps) else tables.ops.row
    return int(np.bincount(tables.trace.lane[rows]).argmax()) if len(rows) else -1


def _measure_groups(name: I32, time: I64) -> tuple[I64, F64]:
    """Return the number of calls and the median time (ns) by number of the name; 0 for names without calls."""
    order = np.lexsort((time, name))
    names, first, counts = np.unique(name[order], return_index=True, return_counts=True)
    count, median = np.zeros(int(names[-1]) + 1, np.int64), np.zeros(int(names[-1]) + 1, np.float64)
    count[names] = counts
    median[names] = (time[order[first + (counts - 1) // 2]] + time[order[first + counts // 2]]) / 2
    return count, median


def _find_fastest_at_position(name: I32, step: I64, time: I64, steps: int) -> tuple[I64, Bool]:
    """Find the shortest time (ns) of the calls at the same position in all steps: (int64[k], bool[k]: known).

    The position is the number of the call among those of its name in its step. Unknown (0) where steps differ in it.
    """
    fastest, is_known = np.zeros(len(time), np.int64), np.zeros(len(time), np.bool_)
    if steps < 2:
        return fastest, is_known
    order = np.lexsort((step, name))  # stable: in time order within a step
    key = name[order].astype(np.int64) * steps + step[order]
    _, first, back, counts = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    position = np.arange(len(order)) - first[back]
    # Only where every step makes as many calls does the n-th call of one step do what it does in another.
    low, high = np.full(int(name.max()) + 1, len(order) + 1), np.zeros(int(name.max()) + 1, np.int64)
    name_of_key = name[order][first]
    np.minimum.at(low, name_of_key, counts)
    np.maximum.at(high, name_of_key, counts)
    is_equal = (low == high) & (np.bincount(name_of_key, minlength=len(low)) == steps)
    place = np.lexsort((position, name[order]))
    is_new = np.ones(len(place), np.bool_)
    ordered_name, ordered_position = name[order][place], position[place]
    is_new[1:] = (np.diff(ordered_name) != 0) | (np.diff(ordered_position) != 0)
    least = np.minimum.reduceat(time[order][place], np.flatnonzero(is_new))
    rows = order[place]
    is_known[rows] = is_equal[ordered_name]
    fastest[rows] = np.where(is_equal[ordered_name], least[np.cumsum(is_new) - 1], 0)
    return fastest, is_known


def _is_recurring(tables: TraceTables, slow: EventTable, excess: I64) -> bool:
    """Return whether slow calls also cost enough after the first step (without steps: the first quarter)."""
    steps, (first, last) = tables.steps, tables.window
    begin = int(steps.start[1]) if len(steps) > 1 else first + (last - first) // _PARTS
    is_later = slow.start >= begin
    return bool(
        is_later.sum() >= thresholds.CONTENTION_MIN_CALLS.value
        and excess[is_later].sum() >= thresholds.CONTENTION_SHARE.value * max(last - begin, 1)
    )


def _compare_shapes(
    trace: Trace, ops: EventTable, is_slow: Bool, time: I64, median: F64, excess: I64
) -> tuple[bool, bool]:
    """Return whether input shapes were recorded, and whether most of the slowest calls have those of usual calls."""
    slow = np.flatnonzero(is_slow)[np.argsort(-excess, kind="stable")[:_MAX_SHAPES_READ]]
    near = np.flatnonzero(np.isin(ops.name, ops.name[slow]) & ~is_slow & (time <= 2 * median[ops.name]))
    near = near[np.linspace(0, len(near) - 1, min(_MAX_SHAPES_READ, len(near))).astype(np.int64)]
    chosen = np.concatenate([slow, near])
    shapes: dict[int, str] = {}
    try:
        for index, entry in read_entries(trace, ops.row[chosen]):
            args = entry.get("args")
            dims = args.get("Input Dims") if isinstance(args, dict) else None
            if dims:
                shapes[index] = f"{ops.name[chosen[index]]} {dims}"
    except (OSError, LookupError):
        return False, False
    usual = {shape for index, shape in shapes.items() if index >= len(slow)}
    of_slow = [shape for index, shape in shapes.items() if index < len(slow)]
    return bool(of_slow and usual), 2 * sum(shape in usual for shape in of_slow) > len(of_slow)


@register_pattern(
    "Ops wait for CPU cores",
    meaning="the same op with the same work is fast in most calls and very slow in others: its threads wait for cores "
    "that are busy with other threads or programs, or that are not there",
    action="use fewer threads, or run fewer other programs: the cores are shared",
    code="torch.set_num_threads(n)  # or OMP_NUM_THREADS; compare with 1",
    decided="In a trace without GPU activity: self time of an op's calls on the main thread above ten times their "
    "median, and above ten times the fastest call at the same position of another step. Only ops with enough calls and "
    "enough such calls count, and input shapes must be those of other calls, where they were recorded. The time must "
    "reach the limit after the first step as well.",
    thresholds=(
        thresholds.CONTENTION_RATIO,
        thresholds.CONTENTION_GROUP_MIN,
        thresholds.CONTENTION_CALLS_SHARE,
        thresholds.CONTENTION_MIN_CALLS,
        thresholds.CONTENTION_SHARE,
    ),
    severity=Severity.PROBLEM,
)
def cpu_contention(view: ScopeView) -> Answer:
    tables = view.tables
    if len(tables.work):
        return Answer.absent("with a GPU, what ops wait for counts as a cause of its idle time: idle-gap")
    if missing_reason := (NO_GPU if len(tables.calls) else "" if len(tables.ops) else NO_CPU):
        return Answer.cannot_tell(missing_reason)
    found = tables.compute_once(find_slow_calls)
    if not found.is_recurring:
        return Answer.absent()
    in_scope = view.overlap_mask(found.calls.start, found.calls.end)
    calls, excess = found.calls.select(in_scope), found.excess[in_scope]
    lost = min(int(excess.sum()), view.covered_time(calls))
    share = lost / max(view.window_length, 1)
    if share < thresholds.CONTENTION_SHARE.value:
        return Answer.absent(f"slow calls take {format_percent(share)} of this range more than is usual")
    if not found.is_comparable:
        return Answer.cannot_tell(
            "some calls of an op take over ten times its median, but neither input shapes nor steps with the same "
            "calls were recorded: they may have more to do (record_shapes=True)"
        )
    time = min(int(found.time[in_scope].sum()), view.window_length)
    return Answer.fired(
        f"{view.trace.names[found.name]}: median {format_duration(found.median)}, but "
        f"{format_duration(found.slowest)} or more in {found.percent} % of {found.count:,} calls; calls over ten times "
        f"their op's median take {format_percent(time / max(view.window_length, 1))} of {view.window_label}",
        calls.row,
        lost,
        places=find_event_places(view.trace, calls.row, excess),
    )
