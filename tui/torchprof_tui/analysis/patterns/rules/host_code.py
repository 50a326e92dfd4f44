"""Patterns of a CPU that launches nothing: plain code, the garbage collector, ops that compute on the CPU."""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.patterns.engine import host_code_time, thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.host_activity import DATA_LOADER_REGEX
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Remedy,
    find_event_places,
    find_gap_places,
    register_pattern,
)
from torchprof_tui.analysis.patterns.engine.practices import COMPILE_WORK_REGEX
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import NO_CPU, NO_GPU
from torchprof_tui.analysis.time.intervals import Intervals, union, unite
from torchprof_tui.trace.core.arrays import I64, Bool, find_largest, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

_MAX_GAPS = 16  # longest times without an op whose neighbours are the evidence where no frame is


@register_pattern(
    "The program runs code outside any op",
    meaning="the main thread runs plain Python, writes files or waits: no op runs meanwhile",
    action="run it less often, outside the loop, or in another process",
    code="if step % 100 == 0: …  # not in each step",
    decided="In a trace without GPU activity: the time of the main thread outside ops, data loader calls, "
    "communication and the profiler's own work, less what other threads' ops take meanwhile, reaches the limit. Named "
    "is the deepest frame of your own code that holds more than half of it, else the two with most. With a GPU: where "
    "it waits for such code at one place, and that is the verdict.",
    thresholds=(thresholds.HOST_CODE_SHARE, thresholds.HOST_OWNER_SHARE),
    fires_on_absence=True,
)
def host_code(view: ScopeView) -> Answer:
    tables = view.tables
    if len(tables.work):
        return Answer.absent("no place at which the GPU waits for it is what costs most")
    if missing_reason := (NO_GPU if len(tables.calls) else "" if len(tables.ops) else NO_CPU):
        return Answer.cannot_tell(missing_reason)
    host = host_code_time.find_host_code(view)
    t0, t1 = host_code_time.find_main_window(view, host.main) if host.main is not None else (0, 0)
    if host.main is None or t1 <= t0:
        return Answer.cannot_tell("the program did nothing in this range")
    share = host.intervals.total / (t1 - t0)
    seen = f"{format_percent(share)} of the CPU's time ({format_duration(host.intervals.total)}) is code outside any op"
    if share < thresholds.HOST_CODE_SHARE.value:
        return Answer.absent(seen)
    owners = host.describe_owners()
    events = host.events if len(host.owners) else _find_neighbours(view, host.main, host)
    events = events if len(events) else view.representative_events()
    action, code = host.choose_remedy(view), "if step % 100 == 0: …  # not in each step" if host.owners else ""
    remedy = (
        Remedy(action, "model = torch.compile(model)" if action == host_code_time.DO_LESS_PER_OP else code)
        if action
        else None
    )
    places = find_gap_places(view.trace, host.intervals, host.events, tables.ops.row, host.main.lane)
    seen += f", {owners}" if owners else ""
    return Answer.fired(seen, events, host.intervals.total, remedy, host.intervals, places)


def _find_neighbours(view: ScopeView, main: host_code_time.MainThread, host: host_code_time.HostCode) -> I64:
    """Find the ops of the main thread before and after the longest times without any: int64[k]."""
    ops = main.select(view.tables.ops)
    gaps = np.argsort(host.intervals.starts - host.intervals.ends, kind="stable")[:_MAX_GAPS]
    before = ops.start.searchsorted(host.intervals.starts[gaps]) - 1
    after = ops.start.searchsorted(host.intervals.ends[gaps])
    rows = np.concatenate([ops.row[before[before >= 0]], ops.row[after[after < len(ops)]]])
    return view.select_in_scope(view.tables.event_table(sorted_unique(rows).astype(np.int64))).row


COLLECTION_REGEX = r"Python GC|<built-in function collect>|gc\.collect|gc\.py.*collect"
"""Frames and annotations of Python's garbage collector: a call of `gc.collect()`, or what torch records of it."""


@record
class HostPauses:
    """k pauses in steps, in which no thread that launches ran an op or a call, and no GPU worked.

    `step` int64[k]: index of the step; `position` int64[k]: how many outermost ops of the step ran before it;
    `is_irregular` bool[k]: whether fewer than half of the steps pause there.
    """

    start: I64
    end: I64
    step: I64
    position: I64
    is_irregular: Bool

    def __len__(self) -> int:
        return len(self.start)


def find_collections(tables: TraceTables) -> EventTable:
    """Find the runs of the garbage collector that the trace names, on launching threads."""
    frames = tables.filter_by_name(
        tables.practices.python_frames, lambda name: name.startswith("<built-in function collect>")
    )
    marks = tables.match_names(COLLECTION_REGEX)
    rows = np.sort(np.concatenate([frames.row, marks.row]), kind="stable")
    return tables.select_on_launch_lanes(tables.event_table(rows))


def find_host_pauses(tables: TraceTables, shortest: int = int(thresholds.PAUSE_MIN.value)) -> HostPauses:
    """Find the pauses of all steps of the trace, without input, compilation and the profiler's own work.

    `shortest`: ns from which a time without an op is one.
    """
    steps = tables.steps
    empty = np.zeros(0, dtype=np.int64)
    no_pauses = HostPauses(empty, empty, empty, empty, np.zeros(0, dtype=np.bool_))
    if not len(steps):
        return no_pauses
    active = tables.compute_once(_find_active_times)
    # Only gaps that are long enough to be a pause are looked at again.
    first, last = int(min(steps.start[0], tables.window[0])), int(steps.end.max())
    gap_start, gap_end = np.append(first, active.ends), np.append(active.starts, last)
    is_long = gap_end - gap_start >= shortest
    pauses = union(gap_start[is_long], gap_end[is_long]) & union(steps.start, steps.end)
    is_long = pauses.ends - pauses.starts >= shortest
    if not is_long.any():
        return no_pauses
    start, end = pauses.starts[is_long], pauses.ends[is_long]
    step = steps.index_at(start)
    outermost = tables.compute_once(_find_outermost_starts)
    position = outermost.searchsorted(start) - outermost.searchsorted(steps.start[np.maximum(step, 0)])
    _, back, count = np.unique(position, return_inverse=True, return_counts=True)
    is_irregular = count[back.reshape(-1)] < thresholds.PAUSE_STEPS_SHARE.value * len(steps)
    return HostPauses(start, end, step, position, is_irregular)


def _find_active_times(tables: TraceTables) -> Intervals:
    """Find when an op or a call ran on a launching thread, the GPU worked, or something else explains a pause."""
    explained = [
        tables.launching_thread_ops,
        tables.launching_thread_calls,
        tables.overhead,
        tables.match_names(COMPILE_WORK_REGEX),
        tables.match_names(DATA_LOADER_REGEX),
        tables.work.events,
    ]
    return unite(table.intervals for table in explained)  # far fewer than the events: ops contain others


def _find_outermost_starts(tables: TraceTables) -> I64:
    """Return the starts of the ops of launching threads that lie in no other op, sorted."""
    trace, ops = tables.trace, tables.launching_thread_ops
    parent = np.asarray(trace.parent[ops.row])
    nested = (parent >= 0) & (trace.kind[np.maximum(parent, 0)] == Kind.OP)
    starts: I64 = np.sort(ops.start[~nested])
    return starts


@register_pattern(
    "The garbage collector stops the program",
    meaning="Python searches its objects for reference cycles, and launches nothing during that time",
    action="freeze long-lived objects, and collect between epochs instead of between launches",
    code="gc.collect(); gc.freeze(); gc.disable()  # then gc.collect() where a pause does no harm",
    decided="Runs of the collector that the trace names (a frame or an annotation), longer than the limit. "
    "Undetermined: pauses of the launching thread without any op, while the GPU is idle, at another place in "
    "each step; they look like the collector, but the trace does not name it.",
    thresholds=(thresholds.GC_MIN, thresholds.PAUSE_MIN, thresholds.PAUSE_STEPS_SHARE),
    needs=(ScopeView.missing_ops_reason,),
)
def gc_pause(view: ScopeView) -> Answer:
    tables = view.tables
    runs = view.select_in_scope(tables.compute_once(find_collections))
    runs = runs.select(runs.duration >= int(thresholds.GC_MIN.value))
    if len(runs):
        return _describe_collections(view, runs)
    pauses = tables.compute_once(find_host_pauses)
    seen = np.flatnonzero(view.overlap_mask(pauses.start, pauses.end))
    if not len(seen):
        return Answer.absent()
    irregular = seen[pauses.is_irregular[seen]]
    longest = format_duration(int((pauses.end - pauses.start)[seen].max()))
    text = f"{format_count(len(seen), 'pause')} of up to {longest}"
    if len(tables.steps) <= 2:
        return Answer.cannot_tell(f"{text}; fewer than three steps are too few to see what recurs")
    if not len(irregular):
        return Answer.absent(f"{text}, at the same op in each step: caused by the program's code")
    frames = tables.practices.python_frames
    if len(frames):
        irregular = irregular[~_has_own_frames(frames, pauses.start[irregular], pauses.end[irregular])]
        if not len(irregular):
            return Answer.absent(f"{text}, in functions that the stacks name")
        longest = format_duration(int((pauses.end - pauses.start)[irregular].max()))
    likely = "plain Python, " if len(frames) else ""
    missing = "" if len(frames) else " with stacks, or"
    return Answer.cannot_tell(
        f"{format_count(len(irregular), 'pause')} of up to {longest} without any op, not at the same place in each "
        f"step: looks like {likely}the garbage collector or another process; record{missing} the collector's runs "
        "(experimental_config: record_python_gc_info=True)"
    )


def _has_own_frames(frames: EventTable, start: I64, end: I64) -> Bool:
    """Return whether calls that began in a pause took more than half of it: a collection makes none. bool[k]."""
    order = np.argsort(frames.start, kind="stable")
    frame_start, frame_end = frames.start[order], frames.end[order]
    has_own = np.zeros(len(start), dtype=np.bool_)
    for index, (t0, t1) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        inside = slice(*frame_start.searchsorted([t0, t1]).tolist())
        covered = union(frame_start[inside], np.minimum(frame_end[inside], t1)).total
        has_own[index] = 2 * covered > t1 - t0
    return has_own


def _describe_collections(view: ScopeView, runs: EventTable) -> Answer:
    busy = unite(view.tables.busy_intervals.values())
    at_stake = view.clip(runs.intervals - busy).total
    time = view.covered_time(runs)
    remedy = None
    if all("collect" in view.tables.name(int(row)) for row in runs.row):
        remedy = Remedy(
            "the program calls gc.collect() itself: remove it from the loop, or call it between epochs",
            "if step == last_step: gc.collect()",
        )
    seen = (
        f"{format_count(len(runs), 'collection')}, {format_duration(time)} together, the longest "
        f"{format_duration(int(runs.duration.max()))}; the GPU was idle for {format_duration(at_stake)} of it"
    )
    return Answer.fired(seen, runs.row, at_stake, remedy)


CREATING_OP = re.compile(
    r"aten::(rand|randn|randint|randperm|normal|uniform|log_normal|bernoulli|exponential|random|trunc_normal|zeros?|ones?"
    r"|full|fill|arange|linspace|eye|tril|triu)(_like|_)?$"
)
"""Ops that create values from nothing, which any device can do itself."""

_MAX_NAMED = 2


@record
class CpuWork:
    """What ops computed on the CPU in a scope while a GPU was idle.

    `ops`: the outermost of them. `idle`: ns of idle time, all devices. `text`: the longest ops by name and time.
    `is_setup`: most of it lies before the first GPU work. `is_creation`: most of it creates values.
    """

    ops: EventTable
    idle: int
    text: str
    is_setup: bool
    is_creation: bool

    @property
    def remedy(self) -> Remedy:
        create = "create these tensors on the GPU (device=…), not on the CPU" if self.is_creation else ""
        if self.is_setup:
            action = "set-up was recorded: start the profiler after it"
            return Remedy(f"{action}; if start-up matters, {create}" if create else action)
        if create:
            return Remedy(create, "x = torch.randn(shape, device=device)  # instead of torch.randn(shape).to(device)")
        return Remedy("move these ops to the GPU, or into the workers of the data loader")


def measure_cpu_work(view: ScopeView) -> CpuWork:
    """Measure the ops that compute on the CPU; computed once for a view through `compute_once`."""
    found = view.select_in_scope(view.gap_finder.cpu_ops)
    parent = view.tables.innermost_ancestor(found.row, view.tables.mark_rows(found.row))
    ops = found.select(parent < 0)
    idle = int(view.gaps.time[:, IdleCause.CPU_COMPUTE].sum())
    if not len(ops):
        return CpuWork(ops, idle, "", is_setup=False, is_creation=False)
    time = np.bincount(ops.name, weights=view.time_in_scope(ops))
    largest = [int(name) for name in find_largest(time, _MAX_NAMED) if time[name]]
    text = ", ".join(f"{view.trace.names[name]} {format_duration(float(time[name]))}" for name in largest)
    total = float(time.sum())
    first_work = int(view.tables.work.events.start.min())
    creating = sum(
        float(time[name]) for name in np.flatnonzero(time).tolist() if CREATING_OP.match(view.trace.names[name])
    )
    before = ops.intervals.measure_between(view.scope.t0, max(first_work, view.scope.t0))
    return CpuWork(ops, idle, text, 2 * before > total, 2 * creating > total)


@register_pattern(
    "The GPU waits for ops that compute on the CPU",
    meaning="random numbers, weights, inputs or their preparation are computed by ops on the CPU, which launch nothing",
    action="create tensors on the GPU, or prepare them in the workers of the data loader",
    code="x = torch.randn(shape, device=device)  # instead of torch.randn(shape).to(device)",
    decided="GPU idle time during ops of a launching thread that are longer than the limit, launch nothing and make no "
    "runtime call, without those in the data loader.",
    thresholds=(thresholds.CPU_OP_MIN, thresholds.CPU_WORK_SHARE),
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason, ScopeView.missing_calls_reason),
)
def cpu_work(view: ScopeView) -> Answer:
    work = view.compute_once(measure_cpu_work)
    idle = work.idle // len(view.tables.devices)
    share = work.idle / view.device_time if view.device_time > 0 else 0.0
    if not len(work.ops) or share < thresholds.CPU_WORK_SHARE.value:
        return Answer.absent(f"{format_percent(share)} of the time" if idle else "")
    find_idle, cause = view.gap_finder.list_cause_intervals, IdleCause.CPU_COMPUTE
    spans = unite(find_idle(view.gaps, cause, device) for device in view.tables.devices)
    seen = f"{work.text}; the GPU was idle {format_duration(idle)} meanwhile, {format_percent(share)} of "
    places = find_event_places(view.trace, work.ops.row, view.time_in_scope(work.ops))
    return Answer.fired(seen + view.window_label, np.sort(work.ops.row), idle, work.remedy, spans, places)
