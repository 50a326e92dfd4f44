"""Find the thread that a program runs on, and when it was outside ops, loader calls and communication."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.host_activity import COMMUNICATION_REGEX, DATA_LOADER_REGEX
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.time.intervals import Intervals


@dataclass(frozen=True, slots=True)
class MainThread:
    """The lane that the program runs on, and the rows [first, last) of its events in the trace."""

    lane: int
    first: int
    last: int

    def select(self, table: EventTable) -> EventTable:
        """Select the events on it."""
        return table.select((table.row >= self.first) & (table.row < self.last))


def find_main_thread(view: ScopeView) -> MainThread | None:
    """Find the lane of the steps, else the one with most ops in the scope; None without ops."""
    trace = view.trace
    ops = view.ops.row if len(view.ops) else view.tables.ops.row
    rows = view.steps.row if len(view.steps) else ops
    if not len(ops):
        return None
    lane_number = int(np.bincount(trace.lane[rows]).argmax())
    lane = trace.lanes[lane_number]
    return MainThread(lane_number, lane.first, lane.last)


def find_main_window(view: ScopeView, main: MainThread) -> tuple[int, int]:
    """Find when the main thread worked (ns): in the steps; without any from its first op or annotation to its last."""
    t0, t1 = view.window
    if len(view.tables.steps):
        return t0, t1
    ranges = main.select(view.select_in_scope(view.tables.annotations))
    if len(ranges):
        t0, t1 = min(t0, int(ranges.start.min())), max(t1, int(ranges.end.max()))
    return max(t0, view.scope.t0), min(t1, view.scope.t1)


def find_host_intervals(view: ScopeView, main: MainThread) -> Intervals:
    """Find when the main thread was outside ops, loader calls, communication and the profiler's own work."""
    t0, t1 = find_main_window(view, main)
    tables, host = view.tables, Intervals(np.array([t0], dtype=np.int64), np.array([t1], dtype=np.int64))
    for table in (tables.ops, tables.match_names(DATA_LOADER_REGEX), tables.match_names(COMMUNICATION_REGEX)):
        host = host - main.select(table).intervals.clip(t0, t1)
    return host - tables.overhead_intervals.clip(t0, t1)
