"""What the launching threads did, as sets of time: input, blocking calls, collectives, cold calls, CPU work, dispatch.

Idle time of a GPU is attributed to what the thread did that launched the next piece of work. Where that thread was
outside any op, the other launching threads count: autograd runs the backward pass on a thread of its own.
"""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.kernel.names.copies import is_pinned
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.practices import COMPILE_WORK_REGEX
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.time.host_stalls import SYNC_CALL_REGEX
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals, union, unite
from torchprof_tui.trace.core.arrays import I64, NONE, Bool, find_median, is_in, sorted_unique
from torchprof_tui.trace.model.event_kind import Kind

OP_COMPILATION_REGEX = r"(AscendCL@)?(aclopCompile|opCompile)"
"""Calls of CANN that compile an operator, or look it up among the compiled ones, and may run it (`…AndExecute`)."""

DATA_LOADER_REGEX = r"enumerate\(DataLoader\)#|.*DataLoader.*__next__"
COMMUNICATION_REGEX = r"nccl:|c10d::|record_param_comms|_c10d_functional::|gloo:"

_NO_COMPUTATION_REGEX = (
    r"aten::(new_)?empty|aten::(detach|t|transpose|permute|view\w*|_\w*view|reshape|expand\w*|as_strided|slice|select|narrow"
    r"|(un)?flatten|split\w*|chunk|unbind|(un)?squeeze|alias|item|_local_scalar_dense|resize|set|lift_fresh)_?$"
)
"""Ops that allocate, or only make a view: if one is long, it was held up."""

MAX_THREADS = 8  # launching threads that are told apart, those with most launches; the others count as one

ALLOCATION_CALL_REGEX = r"(cuda|hip)(Malloc|Free)$|cuMem(Alloc|Free)(_v2)?$|cuMem(Create|Release|Map|Unmap)$"
"""Calls that allocate memory from the driver or free it; pool allocations (…Async) are cheap."""

_LOADING_CALL = re.compile(rf"{ALLOCATION_CALL_REGEX}|(cuda|hip|cu)(Module|Library|Host(Alloc|Register))")
_MIN_CALLS = 3
_FIRST_CALL_RATIO = 5
"""A cold call takes at least this many times the median of its name: a call that is always slow is not cold."""


ACTIVITY_CAUSES = (
    IdleCause.INPUT,
    IdleCause.SYNC,
    IdleCause.COMMUNICATION,
    IdleCause.COLD_CALL,
    IdleCause.CPU_COMPUTE,
    IdleCause.DISPATCH,
)
"""What a thread does that may leave a GPU idle; time that fits several belongs to the earliest."""

ThreadActivity = tuple[Intervals, ...]
"""What one thread did, as disjoint sets of time in the order of `ACTIVITY_CAUSES`. Outside of them: host code."""


class HostActivities:
    """Finds what each launching thread of a trace did; keep it as long as its `TraceTables`."""

    def __init__(self, tables: TraceTables) -> None:
        self.tables = tables

    @cached_property
    def sync_calls(self) -> EventTable:
        """Calls that wait for the GPU, on any thread."""
        return self.tables.match_names(SYNC_CALL_REGEX, Kind.RUNTIME)

    @cached_property
    def blocking_copies(self) -> EventTable:
        """Calls that copy asynchronously by name, but returned only when the copy had ended: pageable memory.

        An asynchronous call never waits for a copy of pinned memory: where a short one ended before its call, that is
        chance.
        """
        work, names = self.tables.work, self.tables.trace.names
        copies = work.select((work.kind == Kind.COPY) & (work.launch != NONE))
        calls = self.tables.event_table(copies.launch.astype(np.int64))
        has_waited = (calls.end >= copies.events.end) & (calls.start <= copies.events.start)
        pinned = [name for name in sorted_unique(copies.events.name).tolist() if is_pinned(names[name])]
        asynchronous = [name for name in sorted_unique(calls.name).tolist() if "Async" in names[name]]
        has_waited &= ~(is_in(copies.events.name, pinned) & is_in(calls.name, asynchronous))
        return self.tables.event_table(sorted_unique(calls.row[has_waited]))

    @cached_property
    def loader_calls(self) -> EventTable:
        """Data loader calls that fetch the next batch, on threads that launch."""
        return self.tables.select_on_launch_lanes(self.tables.match_names(DATA_LOADER_REGEX))

    @cached_property
    def input_waits(self) -> EventTable:
        """Times in which the program waited for input: its data loader calls.

        Without recorded loader calls: from a step's start to its first op or runtime call, if that is long in most
        steps (as rows of the steps). In a few of them it is a pause, which has many causes.
        """
        if len(self.loader_calls):
            return self.loader_calls
        tables, steps = self.tables, self.tables.steps
        # When the next op or runtime call of a launching thread begins, at each step's start or after it.
        found = np.full(len(steps.start), np.iinfo(np.int64).max)
        for table in (tables.launching_thread_ops, tables.launching_thread_calls):
            for lane in tables.launch_lanes.tolist():
                bounds = tables.trace.lanes[lane].first, tables.trace.lanes[lane].last
                first, last = table.row.searchsorted(bounds).tolist()
                if last > first:
                    starts = table.start[first:last]  # in order within a lane
                    index = starts.searchsorted(steps.start)
                    has_next = index < last - first
                    found[has_next] = np.minimum(found[has_next], starts[index[has_next]])
        wait_end = np.minimum(found, steps.end)
        is_long = wait_end - steps.start >= thresholds.INPUT_WITHOUT_LOADER_MIN.value
        if is_long.sum() < thresholds.INPUT_STEPS_SHARE.value * len(steps):
            is_long[:] = False
        names = np.asarray(tables.trace.name[steps.row])
        return EventTable(steps.row[is_long], steps.start[is_long], wait_end[is_long], names[is_long])

    @cached_property
    def cold_calls(self) -> EventTable:
        """Calls that took over a millisecond because something happened for the first time, and those that compile ops.

        Runtime calls that do not wait for the GPU (module loading, allocation, a first launch), and the profiler's own
        events about module loading. A call that is as slow whenever it is made is not cold.
        """
        tables = self.tables
        calls = tables.calls
        is_long = calls.duration > thresholds.COLD_CALL_MIN.value
        waits = np.concatenate([self.sync_calls.row, self.blocking_copies.row])
        is_long &= ~tables.mark_rows(waits)[calls.row]
        is_long[is_long] = mark_first_calls(tables, calls.select(is_long))
        compiling = tables.match_names(OP_COMPILATION_REGEX, Kind.RUNTIME).row
        return tables.event_table(sorted_unique(np.concatenate([calls.row[is_long], tables.loading.row, compiling])))

    @cached_property
    def cold_ops(self) -> Intervals:
        """Self time of ops that took much longer the first time: handles and workspaces are made without a call."""
        tables, trace = self.tables, self.tables.trace
        ops = tables.launching_thread_ops
        self_time = np.asarray(trace.self_duration[ops.row])
        is_long = (self_time > thresholds.COLD_CALL_MIN.value) & tables.has_work[ops.row]
        own_times: list[Intervals] = []
        indexes_by_name: dict[int, I64] = {}
        for index in np.flatnonzero(is_long)[:_MAX_COLD_OPS].tolist():
            name = int(ops.name[index])
            if name not in indexes_by_name:
                indexes_by_name[name] = np.flatnonzero(ops.name == name)
            of_name = indexes_by_name[name]
            if len(of_name) == 1 or ops.start[index] != ops.start[of_name].min():
                continue
            others = self_time[of_name[of_name != index]]
            if self_time[index] < _FIRST_CALL_RATIO * find_median(others):
                continue
            own_times.append(_own_time(tables, int(ops.row[index])))
        return unite(own_times)

    @cached_property
    def cpu_ops(self) -> EventTable:
        """Long ops of launching threads that launch nothing and make no runtime call: they compute on the CPU.

        Only on threads that make such calls: where these were not recorded, an op may have launched anything. Not while
        torch.compile traces code, which calls ops on tensors without data.
        """
        tables, trace = self.tables, self.tables.trace
        ops, calls = tables.launching_thread_ops, tables.launching_thread_calls
        is_long = ops.duration >= thresholds.CPU_OP_MIN.value
        is_long &= tables.is_dispatcher_op[ops.row] & ~tables.has_work[ops.row]
        is_long &= ~tables.mark_ops(_NO_COMPUTATION_REGEX)[ops.row]
        compiling = tables.match_names(COMPILE_WORK_REGEX)
        ops = ops.select(np.flatnonzero(is_long))
        times = compiling.intervals
        ops = ops.select(times.measure_before(ops.end) == times.measure_before(ops.start))
        lanes = np.asarray(trace.lane[ops.row])
        has_call = np.ones(len(ops), dtype=np.bool_)
        for lane in sorted_unique(lanes).tolist():
            of_lane = lanes == lane
            first, last = calls.row.searchsorted((trace.lanes[lane].first, trace.lanes[lane].last)).tolist()
            if last == first:
                continue
            start = calls.start[first:last]  # in order within a lane
            has_call[of_lane] = start.searchsorted(ops.start[of_lane]) < start.searchsorted(ops.end[of_lane])
        return ops.select(~has_call)

    @cached_property
    def busiest_lane(self) -> int:
        """The lane with most launches, 0 without any."""
        launch = self.tables.work.launch[self.tables.work.launch != NONE]
        return int(np.bincount(self.tables.trace.lane[launch]).argmax()) if len(launch) else 0

    @cached_property
    def threads(self) -> tuple[I64, list[ThreadActivity]]:
        """(number of the activity by lane of the trace int64[lanes], the activities)."""
        tables = self.tables
        launch = tables.work.launch[tables.work.launch != NONE]
        lanes = tables.launch_lanes
        launches_by_lane = np.bincount(tables.trace.lane[launch], minlength=len(tables.trace.lanes))
        by_launches = lanes[np.argsort(-launches_by_lane[lanes], kind="stable")]
        main_lanes, other_lanes = by_launches[:MAX_THREADS], by_launches[MAX_THREADS:]
        groups = [np.array([lane]) for lane in main_lanes.tolist()] + ([other_lanes] if len(other_lanes) else [])
        own = [self._measure_lanes(lanes_of_group) for lanes_of_group in groups]
        number_of_lane = np.zeros(len(tables.trace.lanes), dtype=np.int64)
        for number, lanes_of_group in enumerate(groups):
            number_of_lane[lanes_of_group] = number
        if not own:
            return number_of_lane, [(NO_INTERVALS,) * len(ACTIVITY_CAUSES)]
        return number_of_lane, [_add_other_threads(own, number) for number in range(len(own))]

    def _measure_lanes(self, lanes: I64) -> ThreadActivity:
        tables = self.tables
        assigned = tables.overhead_intervals

        def take_remaining(covered: Intervals) -> Intervals:
            nonlocal assigned
            remaining = covered - assigned if len(assigned) else covered
            assigned = assigned | remaining
            return remaining

        def take_events(*parts: EventTable) -> Intervals:
            times = (tables.select_on_lanes(part, lanes).intervals for part in parts)
            return take_remaining(unite(times))

        input_time = take_events(self.input_waits)
        sync_time = take_events(self.sync_calls, self.blocking_copies)
        cold_calls = tables.select_on_lanes(self.cold_calls, lanes)
        cold = cold_calls.intervals | tables.loading.intervals  # which is on the profiler's own lane
        dispatch = tables.select_on_lanes(self._outermost_activity, lanes)
        dispatch_time = dispatch.intervals
        communication_time = take_events(tables.match_names(COMMUNICATION_REGEX))
        cold_time = take_remaining(cold | (self.cold_ops & dispatch_time))
        cpu_time = take_events(self.cpu_ops)
        return input_time, sync_time, communication_time, cold_time, cpu_time, dispatch_time - assigned

    @cached_property
    def _outermost_activity(self) -> EventTable:
        """Ops and runtime calls that lie in no other."""
        tables, trace = self.tables, self.tables.trace
        outermost_rows = []
        for table in (tables.ops, tables.calls):
            parent = trace.parent[table.row]
            is_nested = (parent != NONE) & is_in(trace.kind[parent], (Kind.OP, Kind.RUNTIME))
            outermost_rows.append(table.row[~is_nested])
        return tables.event_table(np.sort(np.concatenate(outermost_rows), kind="stable"))


_MAX_COLD_OPS = 64  # long ops whose other runs are looked at: a trace with more of them is slow, not cold


def _add_other_threads(own: list[ThreadActivity], number: int) -> ThreadActivity:
    """Add to one thread's activity what the others did while it was outside any op."""
    if len(own) == 1:
        return own[0]
    assigned = unite(own[number])
    combined = []
    for index, own_part in enumerate(own[number]):
        others = unite(activity[index] for other_number, activity in enumerate(own) if other_number != number)
        remaining = others - assigned
        assigned = assigned | remaining
        combined.append(own_part | remaining)
    return tuple(combined)


_FINAL_NUMBER = re.compile(r"\d+$")  # a number that only says which thread, or which time, made a call


def mark_first_calls(tables: TraceTables, long_calls: EventTable) -> Bool:
    """Mark the long calls that may be long because something happens for the first time: bool[k].

    Not so where each step makes as many such calls; of calls of the driver's allocator, as many of any length. Nor
    where the name's median is as long, unless it loads or allocates, which always takes long.
    """
    names, calls, steps = tables.trace.names, tables.calls, tables.steps
    is_first = np.ones(len(long_calls), dtype=np.bool_)
    stem_of = {number: _FINAL_NUMBER.sub("", names[number]) for number in sorted_unique(calls.name).tolist()}
    numbers_of: dict[str, list[int]] = {}
    for number, stem in stem_of.items():
        numbers_of.setdefault(stem, []).append(number)
    for stem in {stem_of[number] for number in sorted_unique(long_calls.name).tolist()}:
        of_stem = is_in(long_calls.name, numbers_of[stem])
        every = calls.select(is_in(calls.name, numbers_of[stem]))
        if len(every) < _MIN_CALLS:  # two calls: nothing says which of them is usual
            continue
        counted = every if re.match(ALLOCATION_CALL_REGEX, stem) else long_calls.select(of_stem)
        if not _LOADING_CALL.match(stem):
            is_first[of_stem] = long_calls.duration[of_stem] >= _FIRST_CALL_RATIO * find_median(every.duration)
        if len(steps) >= thresholds.WARMING_MIN_STEPS.value:
            index = steps.index_at(counted.start)
            per_step = np.bincount(index[index != NONE], minlength=len(steps))
            if per_step.min() > 0 and per_step.min() >= thresholds.RECURRING_RATE.value * per_step.max():
                is_first[of_stem] = False
    return is_first


def _own_time(tables: TraceTables, row: int) -> Intervals:
    """Return when an event ran none of its children."""
    trace = tables.trace
    start, end = int(trace.start[row]), int(trace.start[row] + trace.duration[row])
    lane = trace.lanes[int(trace.lane[row])]
    last = row + 1 + int(np.asarray(trace.start[row + 1 : lane.last]).searchsorted(end))
    children = np.arange(row + 1, last)
    children = children[np.asarray(trace.parent[row + 1 : last]) == row]
    child_start = np.asarray(trace.start[children])
    own = Intervals(np.array([start], dtype=np.int64), np.array([end], dtype=np.int64))
    return own - union(child_start, child_start + trace.duration[children])
