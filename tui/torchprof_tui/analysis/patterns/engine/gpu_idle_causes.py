"""Find when each GPU was idle, and why: what the launching threads did until they launched the next piece of work.

Each gap ends with a piece of work. If that was launched well before the gap began, it waited for something on the GPU.
Otherwise the CPU was late, and what it did between the gap's start and the launch is the reason. Time in which the
profiler itself worked is separated first, so that it is never counted as the program's idle time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.repeated_steps import RepeatedSteps, find_repeated_steps
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals, union
from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool
from torchprof_tui.trace.model.event_kind import Kind

SYNC_CALL_REGEX = r"(cuda|cu|hip|musa)(Stream|Device|Event|Ctx)Synchronize|(cudaMemcpy|hipMemcpy|hipMemcpyWithStream)$"
"""Calls that return only when the GPU has finished; copies without `Async` block as well."""

DATA_LOADER_REGEX = r"enumerate\(DataLoader\)#|.*DataLoader.*__next__"
COMMUNICATION_REGEX = r"nccl:|c10d::|record_param_comms|_c10d_functional::|gloo:"


class IdleReason(IntEnum):
    """Why a GPU was idle. If two reasons explain equally much, the earlier member is used."""

    PROFILER = 0
    INPUT = 1
    SYNC = 2
    COMMUNICATION = 3
    LAUNCH = 4
    HOST = 5
    QUEUED = 6

    @property
    def label(self) -> str:
        return _LABELS[self]

    @property
    def explanation(self) -> str:
        return _EXPLANATIONS[self]


_LABELS = {
    IdleReason.PROFILER: "profiler",
    IdleReason.INPUT: "input",
    IdleReason.SYNC: "sync",
    IdleReason.COMMUNICATION: "communication",
    IdleReason.LAUNCH: "launch-bound",
    IdleReason.HOST: "host code",
    IdleReason.QUEUED: "GPU-side wait",
}
_EXPLANATIONS = {
    IdleReason.PROFILER: "the profiler was at work; without it this gap is not there",
    IdleReason.INPUT: "the CPU was fetching the next batch",
    IdleReason.SYNC: "the CPU had waited for the GPU and then had to fill its queue again",
    IdleReason.COMMUNICATION: "the CPU, or the stream, waited for a collective",
    IdleReason.LAUNCH: "the CPU was dispatching ops and launching; the GPU was faster",
    IdleReason.HOST: "the CPU ran code outside any op",
    IdleReason.QUEUED: "the launch had been made: the stream waited for another one, or for the hardware",
}


@dataclass(frozen=True, slots=True)
class Gaps:
    """k gaps in which a device was idle, by device, then time. Times ns.

    A gap that overlaps work of the profiler is split there, so that each part has one `reason` (an `IdleReason`).
    `next_event`: the next piece of work on the device, -1 for none.
    """

    start: I64
    end: I64
    device: I64
    next_event: I64
    reason: U8

    def __len__(self) -> int:
        return len(self.start)

    def clip(self, t0: int, t1: int) -> Gaps:
        """Return the gaps that overlap the range, clipped to it."""
        keep = (self.start < t1) & (self.end > t0)
        return Gaps(
            np.maximum(self.start[keep], t0),
            np.minimum(self.end[keep], t1),
            self.device[keep],
            self.next_event[keep],
            self.reason[keep],
        )

    def reason_label(self, index: int) -> str:
        """Return the label of one gap's reason."""
        return IdleReason(int(self.reason[index])).label

    @property
    def duration(self) -> I64:
        return self.end - self.start

    def time_by_reason(self) -> dict[IdleReason, int]:
        """Sum idle time (ns) by reason; reasons without any are left out."""
        total = np.bincount(self.reason, weights=self.duration, minlength=len(IdleReason))
        return {reason: int(total[reason]) for reason in IdleReason if total[reason]}


@dataclass(frozen=True, slots=True)
class HostActivity:
    """What the launching threads did, as disjoint intervals: time that fits several sets belongs to the earliest."""

    profiler: Intervals
    input: Intervals
    sync: Intervals
    communication: Intervals
    dispatch: Intervals


class GapFinder:
    """Finds the idle gaps of one trace; keep it as long as its `TraceTables`."""

    def __init__(self, tables: TraceTables) -> None:
        self.tables = tables

    @cached_property
    def repeated_steps(self) -> RepeatedSteps:
        """Steps that launched the same work."""
        return find_repeated_steps(self.tables)

    @cached_property
    def sync_calls(self) -> EventTable:
        """Calls that wait for the GPU, on any thread."""
        return self.tables.match_names(SYNC_CALL_REGEX, Kind.RUNTIME)

    @cached_property
    def loader_calls(self) -> EventTable:
        """Data loader calls that fetch the next batch, on threads that launch."""
        return self.tables.select_on_launch_lanes(self.tables.match_names(DATA_LOADER_REGEX))

    @cached_property
    def input_waits(self) -> EventTable:
        """Times in which the program waited for input: its data loader calls.

        Without recorded loader calls: from a step's start to its first op or runtime call, if that is long (as rows of
        the steps).
        """
        if len(self.loader_calls):
            return self.loader_calls
        tables, steps = self.tables, self.tables.steps
        activity_start = np.sort(tables.select_on_launch_lanes(tables.ops_and_calls).start)
        index = np.minimum(activity_start.searchsorted(steps.start), max(len(activity_start) - 1, 0))
        first_activity = activity_start[index] if len(activity_start) else steps.end
        wait_end = np.where(first_activity >= steps.start, np.minimum(first_activity, steps.end), steps.end)
        is_long = wait_end - steps.start >= thresholds.INPUT_WITHOUT_LOADER_MIN.value
        names = np.asarray(tables.trace.name[steps.row])
        return EventTable(steps.row[is_long], steps.start[is_long], wait_end[is_long], names[is_long])

    @cached_property
    def input_idle_intervals(self) -> dict[int, Intervals]:
        """device -> when it was idle while the program waited for input, without profiler overhead."""
        tables = self.tables
        fetching = union(self.input_waits.start, self.input_waits.end) - tables.overhead_intervals
        return {device: fetching - tables.busy_intervals(device) for device in tables.devices}

    @cached_property
    def host_activity(self) -> HostActivity:
        tables = self.tables
        assigned = tables.overhead_intervals

        def take_remaining(table: EventTable) -> Intervals:
            nonlocal assigned
            covered = union(table.start, table.end)
            remaining = covered - assigned if len(assigned) else covered
            assigned = assigned | remaining
            return remaining

        input_intervals, sync_intervals = (
            take_remaining(self.input_waits),
            take_remaining(tables.select_on_launch_lanes(self.sync_calls)),
        )
        communication = take_remaining(tables.select_on_launch_lanes(tables.match_names(COMMUNICATION_REGEX)))
        trace = tables.trace
        outermost_rows = []
        for table in (tables.ops, tables.calls):
            parent = trace.parent[table.row]
            parent_kind = trace.kind[np.maximum(parent, 0)]
            is_nested = (parent >= 0) & ((parent_kind == Kind.OP) | (parent_kind == Kind.RUNTIME))
            outermost_rows.append(table.row[~is_nested])
        dispatch = take_remaining(
            tables.select_on_launch_lanes(tables.event_table(np.sort(np.concatenate(outermost_rows), kind="stable")))
        )
        return HostActivity(tables.overhead_intervals, input_intervals, sync_intervals, communication, dispatch)

    @cached_property
    def gaps(self) -> Gaps:
        """All gaps inside the trace's window, on every device that did any work."""
        parts = [self._find_device_gaps(device) for device in self.tables.devices]

        def concatenate(column: Callable[[Gaps], I64 | U8]) -> I64:
            return np.concatenate([np.empty(0, dtype=np.int64), *(column(part) for part in parts)])

        return Gaps(
            concatenate(lambda part: part.start),
            concatenate(lambda part: part.end),
            concatenate(lambda part: part.device),
            concatenate(lambda part: part.next_event),
            concatenate(lambda part: part.reason).astype(np.uint8),
        )

    def _find_device_gaps(self, device: int) -> Gaps:
        tables = self.tables
        window = Intervals(*(np.array([time], dtype=np.int64) for time in tables.window))
        idle = (window if window.total else NO_INTERVALS) - tables.busy_intervals(device)
        program_idle, profiler_idle = idle - tables.overhead_intervals, idle & tables.overhead_intervals
        work = tables.work.select(tables.work.device == device)
        gap_start, gap_end = (
            np.concatenate([program_idle.starts, profiler_idle.starts]),
            np.concatenate([program_idle.ends, profiler_idle.ends]),
        )
        next_index = work.events.start.searchsorted(gap_end)
        has_next = next_index < len(work)
        next_index = np.minimum(next_index, len(work) - 1)
        has_next &= work.events.start[next_index] < window.ends[0]
        launch = np.where(has_next, work.launch[next_index], -1)
        reason = self._decide_reasons(gap_start, gap_end, launch)
        is_queued = self._queued_mask(gap_start, launch, next_index, work.launch)
        is_collective = has_next & (work.kind[next_index] == Kind.COLLECTIVE)
        reason[is_queued] = np.where(is_collective[is_queued], IdleReason.COMMUNICATION, IdleReason.QUEUED)
        reason[len(program_idle) :] = IdleReason.PROFILER
        order = np.argsort(gap_start, kind="stable")
        return Gaps(
            gap_start[order],
            gap_end[order],
            np.full(len(gap_start), device, dtype=np.int64),
            np.where(has_next, work.events.row[next_index], -1)[order],
            reason[order],
        )

    def _queued_mask(self, gap_start: I64, launch: I64, next_index: I64, launches: I32) -> Bool:
        """Return whether the next piece of work was already queued when the gap began: bool[k].

        Either its launch call had returned long enough before the gap, or the same launch (a graph) started the work
        before the gap as well.
        """
        tables = self.tables
        has_launch = launch >= 0
        launch_row = np.maximum(launch, 0)
        launch_end = tables.trace.start[launch_row] + tables.trace.duration[launch_row]
        same_launch = has_launch & (next_index > 0) & (launches[np.maximum(next_index - 1, 0)] == launch)
        queued: Bool = (has_launch & (launch_end <= gap_start - int(thresholds.LAUNCH_LATENCY.value))) | same_launch
        return queued

    def _decide_reasons(self, gap_start: I64, gap_end: I64, launch: I64) -> U8:
        """Decide what the launching threads did most, from the gap's start to the next launch: uint8[k]."""
        host, trace = self.host_activity, self.tables.trace
        launch_start = np.where(launch >= 0, trace.start[np.maximum(launch, 0)], gap_end)
        host_end = np.clip(launch_start, gap_start, gap_end)

        def measure_time(intervals: Intervals) -> I64:
            return intervals.measure_before(host_end) - intervals.measure_before(gap_start)

        # Rows in the order of `IdleReason`, so that the index is the reason; time from the launch call on is launching.
        time_by_activity = [
            measure_time(intervals)
            for intervals in (host.profiler, host.input, host.sync, host.communication, host.dispatch)
        ]
        times = np.stack(time_by_activity)
        times[IdleReason.LAUNCH] += gap_end - host_end
        unexplained = np.maximum(gap_end - gap_start - times.sum(axis=0), 0)
        reason: U8 = np.vstack([times, unexplained[None, :]]).argmax(axis=0).astype(np.uint8)
        # The CPU returned from a wait when the GPU ran dry: dispatching again is a cost of the sync, not of the ops.
        woke_from_sync = host.sync.measure_before(gap_start + 1) - host.sync.measure_before(gap_start - 1) > 0
        reason[woke_from_sync & (reason == IdleReason.LAUNCH)] = IdleReason.SYNC
        return reason
