"""Find when each GPU was idle, and why: piece by piece, by what the CPU did until it launched the next work.

Each gap ends with a piece of work, and the call that launched it divides the gap:

    |-- before the launch call --|-- during the call --|-- after it had returned --|
      what the thread did           launch, or a cold     queued: the GPU, the driver or
      (`host_activity`)             or blocking call      another stream held the work

The pieces of a gap sum to it exactly. Time in which the profiler itself worked is separated first, so that it is never
counted as the program's idle time. Before the first recorded work of a device nothing may be known: see `LEAD_IN`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import GpuWorkTable
from torchprof_tui.analysis.patterns.engine.host_activity import ACTIVITY_CAUSES, HostActivities, ThreadActivity
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals, union, unite
from torchprof_tui.trace.core.arrays import F64, I64, NONE, U8, Bool, is_in
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind


@record
class RepeatedSteps:
    """s steps of k pieces of work each, on the device with most work.

    Pieces are ordered by stream, then start: the order between streams varies from step to step, the order within one
    stream does not. `steps` int64[s]: indices into `TraceTables.steps`; `events` int64[s, k]; `gap_start` and `gap_end`
    int64[s, k] ns: the gap before each piece in which the device was idle, empty before a step's first piece;
    `previous_event` int64[s, k]: the event that ended last before it, -1 for none.
    """

    steps: I64
    events: I64
    gap_start: I64
    gap_end: I64
    previous_event: I64


def find_repeated_steps(tables: TraceTables) -> RepeatedSteps:
    """Find the largest set of steps whose streams run the same names in the same order."""
    work, step = tables.work, tables.launch_step
    if not (step != NONE).any():
        return _no_steps()
    device = np.bincount(np.searchsorted(tables.devices, work.device)).argmax()
    on_device = np.flatnonzero(work.device == tables.devices[int(device)])
    step = step[on_device]
    start, end = work.events.start[on_device], work.events.end[on_device]
    # Earlier work of any stream and step counts: a gap is time that none of it covers.
    latest_end = np.maximum.accumulate(end)
    latest_index = np.maximum.accumulate(np.where(end == latest_end, np.arange(len(end)), 0))
    gap_start = np.minimum(np.append(start[:1], latest_end[:-1]), start)
    previous_event = np.append(NONE, work.events.row[on_device[latest_index[:-1]]])
    # Work is sorted by start, so the first index of each step is its first piece in time.
    first_in_step = np.unique(step, return_index=True)[1]
    gap_start[first_in_step] = start[first_in_step]

    in_step = np.flatnonzero(step != NONE)
    if not len(in_step):
        return _no_steps()  # the steps launched work on other devices only
    order = in_step[np.lexsort((start[in_step], work.lane[on_device][in_step], step[in_step]))]
    work_by_step = np.split(order, np.flatnonzero(np.diff(step[order])) + 1)
    steps_by_work: dict[bytes, list[int]] = {}
    for step_index, work_indices in enumerate(work_by_step):
        key = np.stack([work.events.name[on_device[work_indices]], work.lane[on_device[work_indices]]]).tobytes()
        steps_by_work.setdefault(key, []).append(step_index)
    positions = np.stack([work_by_step[step_index] for step_index in max(steps_by_work.values(), key=len)])
    return RepeatedSteps(
        step[positions[:, 0]],
        work.events.row[on_device[positions]],
        gap_start[positions],
        start[positions],
        previous_event[positions],
    )


def _no_steps() -> RepeatedSteps:
    empty = np.empty((0, 0), dtype=np.int64)
    return RepeatedSteps(np.empty(0, dtype=np.int64), empty, empty, empty, empty)


def find_one_off_gaps(repeats: RepeatedSteps) -> tuple[I64, I64, F64]:
    """Find gaps between two pieces of work of one step that no other step has at that position. Needs three steps.

    Each is before the work at `position` of the repeated step `step`: (step, position, float64[m] ns: the median of the
    other steps at that position), indices int64[m].
    """
    gap = repeats.gap_end - repeats.gap_start
    if not gap.size:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, np.empty(0)
    ordered = np.sort(gap, axis=0)
    step_count = len(gap)
    # The median of the other steps: the longest gap is left out.
    other_gaps = ordered[:-1]
    median_of_others = (other_gaps[(step_count - 2) // 2] + other_gaps[(step_count - 1) // 2]) / 2
    longest = gap.argmax(axis=0)
    limit = np.maximum(thresholds.ONE_OFF_RATIO.value * median_of_others, thresholds.ONE_OFF_MIN.value)
    position = np.flatnonzero((ordered[-1] >= limit) & (ordered[-2] < limit))
    return longest[position], position, median_of_others[position]


_CAUSE_COUNT = len(IdleCause)
_EARLY_SHARE = 0.1
"""Of a gap: how much may lie before it since the recording began, and how much of it may have another cause."""

_LONG_AGO, _NEVER = np.iinfo(np.int64).min // 4, np.iinfo(np.int64).max // 4


@record
class Gaps:
    """k gaps in which a device was idle, by device, then time. Times ns.

    A gap that overlaps work of the profiler is split there. `next_event`: the next piece of work on the device, -1 for
    none. `time`: int64[k, len(IdleCause)], the gap by cause; each row sums to the gap. `cause`: the one with most.
    The gap is cut by `call_start` and `call_end`, the call that launched the next work (clipped to the gap by whoever
    measures); `call_cause`: the cause of the time during the call; `late_cause`: after it; `thread`: whose activity
    explains the time before it.
    """

    start: I64
    end: I64
    device: I64
    next_event: I64
    call_start: I64
    call_end: I64
    call_cause: U8
    late_cause: U8
    thread: I64
    is_profiler: Bool
    time: I64

    def __len__(self) -> int:
        return len(self.start)

    def select(self, keep: Bool | I64) -> Gaps:
        indexes = np.flatnonzero(keep) if keep.dtype == np.bool_ else keep
        return Gaps(*(getattr(self, column.name)[indexes] for column in fields(self)))

    @property
    def cause(self) -> U8:
        """The cause that explains most of each gap: uint8[k]."""
        cause: U8 = self.time.argmax(axis=1).astype(np.uint8)
        return cause

    def cause_label(self, index: int) -> str:
        """Return the label of the cause that explains most of one gap."""
        return IdleCause(int(self.time[index].argmax())).label

    @property
    def duration(self) -> I64:
        return self.end - self.start

    @property
    def program_time(self) -> I64:
        """ns of each gap that the program can save, so no profiler, queues or unknown time: int64[k]."""
        won: I64 = self.duration - self.time[:, _NOT_THE_PROGRAM].sum(axis=1)
        return won

    def program_time_by_cause(self, keep: Bool | I64 | None = None) -> dict[IdleCause, int]:
        """Sum `program_time` (ns) by cause, of some gaps if given; causes without any are left out."""
        return {cause: time for cause, time in self.time_by_cause(keep).items() if cause not in _NOT_THE_PROGRAM}

    def time_by_cause(self, keep: Bool | I64 | None = None) -> dict[IdleCause, int]:
        """Sum idle time (ns) by cause, of some gaps if given; causes without any are left out."""
        total = (self.time if keep is None else self.time[keep]).sum(axis=0)
        return {cause: int(total[cause]) for cause in IdleCause if total[cause]}


_NOT_THE_PROGRAM = [int(IdleCause.PROFILER), int(IdleCause.QUEUED), int(IdleCause.UNKNOWN), int(IdleCause.LEAD_IN)]


class GapFinder(HostActivities):
    """Finds the idle gaps of one trace; keep it as long as its `TraceTables`."""

    def __init__(self, tables: TraceTables) -> None:
        super().__init__(tables)
        self._cause_intervals: dict[tuple[IdleCause, int], Intervals] = {}

    @cached_property
    def repeated_steps(self) -> RepeatedSteps:
        """Steps that launched the same work."""
        return find_repeated_steps(self.tables)

    @cached_property
    def input_intervals(self) -> Intervals:
        """When the program waited for input, without the profiler's own work."""
        return self.input_waits.intervals - self.tables.overhead_intervals

    @cached_property
    def input_idle_intervals(self) -> dict[int, Intervals]:
        """device -> when it was idle while the program waited for input, without profiler overhead."""
        tables = self.tables
        return {device: self.input_intervals & self.known_idle_intervals[device] for device in tables.devices}

    @cached_property
    def known_idle_intervals(self) -> dict[int, Intervals]:
        """device -> when it was idle, as far as that is known: not before its first recorded work where that is not."""
        gaps = self.gaps
        is_known = ~gaps.is_profiler & (gaps.time[:, IdleCause.LEAD_IN] == 0)
        of_device = {device: np.flatnonzero(is_known & (gaps.device == device)) for device in self.tables.devices}
        return {device: union(gaps.start[indexes], gaps.end[indexes]) for device, indexes in of_device.items()}

    @cached_property
    def gaps(self) -> Gaps:
        """All gaps inside the trace's window, on every device that did any work."""
        parts = [self._find_device_gaps(device) for device in self.tables.devices]
        if not parts:
            nothing, flags = np.empty(0, np.int64), np.empty(0, np.uint8)
            time = np.empty((0, _CAUSE_COUNT), np.int64)
            return Gaps(*(nothing,) * 6, flags, flags, nothing, np.empty(0, np.bool_), time)
        columns = [np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(Gaps)]
        return Gaps(*columns)

    def clip(self, t0: int, t1: int) -> Gaps:
        """Return the gaps that overlap the range, clipped to it; pieces that it cuts are measured again."""
        gaps = self.gaps
        keep = (gaps.start < t1) & (gaps.end > t0)
        if not keep.all():
            gaps = gaps.select(keep)
        is_cut = np.flatnonzero((gaps.start < t0) | (gaps.end > t1))
        if not len(is_cut):
            return gaps
        start, end, time = np.maximum(gaps.start, t0), np.minimum(gaps.end, t1), gaps.time.copy()
        clipped = replace(gaps, start=start, end=end, time=time)
        time[is_cut] = self._measure_pieces(clipped.select(is_cut))
        return clipped

    def find_cause_intervals(self, cause: IdleCause, device: int) -> Intervals:
        """List when a device was idle for one cause, in the whole trace; computed once for each cause and device."""
        if (cause, device) not in self._cause_intervals:
            self._cause_intervals[cause, device] = self.list_cause_intervals(self.gaps, cause, device)
        return self._cause_intervals[cause, device]

    def list_cause_intervals(self, gaps: Gaps, cause: IdleCause, device: int) -> Intervals:
        """List when a device was idle for one cause in these gaps; they sum to that column of `Gaps.time`."""
        kept = np.flatnonzero((gaps.device == device) & (gaps.time[:, cause] > 0))
        start, end, thread = gaps.start[kept], gaps.end[kept], gaps.thread[kept]
        if cause is IdleCause.PROFILER:
            return union(start, end)
        call_start, call_end = np.clip(gaps.call_start[kept], start, end), np.clip(gaps.call_end[kept], start, end)
        in_call, late = gaps.call_cause[kept] == cause, gaps.late_cause[kept] == cause
        found = union(
            np.concatenate([call_start[in_call], call_end[late]]), np.concatenate([call_end[in_call], end[late]])
        )
        if cause not in ACTIVITY_CAUSES and cause is not IdleCause.HOST:
            return found
        parts = [found]
        for number, activity in enumerate(self.threads[1]):
            of_thread = thread == number
            before = union(start[of_thread], call_start[of_thread])
            if not len(before):
                continue
            t0, t1 = int(before.starts[0]), int(before.ends[-1])
            if cause is IdleCause.HOST:
                for part in activity:
                    before = before - part.clip(t0, t1)
                parts.append(before)
            else:
                parts.append(before & activity[ACTIVITY_CAUSES.index(cause)].clip(t0, t1))
        return unite(parts)

    def _find_device_gaps(self, device: int) -> Gaps:
        tables = self.tables
        window = Intervals(*(np.array([time], dtype=np.int64) for time in tables.window))
        idle = (window if window.total else NO_INTERVALS) - tables.busy_intervals[device]
        program_idle, profiler_idle = idle - tables.overhead_intervals, idle & tables.overhead_intervals
        work = tables.work if len(tables.devices) == 1 else tables.work.select(tables.work.device == device)
        start = np.concatenate([program_idle.starts, profiler_idle.starts])
        end = np.concatenate([program_idle.ends, profiler_idle.ends])
        is_profiler = np.arange(len(start)) >= len(program_idle)
        order = np.argsort(start, kind="stable")
        start, end, is_profiler = start[order], end[order], is_profiler[order]

        next_index = work.events.start.searchsorted(end)
        has_next = next_index < len(work)
        next_index = np.minimum(next_index, len(work) - 1)
        launch = np.where(has_next, work.call[next_index], NONE).astype(np.int64)
        gaps = self._divide_at_calls(start, end, launch, has_next, next_index, work)
        is_unknown = ~has_next | (launch == NONE)
        is_lead_in = self._mark_lead_in(start, work)
        gaps.late_cause[is_unknown] = IdleCause.UNKNOWN
        gaps.late_cause[is_lead_in | self._mark_early_waits(gaps)] = IdleCause.LEAD_IN
        gaps.call_start[is_unknown | is_lead_in] = gaps.call_end[is_unknown | is_lead_in] = _LONG_AGO
        gaps.device[:] = device
        gaps.is_profiler[:] = is_profiler
        gaps.time[:] = self._measure_pieces(gaps)
        return gaps

    def _divide_at_calls(
        self, start: I64, end: I64, launch: I64, has_next: Bool, next_index: I64, work: GpuWorkTable
    ) -> Gaps:
        """Divide gaps at the calls that launched the next work; their `time` is still 0."""
        trace = self.tables.trace
        has_launch = launch != NONE
        # Without a next piece the threads' activity explains all of the gap.
        call_start = np.where(has_launch, trace.start[launch], _NEVER)
        call_end = np.where(has_launch, trace.start[launch] + trace.duration[launch], _NEVER)
        # Work of the launch that the work before the gap came from (a graph) was launched long ago. Not so on Ascend,
        # where the call of an op hands its kernels over one by one.
        is_same_launch = has_launch & (next_index > 0) & (work.call[next_index - 1] == launch)
        is_same_launch &= work.launch[next_index] == launch
        call_start[is_same_launch] = call_end[is_same_launch] = _LONG_AGO

        call_cause = np.full(len(start), IdleCause.LAUNCH, dtype=np.uint8)
        waits = np.concatenate([self.sync_calls.row, self.blocking_copies.row])
        call_cause[is_in(launch, self.cold_calls.row)] = IdleCause.COLD_CALL
        call_cause[is_in(launch, waits)] = IdleCause.SYNC
        is_collective = has_next & (work.kind[next_index] == Kind.COLLECTIVE)
        late_cause = np.where(is_collective, IdleCause.COMMUNICATION, IdleCause.QUEUED).astype(np.uint8)
        lane = np.where(has_launch, trace.lane[launch], NONE)
        thread = np.where(has_launch, self.threads[0][lane], 0)
        count = len(start)
        return Gaps(
            start=start,
            end=end,
            device=np.zeros(count, dtype=np.int64),
            next_event=np.where(has_next, work.events.row[next_index], NONE),
            call_start=call_start,
            call_end=call_end,
            call_cause=call_cause,
            late_cause=late_cause,
            thread=thread,
            is_profiler=np.zeros(count, dtype=np.bool_),
            time=np.zeros((count, _CAUSE_COUNT), dtype=np.int64, order="F"),
        )

    def _mark_lead_in(self, start: I64, work: GpuWorkTable) -> Bool:
        """Return the gaps before the first recorded work of which it is not known whether the GPU was idle: bool[k].

        So it is where that work has no recorded launch, or was launched before the window, or long before it began:
        something else may have run.
        """
        if not len(work):
            return np.zeros(len(start), dtype=np.bool_)
        trace, launch, first_start = self.tables.trace, int(work.call[0]), int(work.events.start[0])
        is_before: Bool = start < first_start
        launch_start = int(trace.start[launch]) if launch != NONE else _LONG_AGO
        launch_end = launch_start + (int(trace.duration[launch]) if launch != NONE else 0)
        is_prompt = first_start - launch_end <= thresholds.PROMPT_START.value
        return is_before & (launch_start < self.tables.window[0] or not is_prompt)

    def _mark_early_waits(self, gaps: Gaps) -> Bool:
        """Return the gaps at the start in which launched work and the CPU both wait for the GPU: bool[k].

        No recorded work runs, the next work is launched already, and a call that waits for the GPU covers the gap: work
        from before the recording must have run.
        """
        is_early = gaps.start - self.tables.window[0] <= _EARLY_SHARE * gaps.duration
        is_queued = np.clip(gaps.call_end, gaps.start, gaps.end) - gaps.start <= _EARLY_SHARE * gaps.duration
        marked: Bool = is_early & is_queued & (gaps.late_cause == IdleCause.QUEUED)
        marked &= gaps.duration > thresholds.PROMPT_START.value
        waits = self.sync_calls.intervals | self.blocking_copies.intervals
        covered = waits.measure_within(gaps.start[marked], gaps.end[marked])
        marked[marked] = covered >= (1 - _EARLY_SHARE) * gaps.duration[marked]
        return marked

    def _measure_pieces(self, gaps: Gaps) -> I64:
        """Measure the pieces of gaps by cause (ns): int64[k, len(IdleCause)]; each row sums to its gap."""
        time = np.zeros((len(gaps), _CAUSE_COUNT), dtype=np.int64, order="F")
        rows = np.arange(len(gaps))
        call_start = np.clip(gaps.call_start, gaps.start, gaps.end)
        call_end = np.clip(gaps.call_end, gaps.start, gaps.end)
        for number, activity in enumerate(self.threads[1]):
            of_thread = np.flatnonzero(gaps.thread == number)
            if len(of_thread) == len(gaps):
                time = _measure_activity(activity, gaps.start, call_start)
            elif len(of_thread):
                time[of_thread] = _measure_activity(activity, gaps.start[of_thread], call_start[of_thread])
        time[rows, gaps.call_cause] += call_end - call_start
        time[rows, gaps.late_cause] += gaps.end - call_end
        time[gaps.is_profiler] = 0
        time[gaps.is_profiler, IdleCause.PROFILER] = gaps.duration[gaps.is_profiler]
        return time


def _measure_activity(activity: ThreadActivity, start: I64, end: I64) -> I64:
    """Measure what a thread did in each range (ns), the rest as host code: int64[k, len(IdleCause)]."""
    time = np.zeros((len(start), _CAUSE_COUNT), dtype=np.int64, order="F")
    for cause, intervals in zip(ACTIVITY_CAUSES, activity, strict=True):
        time[:, cause] = intervals.measure_within(start, end)
    time[:, IdleCause.HOST] = end - start - time.sum(axis=1)
    return time
