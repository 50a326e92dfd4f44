"""One scope of a trace, as the patterns query it. Selects from the shared tables; computes nothing over all events."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import TypeVar, cast

import numpy as np

from torchprof_tui.analysis.patterns.engine import undecidable_reasons as reasons
from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.event_tables import (
    EventTable,
    GpuWorkTable,
    StepTable,
    as_slice,
    transfer_sizes,
)
from torchprof_tui.analysis.patterns.engine.gpu_gaps import GapFinder, Gaps
from torchprof_tui.analysis.patterns.engine.idle_causes import DeviceTimeShares, IdleCause
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.throughput.roofline import GpuClassSummary, summarize_classes
from torchprof_tui.analysis.time.intervals import Intervals
from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

T = TypeVar("T")
_OVERLAP_WORTH_A_WORD = 0.05  # of the busy time: below it, shares of the summed time differ by less than a point in 20


class ScopeView:
    """View of one scope. `tables` and `gap_finder` are shared by all views of the trace; see `Checker`."""

    def __init__(
        self,
        tables: TraceTables,
        gap_finder: GapFinder,
        scope: Scope,
        raise_if_cancelled: Callable[[], object] = lambda: None,
    ) -> None:
        self.tables = tables
        self.gap_finder = gap_finder
        self.scope = scope
        self.raise_if_cancelled = raise_if_cancelled
        self._computed: dict[Hashable, object] = {}

    def compute_once(self, compute: Callable[[ScopeView], T]) -> T:
        """Return what a function of this view computes; computed at its first call and kept."""
        if compute not in self._computed:
            self.raise_if_cancelled()
            self._computed[compute] = compute(self)
        return cast("T", self._computed[compute])

    @property
    def trace(self) -> Trace:
        return self.tables.trace

    def overlap_mask(self, start: I64, end: I64) -> Bool:
        """Return whether each overlaps the scope: bool[k]; an event without duration counts as 1 ns."""
        inside: Bool = (start < self.scope.t1) & (np.maximum(end, start + 1) > self.scope.t0)
        return inside

    def select_in_scope(self, table: EventTable) -> EventTable:
        """Select the events that overlap the scope."""
        self.raise_if_cancelled()
        return table if self.scope.is_whole_trace else table.select_overlapping(self.scope.t0, self.scope.t1)

    def match_names(self, pattern: str, *kinds: Kind) -> EventTable:
        return self.select_in_scope(self.tables.match_names(pattern, *kinds))

    def covered_time(self, table: EventTable) -> int:
        """Return the ns of the scope that these events cover; overlaps count once, so at most the scope's length."""
        self.raise_if_cancelled()
        return self.clip(table.intervals).total

    def clip(self, times: Intervals) -> Intervals:
        return times.clip(self.scope.t0, self.scope.t1)

    def time_in_scope(self, table: EventTable) -> I64:
        """Return the ns of each event inside the scope: int64[k]."""
        inside: I64 = np.maximum(np.minimum(table.end, self.scope.t1) - np.maximum(table.start, self.scope.t0), 0)
        return inside

    @cached_property
    def work_in_scope(self) -> I64 | slice:
        """Which pieces of all work overlap the scope: a slice, or their indexes, int64[k]."""
        return as_slice(self.tables.work.events.overlap_index.find(self.scope.t0, self.scope.t1))

    @cached_property
    def work(self) -> GpuWorkTable:
        self.raise_if_cancelled()
        work, inside = self.tables.work, self.work_in_scope
        is_all = isinstance(inside, slice) and inside.stop - inside.start == len(work)
        return work if is_all else work.take(inside)

    @cached_property
    def work_time(self) -> I64:
        """int64[work]: ns of each piece inside the scope."""
        return self.time_in_scope(self.work.events)

    @cached_property
    def does_work_overlap(self) -> bool:
        """Whether GPU work overlaps so much that its summed time is longer than the GPUs were busy."""
        busy = sum(self.clip(times).total for times in self.tables.busy_intervals.values())
        return int(self.work_time.sum()) > (1 + _OVERLAP_WORTH_A_WORD) * busy

    def share_of_gpu_time(self, chosen: Bool) -> float:
        """Return the share of the scope's GPU time that these pieces take, bool[work]: 0..1."""
        return int(self.work_time[chosen].sum()) / max(int(self.work_time.sum()), 1)

    @cached_property
    def gpu_classes(self) -> list[GpuClassSummary]:
        """GPU time of the scope by class of work, with rates and shares of the peaks; most time first."""
        tables = self.tables
        time = np.zeros(len(tables.work), np.int64)
        time[self.work_in_scope] = self.work_time
        sizes = transfer_sizes(self.trace, tables.work.events.row)
        return summarize_classes(tables.work_classes, tables.gpu_pieces, tables.roofline, time, sizes)

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
        """The steps that overlap the scope."""
        steps = self.tables.steps
        return steps.select(self.overlap_mask(steps.start, steps.end))

    @cached_property
    def window(self) -> tuple[int, int]:
        """The part of the scope in which the program worked (ns); empty (t0 = t1) where it did not.

        Of a whole trace without what the GPU still did, when the first step began, of the work from before it.
        """
        first, last = self.tables.window
        if self.scope.is_whole_trace and (self.tables.step_bounds[:1] < last).any():
            first = int(self.tables.step_bounds[0])
        t0, t1 = max(first, self.scope.t0), min(last, self.scope.t1)
        return (t0, t1) if t1 > t0 else (self.scope.t0, self.scope.t0)

    @property
    def window_length(self) -> int:
        return self.window[1] - self.window[0]

    @property
    def window_label(self) -> str:
        """What the window is called in the text of a finding; a finding's own share is of the whole scope."""
        return "the steps" if len(self.steps) else "the time in which the program worked"

    @cached_property
    def gaps(self) -> Gaps:
        self.raise_if_cancelled()
        return self.gap_finder.clip(*self.window)

    def time_in_window(self, times: dict[int, Intervals]) -> int:
        """Return the ns of the window in these intervals, summed over devices."""
        return sum(intervals.measure_between(*self.window) for intervals in times.values())

    @cached_property
    def device_time(self) -> int:
        """ns of the window, summed over the devices that did any work, without the profiler's time.

        Also without the time before the first recorded work if it may not have been idle. The denominator of all
        shares, so that no artefact counts as the program's idle time.
        """
        left_out = self.gaps.time[:, [IdleCause.PROFILER, IdleCause.LEAD_IN]].sum()
        return self.window_length * len(self.tables.devices) - int(left_out)

    @property
    def counted_length(self) -> str:
        """The length of the window as `device_time` counts it, e.g. "75.1 ms without the profiler's own time"."""
        counted = format_duration(self.device_time // max(len(self.tables.devices), 1))
        if counted == format_duration(self.window_length):
            return counted
        by_profiler = self.gaps.time[:, IdleCause.PROFILER].any()
        return f"{counted} without " + ("the profiler's own time" if by_profiler else "the start of the recording")

    def share_of_device_time(self, times: dict[int, Intervals]) -> float:
        """Return the time in these intervals within the window, as a share of `device_time`."""
        return self.time_in_window(times) / self.device_time if self.device_time > 0 else 0.0

    @cached_property
    def shares(self) -> DeviceTimeShares:
        """How `device_time` divides; all 0 where the scope has no window or no GPU."""
        device_time = self.device_time
        if device_time <= 0:
            return DeviceTimeShares(0.0, 0.0, 0.0)
        times = self.gaps.time_by_cause().items()
        left_out = (IdleCause.PROFILER, IdleCause.LEAD_IN)
        idle = {cause: time / device_time for cause, time in times if cause not in left_out}
        exposed = sum(intervals.total for intervals in self.exposed_intervals.values())
        compute = self.share_of_device_time(self.tables.compute_intervals)
        return DeviceTimeShares(self.busy_share, compute, exposed / device_time, idle)

    @cached_property
    def exposed_intervals(self) -> dict[int, Intervals]:
        """device -> when a collective ran in the window while nothing else computed."""
        tables, (t0, t1) = self.tables, self.window
        return {
            device: tables.collective_intervals[device].clip(t0, t1) - tables.compute_intervals[device].clip(t0, t1)
            for device in tables.devices
        }

    @cached_property
    def busy_share(self) -> float:
        """Share of the window in which the GPUs worked, 0..1, without the profiler's own time."""
        return self.share_of_device_time(self.tables.busy_intervals)

    def missing_gpu_reason(self) -> str:
        """Explain why patterns about GPU work are undecidable, "" where they can be decided."""
        if not len(self.tables.work):
            return reasons.NO_GPU
        return "" if len(self.work) else reasons.NO_GPU_HERE

    def missing_work_reason(self) -> str:
        """Explain why patterns of the whole trace's GPU work are undecidable, "" where they can be decided."""
        return "" if len(self.tables.work) else reasons.NO_GPU

    def missing_links_reason(self) -> str:
        """Explain why patterns about launches are undecidable, "" where some GPU work has a known launch."""
        return "" if (self.work.launch >= 0).any() else reasons.NO_LINKS

    def missing_calls_reason(self) -> str:
        """Explain why patterns about runtime calls are undecidable, "" where they can be decided."""
        return "" if len(self.tables.calls) else reasons.NO_CALLS

    def missing_window_reason(self) -> str:
        """Explain why the GPU's busy share is undecidable, "" where it can be measured, in idle ranges too."""
        if not len(self.tables.work):
            return reasons.NO_GPU
        return "" if self.window_length else "no work of the program in this range"

    def missing_ops_reason(self) -> str:
        """Explain why patterns about ops are undecidable, "" where they can be decided."""
        return "" if len(self.tables.ops) else reasons.NO_CPU

    def missing_steps_reason(self) -> str:
        """Explain why patterns about steps are undecidable, "" where the trace has steps that they judge."""
        if len(self.tables.steps):
            return ""
        return reasons.SERVING_STEPS_ONLY if self.tables.trace.steps else reasons.NO_STEPS

    def representative_events(self) -> I64:
        """Return events that represent the scope: its steps, else GPU work, else ops and calls, else annotations."""
        tables = self.tables
        for rows in (self.steps.row, self.work.events.row):
            if len(rows):
                return rows
        for table in (tables.ops_and_calls, tables.annotations):
            rows = self.select_in_scope(table).row
            if len(rows):
                return rows
        return np.empty(0, dtype=np.int64)

    def format_count(self, count: int, singular: str, plural: str = "") -> str:
        """Format a count with what it is per step: "12 calls (3 a step)"."""
        return f"{format_count(count, singular, plural)}{self.format_per_step(count)}"

    def format_per_step(self, count: int) -> str:
        """Format a count per step, " (3 a step)"; "" without steps in the scope."""
        steps = len(self.steps)
        if not steps:
            return ""
        per_step = count / steps
        return f" ({per_step:,.0f} a step)" if per_step >= 100 else f" ({per_step:.3g} a step)"


def format_percent(share: float) -> str:
    """Format a share of 1 as percent, with one decimal below 10 %; "<0.1 %" for what would be rounded to nothing."""
    if 0 < share < 0.0005:
        return "<0.1 %"
    return f"{share * 100:.1f} %" if 0 < share < 0.0995 else f"{share * 100:.0f} %"


def format_count(count: int, singular: str, plural: str = "") -> str:
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"
