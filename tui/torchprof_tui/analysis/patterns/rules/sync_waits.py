"""Find the calls that wait for the GPU, and how long the GPU was idle because of each."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import nearest_ancestor
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import I64, sorted_unique
from torchprof_tui.trace.model.event_kind import Kind


def find_waits(view: ScopeView) -> EventTable:
    """Find calls that wait for the GPU on threads that launch: syncs and blocking device-to-host copies."""
    tables = view.tables
    work = tables.work
    copies = work.events.select((work.kind == Kind.COPY) & (work.launch >= 0))
    blocking = tables.filter_by_name(copies, lambda name: "DtoH" in name and "Pageable" in name)
    calls = sorted_unique(view.trace.links.launch_of[blocking.row]).astype(np.int64)
    syncs = tables.select_on_launch_lanes(view.gap_finder.sync_calls)
    if len(syncs) and len(calls):
        # A copy and the sync that follows it in the same op are one wait.
        ops = nearest_ancestor(view.trace, syncs.row)
        calls = calls[~np.isin(nearest_ancestor(view.trace, calls), ops[ops >= 0])]
    return tables.event_table(np.sort(np.concatenate([syncs.row, calls])))


def find_waiting_times(view: ScopeView, waits: EventTable, owner: I64) -> Intervals:
    """Return when the program reads values: during the ops that wait, and between waits in a row without a launch.

    `owner`: the outermost op of each wait, -1 for none.
    """
    tables = view.tables
    ops = tables.event_table(sorted_unique(owner[owner >= 0]))
    in_order = waits.select(np.argsort(waits.start, kind="stable"))
    kernel_launch = tables.work.launch[(tables.work.kind == Kind.KERNEL) & (tables.work.launch >= 0)]
    launch_start = np.sort(np.asarray(view.trace.start[kernel_launch]))
    end, next_start = in_order.end[:-1], in_order.start[1:]
    is_row = launch_start.searchsorted(end) == launch_start.searchsorted(next_start)
    is_row &= (next_start > end) & (next_start - end < thresholds.HOST_PAUSE_MIN.value)
    return union(
        np.concatenate([ops.start, waits.start, end[is_row]]),
        np.concatenate([ops.end, waits.end, next_start[is_row]]),
    )


def find_lost_time(view: ScopeView, waits: EventTable, owner: I64) -> Intervals:
    """Return when the CPU could have gone on, had it not waited.

    That is during the ops that wait (`owner`: the outermost of each wait, -1 for none), as long again after each wait,
    because it delays what follows by its own length, and between two waits in a row without a launch: values that are
    read one by one.
    """
    lost = find_waiting_times(view, waits, owner) | union(waits.start, waits.end + waits.duration)
    return lost - (view.tables.overhead_intervals | view.gap_finder.input_intervals)


def measure_idle_after(view: ScopeView, waits: EventTable, lost_time: Intervals) -> I64:
    """Measure how long a GPU was idle because of each wait: int64[k], ns, of the GPU that was idle longest.

    Each ns belongs to the last wait whose op, or which itself, has begun by then.
    """
    if not len(lost_time):
        return np.zeros(len(waits), dtype=np.int64)
    t0, t1 = view.window
    order = np.argsort(waits.start, kind="stable")
    start = waits.start[order]
    op_start = lost_time.starts[np.maximum(lost_time.starts.searchsorted(start, side="right") - 1, 0)]
    is_after_previous = op_start > np.append(t0 - 1, start[:-1])
    begin = np.where(is_after_previous, np.minimum(op_start, start), start)
    edges = np.maximum.accumulate(np.clip(np.append(begin, t1), t0, t1))
    idle = np.zeros(len(waits), dtype=np.int64)
    for idle_times in view.gap_finder.known_idle_intervals.values():
        idle[order] = np.maximum(idle[order], np.diff((lost_time & idle_times).measure_before(edges)))
    return idle


def measure_idle(view: ScopeView, times: Intervals) -> int:
    """Return the ns of these times in the window in which a GPU was idle for sure; the largest of all devices."""
    in_window = times.clip(*view.window)
    return max(((in_window & idle).total for idle in view.gap_finder.known_idle_intervals.values()), default=0)
