"""When a GPU was idle, and why: what the threads that launch were doing until they launched the next piece of work.

A gap ends with a piece of work. Was that launched (well) before the gap began, it waited for something on the GPU's
side. Else the CPU was late, and what it did between the gap's start and the launch says why. The profiler's own work
comes first, so that no user pays for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.repeated_steps import RepeatedSteps, find_repeated_steps
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals, union
from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool
from torchprof_tui.trace.model.event_kind import Kind

SYNC_CALL_REGEX = r"(cuda|cu|hip|musa)(Stream|Device|Event|Ctx)Synchronize|(cudaMemcpy|hipMemcpy|hipMemcpyWithStream)$"
"""Calls that return only when the GPU is done; the copies without `Async` block as well."""

DATA_LOADER_REGEX = r"enumerate\(DataLoader\)#|.*DataLoader.*__next__"
COMMUNICATION_REGEX = r"nccl:|c10d::|record_param_comms|_c10d_functional::|gloo:"


class IdleReason(IntEnum):
    """Why a GPU was idle. Where two explain as much, the earlier one here is named."""

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
    """k stretches in which a device did nothing, by device, then time. ns.

    A gap in which the profiler was at work is cut there, so that each piece has one reason, an `Idle`. `after`: the
    event of the next piece of work on the device, -1 where none follows.
    """

    start: I64
    end: I64
    device: I64
    next_event: I64
    reason: U8

    def __len__(self) -> int:
        return len(self.start)

    def clip(self, t0: int, t1: int) -> Gaps:
        """Those with a part in the range, cut to it."""
        keep = (self.start < t1) & (self.end > t0)
        return Gaps(
            np.maximum(self.start[keep], t0),
            np.minimum(self.end[keep], t1),
            self.device[keep],
            self.next_event[keep],
            self.reason[keep],
        )

    def reason_label(self, index: int) -> str:
        """The reason of one of them, in a word."""
        return IdleReason(int(self.reason[index])).label

    @property
    def duration(self) -> I64:
        return self.end - self.start

    def time_by_reason(self) -> dict[IdleReason, int]:
        """ns of idle time for each reason that there is."""
        total = np.bincount(self.reason, weights=self.duration, minlength=len(IdleReason))
        return {reason: int(total[reason]) for reason in IdleReason if total[reason]}


@dataclass(frozen=True, slots=True)
class HostActivity:
    """What the launching threads did, as sets that do not overlap: earlier ones take from later ones."""

    profiler: Intervals
    input: Intervals
    sync: Intervals
    communication: Intervals
    dispatch: Intervals


class GapFinder:
    """The gaps of one trace; kept by whoever keeps its `Facts`."""

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
        """Fetching the next batch, on threads that launch."""
        return self.tables.select_on_launch_lanes(self.tables.match_names(DATA_LOADER_REGEX))

    @cached_property
    def input_waits(self) -> EventTable:
        """When the program waited for input: in its data loader; where none was recorded, from the start of a step to
        its first op or call, if that is long. The latter as rows of the steps."""
        if len(self.loader_calls):
            return self.loader_calls
        facts, steps = self.tables, self.tables.steps
        begins = np.sort(facts.select_on_launch_lanes(facts.ops_and_calls).start)
        place = np.minimum(begins.searchsorted(steps.start), max(len(begins) - 1, 0))
        first = begins[place] if len(begins) else steps.end
        until = np.where(first >= steps.start, np.minimum(first, steps.end), steps.end)
        long = until - steps.start >= limits.INPUT_WITHOUT_LOADER_MIN.value
        names = np.asarray(facts.trace.name[steps.row])
        return EventTable(steps.row[long], steps.start[long], until[long], names[long])

    @cached_property
    def input_idle_intervals(self) -> dict[int, Intervals]:
        """device -> when it was idle while the program waited for input, the profiler's own work left out."""
        facts = self.tables
        fetching = union(self.input_waits.start, self.input_waits.end) - facts.overhead_intervals
        return {device: fetching - facts.busy_intervals(device) for device in facts.devices}

    @cached_property
    def host_activity(self) -> HostActivity:
        facts = self.tables
        taken = facts.overhead_intervals

        def remaining(table: EventTable) -> Intervals:
            nonlocal taken
            found = union(table.start, table.end)
            free = found - taken if len(taken) else found
            taken = taken | free
            return free

        loading, syncs = remaining(self.input_waits), remaining(facts.select_on_launch_lanes(self.sync_calls))
        talking = remaining(facts.select_on_launch_lanes(facts.match_names(COMMUNICATION_REGEX)))
        trace = facts.trace
        outermost = []
        for table in (facts.ops, facts.calls):
            parent = trace.parent[table.row]
            above = trace.kind[np.maximum(parent, 0)]
            inside = (parent >= 0) & ((above == Kind.OP) | (above == Kind.RUNTIME))
            outermost.append(table.row[~inside])
        dispatch = remaining(
            facts.select_on_launch_lanes(facts.event_table(np.sort(np.concatenate(outermost), kind="stable")))
        )
        return HostActivity(facts.overhead_intervals, loading, syncs, talking, dispatch)

    @cached_property
    def gaps(self) -> Gaps:
        """All gaps inside the trace's window, on every device that did any work."""
        parts = [self._find_device_gaps(device) for device in self.tables.devices]

        def joined(column: Callable[[Gaps], I64 | U8]) -> I64:
            return np.concatenate([np.empty(0, dtype=np.int64), *(column(part) for part in parts)])

        return Gaps(
            joined(lambda part: part.start),
            joined(lambda part: part.end),
            joined(lambda part: part.device),
            joined(lambda part: part.next_event),
            joined(lambda part: part.reason).astype(np.uint8),
        )

    def _find_device_gaps(self, device: int) -> Gaps:
        facts = self.tables
        window = Intervals(*(np.array([time], dtype=np.int64) for time in facts.window))
        idle = (window if window.total else NO_INTERVALS) - facts.busy_intervals(device)
        ours, theirs = idle - facts.overhead_intervals, idle & facts.overhead_intervals
        work = facts.work.select(facts.work.device == device)
        g0, g1 = np.concatenate([ours.starts, theirs.starts]), np.concatenate([ours.ends, theirs.ends])
        place = work.events.start.searchsorted(g1)
        known = place < len(work)
        place = np.minimum(place, len(work) - 1)
        known &= work.events.start[place] < window.ends[0]
        launch = np.where(known, work.launch[place], -1)
        reason = self._decide_reasons(g0, g1, launch)
        queued = self._queued_mask(g0, launch, place, work.launch)
        collective = known & (work.kind[place] == Kind.COLLECTIVE)
        reason[queued] = np.where(collective[queued], IdleReason.COMMUNICATION, IdleReason.QUEUED)
        reason[len(ours) :] = IdleReason.PROFILER
        order = np.argsort(g0, kind="stable")
        return Gaps(
            g0[order],
            g1[order],
            np.full(len(g0), device, dtype=np.int64),
            np.where(known, work.events.row[place], -1)[order],
            reason[order],
        )

    def _queued_mask(self, g0: I64, launch: I64, place: I64, launches: I32) -> Bool:
        """bool[k]: the launch call had returned long enough before the gap, or the same launch (a graph) went on."""
        facts = self.tables
        linked = launch >= 0
        row = np.maximum(launch, 0)
        returned = facts.trace.start[row] + facts.trace.duration[row]
        same = linked & (place > 0) & (launches[np.maximum(place - 1, 0)] == launch)
        queued: Bool = (linked & (returned <= g0 - int(limits.LAUNCH_LATENCY.value))) | same
        return queued

    def _decide_reasons(self, g0: I64, g1: I64, launch: I64) -> U8:
        """uint8[k]: what the launching threads did most of, from the gap's start to the next launch."""
        host, trace = self.host_activity, self.tables.trace
        called = np.where(launch >= 0, trace.start[np.maximum(launch, 0)], g1)
        until = np.clip(called, g0, g1)

        def spent(on: Intervals) -> I64:
            return on.measure_before(until) - on.measure_before(g0)

        # In the order of `Idle`, so that a row's number is its reason; from the call on, launching takes the time.
        waits = [spent(on) for on in (host.profiler, host.input, host.sync, host.communication, host.dispatch)]
        times = np.stack(waits)
        times[IdleReason.LAUNCH] += g1 - until
        rest = np.maximum(g1 - g0 - times.sum(axis=0), 0)
        reason: U8 = np.vstack([times, rest[None, :]]).argmax(axis=0).astype(np.uint8)
        # The CPU woke from a wait as the GPU ran dry: dispatching again is the wait's price, not the ops'.
        woke = host.sync.measure_before(g0 + 1) - host.sync.measure_before(g0 - 1) > 0
        reason[woke & (reason == IdleReason.LAUNCH)] = IdleReason.SYNC
        return reason
