"""Section "CPU lane": cold starts, how kernels are launched, and unneeded waits and copies."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import nearest_ancestor
from torchprof_tui.analysis.kernel.names.copies import is_within_device
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable, GpuWorkTable, StepTable
from torchprof_tui.analysis.patterns.engine.host_activity import DATA_LOADER_REGEX
from torchprof_tui.analysis.patterns.engine.launch_owners import (
    CLONE_REGEX,
    OPERATOR_LIKE_REGEX,
    find_launch_ancestors,
    find_outermost_above,
)
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Remedy,
    register_artefact,
    register_notice,
    register_pattern,
    sort_places,
)
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import NO_CPU
from torchprof_tui.analysis.patterns.rules.remedy_choice import HIDDEN_COPY_REMEDIES
from torchprof_tui.analysis.patterns.rules.serving import find_comparable_steps
from torchprof_tui.analysis.patterns.rules.warmup import lacks_setup_work
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.time.host_stalls import SYNC_CALL_REGEX
from torchprof_tui.analysis.words.dictionary import explain
from torchprof_tui.trace.core.arrays import F64, I32, I64, Bool, find_median, is_in, sorted_unique
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

_HOST_KINDS = (Kind.OP, Kind.RUNTIME, Kind.PYTHON)
_MIN_SHARE = 0.5  # share of a first step's extra time that one name must explain

_GRAPH_REMEDY = Remedy(
    "the first launch of a CUDA graph prepares it on the GPU: replay each graph once before you measure",
    "graph.replay(); torch.cuda.synchronize()",
)


_FIRST_AFTER_START = Remedy(
    "leave it out: the first step after the profiler starts is slow even in a warm program, and more warm-up does not "
    "change that",
    "schedule=torch.profiler.schedule(wait=1, warmup=1, active=20)  # and compare medians",
)


def explain_growth(tables: TraceTables, steps: StepTable, excess: int) -> tuple[str, Remedy | None]:
    """Explain `excess` ns of the first step: the name whose own time grew most, and its remedy; ("", None) if none.

    Own time of ops, calls and Python frames by name: the first step's minus the median of the others.
    """
    trace = tables.trace
    events = np.flatnonzero(
        is_in(trace.kind, _HOST_KINDS) & (trace.start >= steps.start[0]) & (trace.start < steps.end[-1])
    )
    step = steps.index_at(trace.start[events])
    events, step = events[step >= 0], step[step >= 0]
    first = sorted_unique(trace.name[events[step == 0]])
    known = is_in(trace.name[events], first)
    if not known.any():
        return "", None
    events, step = events[known], step[known]
    times = np.zeros((len(steps), len(first)), np.int64)
    np.add.at(times, (step, first.searchsorted(trace.name[events])), trace.self_duration[events])
    growth = times[0] - np.median(times[1:], axis=0)
    most = int(growth.argmax())
    if not _MIN_SHARE * excess <= growth[most] <= excess:  # more than that is the profiler's own work in this name
        return "", None
    name = trace.names[int(first[most])]
    remedy = _GRAPH_REMEDY if "GraphLaunch" in name else None
    return f"{format_duration(float(growth[most]))} more in {name}", remedy


def find_dead_windows(tables: TraceTables) -> tuple[EventTable, F64, I64] | None:
    """Find the annotations of the trace that begin with nothing; None where none occurs often enough to compare.

    (From each one's start to its first op; float64[k] ns that the other annotations of the name take to their first op;
    int64[k] ns: how much longer this one takes.)
    """
    # The delay from each annotation's start to the first op or call inside, without the profiler's own work.
    trace, ranges = tables.trace, tables.annotations
    next_rows = [
        np.append(table.row, len(trace))[table.row.searchsorted(ranges.row)] for table in (tables.ops, tables.calls)
    ]
    first_inner = np.minimum(*next_rows)
    has_inner = first_inner < len(trace)
    first_inner[~has_inner] = 0
    first_start = np.asarray(trace.start[first_inner])
    has_inner &= (trace.lane[first_inner] == trace.lane[ranges.row]) & (first_start < ranges.end)
    has_inner &= ~is_in(ranges.row, tables.match_names(DATA_LOADER_REGEX).row)  # it waits for its workers
    annotations, first_start = ranges.select(has_inner), first_start[has_inner]
    profiler = tables.overhead_intervals
    profiled = profiler.measure_within(annotations.start, first_start)
    delays = first_start - annotations.start - profiled
    counts = np.bincount(annotations.name) if len(annotations) else np.zeros(1, np.int64)
    if counts.max() < 1 + thresholds.MIN_OTHERS.value:
        return None
    dead: list[int] = []
    excess, medians = [], []
    for name_id in np.flatnonzero(counts >= 1 + thresholds.MIN_OTHERS.value).tolist():
        instances = np.flatnonzero(annotations.name == name_id)
        instance_delays = delays[instances]
        # Without one of n delays the median is at least delay n // 2 of all, ascending; few are that much longer.
        middle = len(instances) // 2 - 1
        lowest_median = int(np.partition(instance_delays, middle)[middle])
        least = max(thresholds.DEAD_WINDOW_MIN.value, thresholds.DEAD_WINDOW_RATIO.value * lowest_median)
        for k in np.flatnonzero(instance_delays >= least).tolist():
            median = find_median(np.delete(instance_delays, k))
            if instance_delays[k] >= thresholds.DEAD_WINDOW_RATIO.value * median:
                dead.append(int(instances[k]))
                excess.append(int(instance_delays[k] - median))
                medians.append(median)
    found = annotations.select(np.array(dead, dtype=np.int64))
    windows = EventTable(found.row, found.start, found.start + delays[dead], found.name) if dead else found
    return windows, np.array(medians, dtype=np.float64), np.array(excess, dtype=np.int64)


OCCUPANCY_QUERY_REGEX = r"(cuda|cu|hip)(Module)?Occupancy"
EXPLICIT_COPY_OPS = ("aten::copy_", "aten::clone", "aten::to", "aten::_foreach_copy_")
"""Ops by which a program copies explicitly."""


@register_pattern(
    "The first step takes much longer",
    meaning="the first recorded step is slower than the others, so means over all steps are too high",
    action="run some steps before you measure, and let the profiler skip the first steps",
    code="schedule=torch.profiler.schedule(wait=1, warmup=2, active=3)",
    decided="The duration of the first recorded step over the median of the others, without the profiler's own work. "
    "Of a language model's steps, those that read prompts are left out. "
    "Not present if more of the other steps than the limit take about as long: a cold start does not recur. Nor if the "
    "GPU works meanwhile, and longer than the CPU: then nothing waits for it. Time at stake: by how much it is longer, "
    "or the GPU idle for longer in it.",
    thresholds=(
        thresholds.FIRST_STEP_RATIO,
        thresholds.MIN_OTHERS,
        thresholds.WIDE_AGAIN,
        thresholds.WIDE_STEPS_SHARE,
        thresholds.FIRST_STEP_LOST,
    ),
)
def first_step_wide(view: ScopeView) -> Answer:
    steps = view.tables.compute_once(find_comparable_steps)
    if not len(steps):
        return Answer.cannot_tell(view.missing_steps_reason())
    if len(steps) < 1 + thresholds.MIN_OTHERS.value:
        return Answer.cannot_tell(
            f"{format_count(len(steps), 'step')} recorded: at least three are needed to compare them"
        )
    first = EventTable(steps.row[:1], steps.start[:1], steps.end[:1], np.zeros(1, np.int32))
    if not view.overlap_mask(first.start, first.end)[0]:
        return Answer.absent("the first step is not in this range")
    durations = steps.end - steps.start
    profiled = view.tables.overhead_intervals.measure_between(int(steps.start[0]), int(steps.end[0]))
    first_duration = int(durations[0]) - profiled
    median_of_others = find_median(durations[1:])
    if not median_of_others:
        return Answer.cannot_tell("most steps were recorded without a duration")
    if first_duration < thresholds.FIRST_STEP_RATIO.value * median_of_others:
        return Answer.absent(
            f"step #{steps.number[0]} took {format_duration(first_duration)}, the others "
            f"{format_duration(median_of_others)} (median)"
        )
    wide = max(thresholds.FIRST_STEP_RATIO.value * median_of_others, thresholds.WIDE_AGAIN.value * first_duration)
    as_wide = int((durations[1:] >= wide).sum())
    if as_wide > thresholds.WIDE_STEPS_SHARE.value * (len(steps) - 1):
        return Answer.absent(f"{format_count(as_wide, 'later step')} took about as long: not a cold start")
    listed = " and ".join(map(format_duration, durations[1:].tolist()))
    others = listed if len(steps) <= 4 else f"{format_duration(median_of_others)} in the median"
    excess = int(first_duration - median_of_others)
    if _is_hidden(view, steps, excess):
        return Answer.absent(f"step #{steps.number[0]} took longer on the CPU, while the GPU was busy with its work")
    grown, remedy = explain_growth(view.tables, steps, excess)
    if not grown and lacks_setup_work(view.tables, first):
        grown, remedy = "nothing is loaded, allocated or compiled in it", _FIRST_AFTER_START
    seen = (
        f"step #{steps.number[0]} took {format_duration(first_duration)}, {first_duration / median_of_others:.1f}× "
        f"as long as the other {len(steps) - 1}: {others}" + (f"; {grown}" if grown else "")
    )
    lost = max(excess, _measure_idle_excess(view, steps) - profiled)
    return Answer.fired(seen, first.row, min(lost, view.covered_time(first)), remedy)


def _measure_idle_excess(view: ScopeView, steps: StepTable) -> int:
    """Measure how much longer a GPU is idle in the first step than in the others in the median, ns, the mean of GPUs.

    Where later steps only fill the GPU's queue, they are short on the CPU, and the first costs more than it is longer.
    """
    devices, idle = view.tables.devices, (steps.end - steps.start).astype(np.int64)
    for device in devices:
        times = view.tables.busy_intervals[device]
        idle -= times.measure_within(steps.start, steps.end) // len(devices)
    return int(idle[0] - find_median(idle[1:])) if devices else 0


def _is_hidden(view: ScopeView, steps: StepTable, excess: int) -> bool:
    """Return whether the GPU is behind: the first step's work takes it longer than the step, and it is hardly idle."""
    work, devices = view.tables.work, view.tables.devices
    t0, t1 = int(steps.start[0]), int(steps.end[0])
    launched = steps.index_at(view.tables.launch_start) == 0
    busy = sum(view.tables.busy_intervals[device].measure_between(t0, t1) for device in devices)
    idle = (t1 - t0) * len(devices) - busy
    is_behind = int(work.events.duration[launched].sum()) > (t1 - t0) * len(devices)
    return is_behind and idle < thresholds.FIRST_STEP_LOST.value * excess * len(devices)


@register_pattern(
    "A range begins without any op",
    meaning=explain("dead window", "why"),
    action="leave a first range out; if it recurs, check the code between the start of the range and its first op",
    decided="The time from an annotation's start to its first op or runtime call, over the median of its other "
    "occurrences, without the profiler's own work.",
    thresholds=(thresholds.DEAD_WINDOW_RATIO, thresholds.DEAD_WINDOW_MIN, thresholds.MIN_OTHERS),
    fires_on_absence=True,
)
def dead_window(view: ScopeView) -> Answer:
    tables = view.tables
    if not len(tables.annotations):
        return Answer.cannot_tell("no annotation was recorded: mark ranges with record_function")
    if not len(tables.ops):
        return Answer.cannot_tell(NO_CPU)
    found = tables.compute_once(find_dead_windows)
    if found is None:
        return Answer.cannot_tell("no annotation with ops inside occurs three times: nothing to compare with")
    windows, medians, excess = found
    in_scope = view.overlap_mask(windows.start, windows.end)
    if not in_scope.any():
        return Answer.absent()
    worst = int(np.where(in_scope, excess, -1).argmax())
    seen = (
        f"{tables.name(int(windows.row[worst]))} has no op for its first {format_duration(windows.duration[worst])}; "
        f"its other occurrences begin after {format_duration(medians[worst])}"
    )
    windows, excess = windows.select(np.flatnonzero(in_scope)), excess[in_scope]
    at_stake = min(int(excess.sum()), view.covered_time(windows))
    places = sort_places(windows.start, windows.end, windows.row, excess, True)
    return Answer.fired(seen, np.sort(windows.row), at_stake, spans=windows.intervals, places=places)


def _find_occupancy_queries(view: ScopeView) -> tuple[Bool, EventTable]:
    """Find occupancy queries: (bool[work]: launched after one in the same op, the queries in the scope)."""
    tables = view.tables
    queries = tables.match_names(OCCUPANCY_QUERY_REGEX, Kind.RUNTIME)
    after_query = np.zeros(len(view.work), dtype=np.bool_)
    op_of_query = nearest_ancestor(view.trace, queries.row) if len(queries) else np.empty(0, dtype=np.int64)
    if (op_of_query >= 0).any():
        order = np.lexsort((queries.start, op_of_query))
        order = order[op_of_query[order] >= 0]
        ops, first_index = np.unique(op_of_query[order], return_index=True)
        first_query_start = queries.start[order][first_index]  # the first query of each op
        index = np.minimum(ops.searchsorted(view.inner_op), len(ops) - 1)
        launch_start = tables.launch_start[view.work_in_scope]
        after_query = (ops[index] == view.inner_op) & (launch_start >= first_query_start[index])
    return after_query, view.select_in_scope(queries)


@register_notice(
    "The library chose the launch size for this GPU",
    meaning=explain("occupancy query", "is", "why"),
    action="nothing: this is normal for GEMMs, convolutions and reductions; the query takes about a microsecond",
    decided="A runtime call that queries the occupancy (cudaOccupancy…, hipOccupancy…) before a launch in the same op.",
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_calls_reason, ScopeView.missing_links_reason),
)
def adaptive_launch(view: ScopeView) -> Answer:
    after_query, queries = _find_occupancy_queries(view)
    if not after_query.any():
        return Answer.absent()
    launched = view.work.events.select(after_query)
    kernel = view.tables.short_name(int(launched.row[launched.duration.argmax()]))
    seen = f"{format_count(len(launched), 'launch', 'launches')} after an occupancy query, {kernel} among them"
    return Answer.fired(seen, np.sort(np.concatenate([queries.row, launched.row])))


@register_notice(
    "Launched with a fixed size",
    meaning="elementwise or reduction kernels that need few resources, launched with a fixed size",
    action="nothing; if there are many of them, torch.compile can fuse them",
    decided="A launch without an occupancy query in its op, of a kernel that is elementwise, a reduction, a copy, a "
    "softmax, a norm or generated by Triton, by its name.",
    fires_on_absence=True,
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_calls_reason, ScopeView.missing_links_reason),
)
def fixed_launch(view: ScopeView) -> Answer:
    after_query, _ = _find_occupancy_queries(view)
    is_light = view.work.class_mask(KernelClass.ELEMENTWISE, KernelClass.REDUCTION, KernelClass.COPY)
    is_light |= view.work.class_mask(KernelClass.SOFTMAX, KernelClass.NORM, KernelClass.TRITON)
    work_first = view.trace.links.work_first
    launch = np.maximum(view.work.launch, 0)
    # Kernels of a graph share one launch.
    is_only_work = (view.work.launch >= 0) & (work_first[launch + 1] - work_first[launch] == 1)
    is_fixed = ~after_query & is_light & is_only_work & (view.work.kind == Kind.KERNEL)
    if not is_fixed.any():
        return Answer.absent()
    launched = view.work.events.select(is_fixed)
    ops = view.outer_op[is_fixed]
    op_names = [view.tables.name(int(op)) for op in ops[ops >= 0][:1]]
    op_text = f" (e.g. {op_names[0]})" if op_names else ""
    hopper_gemms = view.tables.filter_by_name(view.work.events, lambda name: name.startswith("nvjet_sm90"))
    seen = f"{format_count(len(launched), 'kernel')} with a fixed launch size{op_text}"
    if len(hopper_gemms) and not after_query.any():
        seen += "; GEMMs on Hopper ask for the occupancy once, in a cold call"
    return Answer.fired(seen, launched.row)


@register_artefact(
    "A long wait ends the recording",
    meaning="the profiler waits for the GPU before it stops; it is not part of any step",
    action="nothing: do not count it as time of the program",
    decided="The last call that waits for the GPU, if nothing was launched after it and it began after the last "
    "step. Shown with it: the GPU work that runs during the wait.",
    fires_on_absence=True,
    needs=(ScopeView.missing_calls_reason, ScopeView.missing_work_reason),
)
def trailing_sync(view: ScopeView) -> Answer:
    tables = view.tables
    sync_row = find_trailing_sync(view)
    if sync_row < 0:
        return Answer.absent(
            "no wait follows the last step" if len(tables.steps) else "no wait follows the last launch"
        )
    sync = tables.event_table(np.array([sync_row]))
    if not len(view.select_in_scope(sync)):
        return Answer.absent("the last wait is not in this range")
    last = "step" if len(tables.steps) else "launch"
    waits = f"{tables.name(sync_row)} waits {format_duration(int(sync.duration[0]))} after the last {last}"
    return Answer.fired(f"{waits} and {_describe_covered_work(tables, sync)}", sync.row)


def _describe_covered_work(tables: TraceTables, sync: EventTable) -> str:
    """Describe the GPU work during a wait, on the device with most: "covers 2.1 ms of GPU work: 5 % idle"."""
    t0, t1 = int(sync.start[0]), int(sync.end[0])
    covered = max((tables.busy_intervals[device].measure_between(t0, t1) for device in tables.devices), default=0)
    if not covered:
        return "covers no GPU work"
    idle = format_percent(1 - covered / (t1 - t0))
    return f"covers {format_duration(covered)} of GPU work: {idle} idle"


def find_trailing_sync_note(view: ScopeView) -> dict[int, str]:
    """Describe the GPU work covered by the wait that ends the recording, by its event; empty without such a wait."""
    tables = view.tables
    sync_row = find_trailing_sync(view) if len(tables.calls) and len(tables.work) else -1
    if sync_row < 0:
        return {}
    return {sync_row: _describe_covered_work(tables, tables.event_table(np.array([sync_row])))}


def find_trailing_sync(view: ScopeView) -> int:
    """Find the event of the wait that ends the recording, -1 for none."""
    return view.tables.compute_once(_find_trailing_sync)


def _find_trailing_sync(tables: TraceTables) -> int:
    syncs = tables.select_on_launch_lanes(tables.match_names(SYNC_CALL_REGEX, Kind.RUNTIME))
    if not len(syncs):
        return -1
    last_index = int(syncs.start.argmax())
    sync_start = int(syncs.start[last_index])
    launches = tables.work.launch[tables.work.launch >= 0]
    if len(launches) and int(tables.trace.start[launches].max()) > sync_start:
        return -1
    if len(tables.steps) and sync_start < int(tables.steps.end[-1]):
        return -1
    return int(syncs.row[last_index])


@register_pattern(
    "A copy on the GPU that you did not write",
    meaning="an op copied its input first: the bias of addmm, the input of an out-of-place op, or a tensor whose "
    "layout had to change",
    action="change the op that is named: its in-place variant, a contiguous input, or a fused op avoids the copy",
    decided="A device-to-device copy, or a kernel that copies for aten::clone, whose outermost operator is not "
    "copy_, clone or to: another operator, or a library such as DDP's reducer, made the copy. Casts do not "
    "count, nor do copies that together take less than a hundredth of the time.",
    thresholds=(thresholds.HIDDEN_COPY_SHARE,),
    needs=(ScopeView.missing_gpu_reason,),
)
def hidden_copy(view: ScopeView) -> Answer:
    is_copy, copying_op = (column[view.work_in_scope] for column in view.tables.compute_once(_find_copying_ops))
    copies = np.flatnonzero(is_copy)
    if not len(copies):
        return Answer.absent("no device-to-device copy")
    copying_op = copying_op[copies]
    has_op = copying_op >= 0
    if not has_op.any():
        return Answer.cannot_tell("device-to-device copies ran, but the ops that launched them are unknown")
    copies, copying_op = copies[has_op], copying_op[has_op]
    names = view.trace.name[copying_op]
    is_hidden = ~match_names(view.trace, EXPLICIT_COPY_OPS.__contains__, names)
    hidden, names = copies[is_hidden], names[is_hidden]
    if not len(hidden):
        return Answer.absent("the program itself requested all device-to-device copies")
    rows = view.work.events.select(hidden)
    counts = np.bincount(names)  # of equally frequent ops the first in the alphabet is named
    main_op, count = (
        min(view.trace.names[name] for name in np.flatnonzero(counts == counts.max()).tolist()),
        int(counts.max()),
    )
    copy_time = view.covered_time(rows)
    summary = (
        f"{main_op} copied {count}×{view.format_per_step(count)}; "
        f"hidden copies take {format_duration(copy_time)} on the GPU"
    )
    share = int(view.time_in_scope(rows).sum()) / max(view.window_length * len(view.tables.devices), 1)
    if share < thresholds.HIDDEN_COPY_SHARE.value:
        return Answer.absent(f"{summary}, {format_percent(share)} of the time")
    return Answer.fired(summary, rows.row, copy_time, HIDDEN_COPY_REMEDIES.get(main_op))


def _find_copying_ops(tables: TraceTables) -> tuple[Bool, I32]:
    """Find the copies within a device, bool[all work], and the outermost operator above each, -1 for none: int32."""
    work = tables.work
    # A copy into another layout is a kernel of aten::clone (casts do not call it), one of dense memory a Memcpy.
    is_copy = work.class_mask(KernelClass.COPY) & (work.kind == Kind.KERNEL) & (work.launch >= 0)
    is_copy &= tables.compute_once(find_launch_ancestors, CLONE_REGEX, Kind.OP) >= 0
    is_copy |= _mark_device_copies(tables.trace, work)
    copying_op = np.full(len(work), -1, np.int32)
    copying_op[is_copy] = find_outermost_above(tables, work.launch[is_copy], tables.mark_ops(OPERATOR_LIKE_REGEX))
    return is_copy, copying_op


def _mark_device_copies(trace: Trace, work: GpuWorkTable) -> Bool:
    mask: Bool = (work.kind == Kind.COPY) & match_names(trace, is_within_device, work.events.name)
    return mask


def device_copy_mask(view: ScopeView) -> Bool:
    """Return which work is a copy within one device's memory: bool[work]."""
    return _mark_device_copies(view.trace, view.work)
