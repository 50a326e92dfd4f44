"""Patterns that make the GPU wait: syncs, slow copies, input, tiny kernels, allocations."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import nearest_ancestor
from torchprof_tui.analysis.kernel.names.copies import is_host_copy, is_pageable, is_pinned, is_to_host
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine import undecidable_reasons as reasons
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable, transfer_sizes
from torchprof_tui.analysis.patterns.engine.host_activity import ALLOCATION_CALL_REGEX, DATA_LOADER_REGEX
from torchprof_tui.analysis.patterns.engine.launch_owners import find_launch_ancestors, find_owner_ops
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    find_event_places,
    register_notice,
    register_pattern,
    sort_places,
)
from torchprof_tui.analysis.patterns.engine.practices import OPTIMIZER_STEP_REGEX
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.rules import remedy_choice
from torchprof_tui.analysis.patterns.rules.cpu_lane import find_trailing_sync
from torchprof_tui.analysis.patterns.rules.optimizer import count_optimizer_launches
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import I64, find_median, is_in, number_distinct, sorted_unique
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind


@register_pattern(
    "The CPU waits for the GPU inside a step",
    meaning="the CPU reads a value of the GPU (.item(), .cpu(), nonzero(), a printed loss) or synchronises, and the "
    "GPU's queue runs empty",
    action="keep values on the GPU, read them only every hundredth step, and synchronise only to measure",
    code="losses.append(loss.detach())  # read them after the epoch, not in each step",
    decided="A call inside a step that waits for a stream, device or event, or a device-to-host copy that blocks. "
    "Time at stake: the idle time of the GPU after it, without input and the profiler's own work.",
    fires_on_absence=True,
    needs=(ScopeView.missing_calls_reason, ScopeView.missing_work_reason, ScopeView.missing_steps_reason),
)
def sync_in_step(view: ScopeView) -> Answer:
    tables = view.tables
    all_waits = find_waits(view)
    in_step = all_waits.select(tables.steps.index_at(all_waits.start) >= 0)
    waits = in_step.select(view.overlap_mask(in_step.start, in_step.end) & (in_step.row != find_trailing_sync(view)))
    if not len(waits):
        return Answer.absent()
    outer_ops = find_owner_ops(tables, waits.row)
    # On Ascend the op waits for the thread that launches, which may be at work: only the call itself is lost.
    lost_time = find_lost_time(view, waits, tables.outermost_ancestor(waits.row, tables.is_dispatcher_op))
    idle_time = measure_idle(view, lost_time)
    if not idle_time:
        return Answer.absent(f"{format_count(len(waits), 'wait')}, and the GPU was idle after none of them")
    steps = sorted_unique(tables.steps.index_at(waits.start))
    op_names = [tables.name(int(op)) for op in outer_ops if op >= 0]
    main_op = max(sorted(set(op_names)), key=op_names.count) if op_names else "none of them in an op"
    of_main_op = [not op_names or (op >= 0 and tables.name(int(op)) == main_op) for op in outer_ops]
    call_names = [tables.name(int(row)) for row in waits.row[of_main_op]]
    main_call = max(sorted(set(call_names)), key=call_names.count)
    remedy = remedy_choice.choose_sync_remedy(view, waits, main_op if op_names else "", main_call)
    places = find_event_places(view.trace, waits.row, measure_idle_after(view, waits, lost_time))
    seen = (
        f"{format_count(len(waits), 'wait')} in {format_count(len(steps), 'step')} ({main_call}; {main_op}); the "
        f"GPU was idle {format_duration(idle_time)} because of them"
    )
    return Answer.fired(seen, waits.row, min(idle_time, view.scope.length), remedy, lost_time, places)


@register_pattern(
    "Copies from memory that is not pinned",
    meaning="a copy of memory that is not pinned goes through a staging buffer, at half the speed or less",
    action="pin the memory and copy without blocking",
    code="DataLoader(…, pin_memory=True); x = x.to(device, non_blocking=True)",
    decided="Copies between host and device with Pageable in their name, larger than the limit. Shown with them: "
    "their bandwidth and that of pinned copies in the trace.",
    thresholds=(thresholds.PAGEABLE_MIN,),
    needs=(ScopeView.missing_work_reason,),
)
def pageable_copy(view: ScopeView) -> Answer:
    tables = view.tables
    all_copies = tables.work.events.select(tables.work.kind == Kind.COPY)
    host_copies = tables.filter_by_name(all_copies, is_host_copy)
    pageable = tables.filter_by_name(host_copies, is_pageable)
    pageable_size = transfer_sizes(view.trace, pageable.row)
    large_copies = pageable.select((pageable_size < 0) | (pageable_size > thresholds.PAGEABLE_MIN.value))
    copies = view.select_in_scope(large_copies)
    if not len(copies):
        labelled = tables.filter_by_name(host_copies, lambda name: is_pageable(name) or is_pinned(name))
        if len(view.select_in_scope(host_copies)) and not len(labelled):
            return Answer.cannot_tell("the copies in this trace do not record whether memory is pinned")
        return Answer.absent()
    copy_time = view.covered_time(copies)
    # A thread is in the calls of these copies, and in the waits of the same op that follow.
    launch = view.trace.links.launch_of[copies.row]
    calls = sorted_unique(launch[launch >= 0]).astype(np.int64)
    syncs, ops = view.gap_finder.sync_calls, view.trace.parent[calls]
    own = syncs.select(is_in(view.trace.parent[syncs.row], ops[ops >= 0]))
    blocking = view.clip(tables.event_table(calls).intervals | own.intervals)
    bandwidth = _compute_bandwidth(transfer_sizes(view.trace, copies.row), copies)
    pinned = tables.filter_by_name(host_copies, is_pinned)
    pinned_size = transfer_sizes(view.trace, pinned.row)
    pinned_bandwidth = _compute_bandwidth(pinned_size, pinned.select(pinned_size > thresholds.PAGEABLE_MIN.value))
    bandwidth_text = f" at {bandwidth:.1f} GB/s" if bandwidth else ""
    bandwidth_text += f", pinned ones at {pinned_bandwidth:.1f} GB/s" if pinned_bandwidth and bandwidth else ""
    at_stake, remedy = view.clip(copies.intervals) | blocking, remedy_choice.choose_copy_remedy(view, copies)
    seen = f"{view.format_count(len(copies), 'pageable copy', 'pageable copies')}: {format_duration(copy_time)}"
    return Answer.fired(seen + bandwidth_text, np.sort(copies.row), at_stake.total, remedy, blocking)


def _compute_bandwidth(size: I64, copies: EventTable) -> float | None:
    """Compute the GB/s (10^9 bytes) of these copies together, None where their sizes were not recorded."""
    if len(size) != len(copies) or not len(copies) or (size < 0).any():
        return None
    time = int(copies.duration.sum())
    return float(size.sum()) / time if time else None


@register_pattern(
    "The step waits for the next batch",
    meaning="loading and preparing a batch takes longer than the step that uses it",
    action="load in worker processes, ahead of the step, into pinned memory",
    code="DataLoader(…, num_workers=8, prefetch_factor=4, pin_memory=True, persistent_workers=True)",
    decided="GPU idle time while a launching thread is in the data loader; without a recorded loader, GPU idle time "
    "before the first op of a step, if longer than the limit. Without a GPU: the time in the data loader.",
    thresholds=(thresholds.INPUT_SHARE, thresholds.INPUT_WITHOUT_LOADER_MIN),
    fires_on_absence=True,
)
def input_starved(view: ScopeView) -> Answer:
    tables = view.tables
    if missing_reason := view.missing_window_reason():
        return _answer_without_gpu(view) if missing_reason == reasons.NO_GPU else Answer.cannot_tell(missing_reason)
    gap_finder = view.gap_finder
    if not len(gap_finder.loader_calls) and not len(tables.steps):
        return Answer.cannot_tell(
            reasons.NO_LOADER_WHILE_SERVING if tables.trace.steps else "no data loader and no steps were recorded"
        )
    idle_time = view.time_in_window(gap_finder.input_idle_intervals) // len(tables.devices)
    has_loader, share = len(gap_finder.loader_calls) > 0, idle_time / view.window_length
    if share < thresholds.INPUT_SHARE.value:
        return Answer.absent(f"the GPU waited {format_duration(idle_time)} for input, {format_percent(share)}")
    evidence = view.select_in_scope(gap_finder.input_waits)
    where = "the data loader" if has_loader else "no op at the start of steps"
    seen = f"{format_percent(share)} of the time ({format_duration(idle_time)}) the GPU was idle while the CPU was in "
    places = sort_places(evidence.start, evidence.end, evidence.row, evidence.duration, not has_loader)
    remedy = remedy_choice.choose_input_remedy(view)
    # The spans: of a step without a loader's call, only the time before its first op.
    return Answer.fired(seen + where, evidence.row, idle_time, remedy, gap_finder.input_intervals, places)


def _answer_without_gpu(view: ScopeView) -> Answer:
    """Answer for a program without a GPU: the share of the time in which it was in the data loader."""
    calls = view.match_names(DATA_LOADER_REGEX)
    if not len(calls) or not view.window_length:
        return Answer.cannot_tell(reasons.NO_GPU)
    time = calls.intervals.measure_between(*view.window)
    share = time / view.window_length
    if share < thresholds.INPUT_SHARE.value:
        return Answer.absent(f"the program was {format_duration(time)} in the data loader, {format_percent(share)}")
    seen = f"{format_percent(share)} of the time ({format_duration(time)}) the program was in the data loader"
    return Answer.fired(seen, calls.row, time, remedy_choice.choose_cpu_input_remedy(view))


@register_notice(
    "The GPU is idle repeatedly",
    meaning="something on the CPU holds up the next launch",
    action="fix the most frequent cause first: x on the lanes names the one of each gap",
    decided="Gaps between pieces of GPU work (over all streams), longer than the limit, without the time of the "
    "profiler and of queued work. Their number, the share of steps with such gaps, and their share of the "
    "time must reach the limits.",
    thresholds=(thresholds.IDLE_MIN, thresholds.IDLE_SHARE, thresholds.IDLE_MIN_GAPS, thresholds.IDLE_STEPS_SHARE),
    fires_on_absence=True,
    needs=(ScopeView.missing_window_reason,),
)
def idle_gap(view: ScopeView) -> Answer:
    tables, gaps = view.tables, view.gaps
    program_time = gaps.program_time
    long_gaps = np.flatnonzero(program_time >= thresholds.IDLE_MIN.value)
    idle_time = int(program_time[long_gaps].sum()) // len(tables.devices)
    share = idle_time * len(tables.devices) / view.device_time if view.device_time > 0 else 0.0
    is_rare = len(long_gaps) < thresholds.IDLE_MIN_GAPS.value
    if is_rare or share < thresholds.IDLE_SHARE.value:
        return Answer.absent(f"{format_count(len(long_gaps), 'gap')}, {format_percent(share)} of the time")
    next_event = gaps.next_event[long_gaps]
    if len(view.steps) > 1:
        # The late step is the one that launched the work after the gap.
        launch = np.where(next_event >= 0, view.trace.links.launch_of[np.maximum(next_event, 0)], -1)
        late_steps = tables.steps.index_at(view.trace.start[launch[launch >= 0]])
        late_steps = sorted_unique(late_steps[late_steps >= 0])
        if len(late_steps) < max(2, thresholds.IDLE_STEPS_SHARE.value * len(view.steps)):
            return Answer.absent(f"such gaps in {len(late_steps)} of {len(view.steps)} steps only")
    time_by_cause = gaps.program_time_by_cause(long_gaps)
    cause_text = ", ".join(
        f"{cause.label} {format_percent(time_by_cause[cause] / view.device_time)}"
        for cause in sorted(time_by_cause, key=lambda cause: -time_by_cause[cause])[:3]
    )
    # Steps in which gaps start overlap the scope where the work around a gap does not.
    steps = tables.steps
    step_indices = steps.index_at(gaps.start[long_gaps])
    neighbours = np.concatenate([next_event[next_event >= 0], steps.row[step_indices[step_indices >= 0]]])
    evidence = view.select_in_scope(tables.event_table(sorted_unique(neighbours))).row
    evidence = evidence if len(evidence) else view.representative_events()
    if not len(evidence):
        return Answer.cannot_tell(reasons.NOTHING_HERE)
    seen = (
        f"{format_count(len(long_gaps), 'gap')} of {format_duration(thresholds.IDLE_MIN.value)} or more, "
        f"{format_duration(idle_time)} or {format_percent(share)} of {view.window_label}: {cause_text}"
    )
    places = sort_places(gaps.start[long_gaps], gaps.end[long_gaps], next_event, program_time[long_gaps], True)
    return Answer.fired(seen, evidence, idle_time, places=places)


@register_pattern(
    "One op launches dozens of tiny kernels",
    meaning="launching a kernel takes longer than running it, so the GPU waits for the CPU",
    action="use a foreach or fused variant, compile the op, or capture it in a CUDA graph",
    decided="Kernels that one operator or one optimizer step launches, one launch each, without optimizer steps "
    "that loop over parameters (`optimizer-loop`). Their number must reach the "
    "first limit, and their median duration must be below the second.",
    thresholds=(thresholds.TINY_KERNEL_MIN_COUNT, thresholds.TINY_KERNEL_MAX),
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason),
)
def tiny_kernels(view: ScopeView) -> Answer:
    tables, work = view.tables, view.work
    is_kernel = (work.kind == Kind.KERNEL) & (work.launch >= 0)
    if not is_kernel.any():
        return Answer.cannot_tell(reasons.NO_LINKS)
    _, call_index = number_distinct(work.launch[is_kernel], len(view.trace))
    steps = tables.compute_once(find_launch_ancestors, OPTIMIZER_STEP_REGEX)
    owner = steps[view.work_in_scope][is_kernel].astype(np.int64)
    owner = np.where(owner >= 0, owner, view.outer_op[is_kernel])
    fan_out = np.bincount(call_index)[call_index]
    kernel_events = work.events.select(is_kernel)
    has_own_launch = (owner >= 0) & (fan_out == 1)  # kernels of a graph share one launch
    tiny_owners = _find_tiny_kernel_owners(owner[has_own_launch], kernel_events.duration[has_own_launch])
    looping = view.compute_once(count_optimizer_launches).looping  # `optimizer-loop` counts these
    tiny_owners = tiny_owners[~is_in(tiny_owners, looping)]
    if not len(tiny_owners):
        return Answer.absent()
    is_tiny = has_own_launch & is_in(owner, tiny_owners)
    owners_in_scope = view.select_in_scope(tables.event_table(tiny_owners))
    tiny_events = kernel_events.select(is_tiny)
    kernels_by_owner = np.bincount(np.searchsorted(tiny_owners, owner[is_tiny]))
    name = tables.name(int(tiny_owners[int(kernels_by_owner.argmax())]))
    median, calls = format_duration(find_median(tiny_events.duration)), view.format_count(len(tiny_owners), "such call")
    seen = f"{name} launches {int(kernels_by_owner.max()):,} kernels, {median} in the median; {calls}"
    events = np.sort(np.concatenate([owners_in_scope.row, tiny_events.row]))
    at_stake = view.covered_time(owners_in_scope) or view.covered_time(tiny_events)
    return Answer.fired(seen, events, at_stake, remedy_choice.choose_tiny_kernel_remedy(view, name))


def _find_tiny_kernel_owners(owner: I64, duration: I64) -> I64:
    """Find the owners of many kernels whose median duration is short, ascending."""
    is_large = np.bincount(owner, minlength=1) >= thresholds.TINY_KERNEL_MIN_COUNT.value
    owner, duration = owner[is_large[owner]], duration[is_large[owner]]
    order = np.lexsort((duration, owner))
    owners, first, count = np.unique(owner[order], return_index=True, return_counts=True)
    lower_median = duration[order][first + (count - 1) // 2]
    upper_median = duration[order][first + count // 2]
    tiny_owners: I64 = owners[(lower_median + upper_median) / 2 < thresholds.TINY_KERNEL_MAX.value]
    return tiny_owners


@register_pattern(
    "Steps allocate memory from the driver",
    meaning="the caching allocator had no memory to reuse: it was given back, shapes change, or memory is short",
    action="warm up, keep shapes fixed, or let memory segments grow",
    code="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
    decided="cudaMalloc, cudaFree and similar calls on any thread, inside a step after the first, or inside all of "
    "them at about the same rate. Each delays what is launched after it by its own length.",
    thresholds=(thresholds.RECURRING_RATE,),
    needs=(ScopeView.missing_calls_reason,),
)
def alloc_in_step(view: ScopeView) -> Answer:
    tables = view.tables
    if len(tables.steps) < 2:
        return Answer.cannot_tell("fewer than two steps were recorded, and allocations in the first one are normal")
    allocations = view.match_names(ALLOCATION_CALL_REGEX, Kind.RUNTIME)
    steps = tables.steps.index_at(allocations.start)
    per_step = np.bincount(steps[steps >= 0], minlength=len(tables.steps))
    recurs = per_step.min() >= thresholds.RECURRING_RATE.value * per_step.max()
    late_calls = allocations.select(steps >= (0 if recurs else 1))
    if not len(late_calls):
        return Answer.absent("only in the first step" if len(allocations) else "")
    time = view.covered_time(late_calls)
    call_names = sorted({tables.name(int(row)) for row in late_calls.row})
    later = f"{format_count(int((per_step[1:] > 0).sum()), 'step')} after the first"
    seen = (
        f"{format_count(len(late_calls), 'call')} ({', '.join(call_names)}) in "
        f"{f'all {len(per_step):,} steps' if recurs else later}: {format_duration(time)}"
    )
    remedy = remedy_choice.choose_allocation_remedy(view, late_calls)
    held_up = union(late_calls.start, late_calls.end + late_calls.duration)
    return Answer.fired(seen, late_calls.row, time, remedy, held_up)


def find_waits(view: ScopeView) -> EventTable:
    """Find calls that wait for the GPU on threads that launch: syncs and blocking device-to-host copies."""
    tables, work = view.tables, view.tables.work
    copies = work.events.select((work.kind == Kind.COPY) & (work.launch >= 0))
    blocking = tables.filter_by_name(copies, lambda name: is_to_host(name) and is_pageable(name))
    calls = sorted_unique(view.trace.links.launch_of[blocking.row]).astype(np.int64)
    syncs = tables.select_on_launch_lanes(view.gap_finder.sync_calls)
    if len(syncs) and len(calls):
        # A copy and the sync that follows it in the same op are one wait.
        ops = nearest_ancestor(view.trace, syncs.row)
        calls = calls[~is_in(nearest_ancestor(view.trace, calls), ops[ops >= 0])]
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
        np.concatenate([ops.start, waits.start, end[is_row]]), np.concatenate([ops.end, waits.end, next_start[is_row]])
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
    return max((in_window.measure_overlap(idle) for idle in view.gap_finder.known_idle_intervals.values()), default=0)
