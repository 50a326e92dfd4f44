"""One scope of a trace, as the patterns ask about it. Cuts the shared tables; computes nothing over all events."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable, GpuWorkTable, StepTable
from torchprof_tui.analysis.patterns.engine.gpu_gaps import GapFinder, Gaps, IdleReason
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

NO_GPU = "no GPU activity was recorded"
NO_GPU_HERE = "no GPU work in this range"
NO_CPU = "no ops were recorded on the CPU"
NO_CALLS = "no runtime calls were recorded"
NO_STEPS = "no steps were recorded: call prof.step()"
NOTHING_HERE = "nothing was recorded in this range"
NO_LINKS = "no launch could be joined to its GPU work"


class ScopeView:
    """`facts` and `finder` are the trace's own, shared by all views; see `Checker`."""

    def __init__(self, tables: TraceTables, gap_finder: GapFinder, scope: Scope) -> None:
        self.tables = tables
        self.gap_finder = gap_finder
        self.scope = scope

    @property
    def trace(self) -> Trace:
        return self.tables.trace

    def overlap_mask(self, start: I64, end: I64) -> Bool:
        """bool[k]: has a part in the scope; what has no duration where it starts."""
        inside: Bool = (start < self.scope.t1) & (np.maximum(end, start + 1) > self.scope.t0)
        return inside

    def select_in_scope(self, table: EventTable) -> EventTable:
        """The events with a part in the scope."""
        return table if self.scope.is_whole_trace else table.select(self.overlap_mask(table.start, table.end))

    def match_names(self, pattern: str, *kinds: Kind) -> EventTable:
        return self.select_in_scope(self.tables.match_names(pattern, *kinds))

    def covered_time(self, table: EventTable) -> int:
        """ns of the scope that these events cover; overlaps count once, so never more than the scope."""
        return self.clip(union(table.start, table.end)).total

    def clip(self, times: Intervals) -> Intervals:
        return times.clip(self.scope.t0, self.scope.t1)

    def time_in_scope(self, table: EventTable) -> I64:
        """int64[k]: how much of each event lies in the scope."""
        inside: I64 = np.maximum(np.minimum(table.end, self.scope.t1) - np.maximum(table.start, self.scope.t0), 0)
        return inside

    @cached_property
    def work_in_scope(self) -> Bool:
        """bool[all work]: which pieces have a part in the scope."""
        rows = self.tables.work.events
        return self.overlap_mask(rows.start, rows.end)

    @cached_property
    def work(self) -> GpuWorkTable:
        return self.tables.work.select(self.work_in_scope)

    @cached_property
    def work_time(self) -> I64:
        """int64[work]: ns of each piece that lie in the scope."""
        return self.time_in_scope(self.work.events)

    @cached_property
    def ops(self) -> EventTable:
        return self.select_in_scope(self.tables.ops)

    @cached_property
    def calls(self) -> EventTable:
        return self.select_in_scope(self.tables.calls)

    @cached_property
    def inner_op(self) -> I64:
        return self.tables.launching_ops[0][self.work_in_scope]

    @cached_property
    def outer_op(self) -> I64:
        return self.tables.launching_ops[1][self.work_in_scope]

    @cached_property
    def steps(self) -> StepTable:
        """The steps with a part in the scope."""
        steps = self.tables.steps
        inside = self.overlap_mask(steps.start, steps.end)
        return StepTable(steps.row[inside], steps.start[inside], steps.end[inside], steps.number[inside])

    @cached_property
    def window(self) -> tuple[int, int]:
        """The part of the scope in which the program worked; empty (t0 = t1) where it did not."""
        first, last = self.tables.window
        t0, t1 = max(first, self.scope.t0), min(last, self.scope.t1)
        return (t0, t1) if t1 > t0 else (self.scope.t0, self.scope.t0)

    @property
    def window_length(self) -> int:
        return self.window[1] - self.window[0]

    @property
    def window_label(self) -> str:
        """What shares of the window are shares of, in words; a finding's own share is of the whole scope."""
        return "the steps" if len(self.steps) else "the time the program worked"

    @cached_property
    def gaps(self) -> Gaps:
        return self.gap_finder.gaps.clip(*self.window)

    def time_in_window(self, times: dict[int, Intervals]) -> int:
        """ns of the window, summed over devices."""
        return sum(one.measure_between(*self.window) for one in times.values())

    @cached_property
    def device_time(self) -> int:
        """ns of the window, summed over the devices that did any work, without idle time in which the profiler was at
        work: what all shares are shares of, so that no artefact counts as the program's idle time."""
        profiler = int(self.gaps.duration[self.gaps.reason == IdleReason.PROFILER].sum())
        return self.window_length * len(self.tables.devices) - profiler

    def share_of_device_time(self, times: dict[int, Intervals]) -> float:
        """The same as a share of `device_time`."""
        return self.time_in_window(times) / self.device_time if self.device_time > 0 else 0.0

    @cached_property
    def busy_share(self) -> float:
        """Share of the window in which the GPUs worked, 0..1; the profiler's own time left out."""
        return self.share_of_device_time({device: self.tables.busy_intervals(device) for device in self.tables.devices})

    def missing_gpu_reason(self) -> str:
        """Why nothing can be said about GPU work, "" where it can."""
        if not len(self.tables.work):
            return NO_GPU
        return "" if len(self.work) else NO_GPU_HERE

    def missing_window_reason(self) -> str:
        """Why nothing can be said about how busy the GPU is, "" where it can; idle ranges are told too."""
        if not len(self.tables.work):
            return NO_GPU
        return "" if self.window_length else "the program did nothing in this range"

    def missing_ops_reason(self) -> str:
        return "" if len(self.tables.ops) else NO_CPU

    def representative_events(self) -> I64:
        """Events that stand for the whole scope: its steps, else the work, the ops and calls, or the ranges in it."""
        facts = self.tables
        for rows in (self.steps.row, self.work.events.row):
            if len(rows):
                return rows
        for table in (facts.ops_and_calls, facts.annotations):
            rows = self.select_in_scope(table).row
            if len(rows):
                return rows
        return np.empty(0, dtype=np.int64)

    def format_per_step(self, count: int) -> str:
        """ " (3 a step)" where steps are in the scope."""
        steps = len(self.steps)
        if not steps:
            return ""
        each = count / steps
        return f" ({each:,.0f} a step)" if each >= 100 else f" ({each:.3g} a step)"


def us(ns: float) -> str:
    return format_duration(ns)


def format_percent(share: float) -> str:
    return f"{share * 100:.1f} %" if 0 < share < 0.0995 else f"{share * 100:.0f} %"


def format_count(count: int, singular: str, plural: str = "") -> str:
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"
