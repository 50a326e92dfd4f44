"""Beyond Part 1, what makes the GPU wait: syncs, slow copies, input, tiny kernels, allocations."""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.gpu_gaps import IdleReason
from torchprof_tui.analysis.patterns.engine.gpu_work_table import transfer_sizes
from torchprof_tui.analysis.patterns.engine.nearest_ancestors import nearest_ancestor, outermost_ancestor
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Section,
    Severity,
    absent_answer,
    cannot_tell_answer,
    fired_answer,
)
from torchprof_tui.analysis.patterns.engine.registry import register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import (
    NO_CALLS,
    NO_GPU,
    NO_LINKS,
    NO_STEPS,
    NOTHING_HERE,
    ScopeView,
    format_count,
    format_percent,
    us,
)
from torchprof_tui.analysis.patterns.rules.cpu_lane import find_trailing_sync
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.arrays import I64, sorted_unique
from torchprof_tui.trace.model.event_kind import Kind

PAGEABLE_COPY_REGEX = r"(Memcpy (HtoD|DtoH)|CopyHostToDevice|CopyDeviceToHost).*Pageable"
PINNED_COPY_REGEX = r"(Memcpy (HtoD|DtoH)).*Pinned"
ALLOCATION_CALL_REGEX = r"(cuda|hip)(Malloc|Free)$|cuMem(Alloc|Free)(_v2)?$|cuMem(Create|Release|Map|Unmap)$"
"""Calls that take memory from the driver or give it back; pool allocations (…Async) are cheap."""

OPTIMIZER_STEP_REGEX = r"Optimizer\.step#"


@register_pattern(
    "sync-in-step",
    Section.BEYOND,
    "The CPU waits for the GPU inside a step",
    meaning="a value was brought to the CPU (.item(), .cpu(), nonzero(), printing a loss), or a sync was written: the "
    "GPU runs dry, and stays idle until its queue is filled again",
    action="keep values on the GPU, read them every hundredth step, and synchronise only where you measure",
    code="losses.append(loss.detach())  # read them after the epoch, not in each step",
    decided="A call that waits for a stream, device or event, or a device-to-host copy that blocks, inside a step. "
    "Time at stake: how long the GPU then was idle, without input and the profiler's own work.",
    severity=Severity.PROBLEM,
    fires_on_absence=True,
)
def sync_in_step(view: ScopeView) -> Answer:
    facts = view.tables
    if not len(facts.calls):
        return cannot_tell_answer(NO_CALLS)
    if not len(facts.work):
        return cannot_tell_answer(NO_GPU)
    if not len(facts.steps):
        return cannot_tell_answer(NO_STEPS)
    waits = _find_waits(view)
    inside = waits.select(facts.steps.index_at(waits.start) >= 0)
    here = inside.select(view.overlap_mask(inside.start, inside.end) & (inside.row != find_trailing_sync(view)))
    if not len(here):
        return absent_answer()
    idle = _idle_time_after(view, here)
    if not idle:
        return absent_answer(f"{format_count(len(here), 'wait')}, and the GPU was idle after none of them")
    steps = sorted_unique(facts.steps.index_at(here.start))
    ops = outermost_ancestor(view.trace, here.row, facts.is_dispatcher_op)
    by = [facts.name(int(op)) for op in ops if op >= 0]
    who = max(sorted(set(by)), key=by.count) if by else "none of them in an op"
    calls = [facts.name(int(row)) for row in here.row]
    call = max(sorted(set(calls)), key=calls.count)
    return fired_answer(
        f"{format_count(len(here), 'wait')} in {format_count(len(steps), 'step')} ({call}; {who}); the GPU was idle {us(idle)} "
        f"after them",
        here.row,
        min(idle, view.scope.length),
    )


def _find_waits(view: ScopeView) -> EventTable:
    """Calls that wait for the GPU: syncs, and device-to-host copies that block, on threads that launch."""
    facts = view.tables
    work = facts.work
    copies = work.events.select((work.kind == Kind.COPY) & (work.launch >= 0))
    blocking = facts.filter_by_name(copies, lambda name: "DtoH" in name and "Pageable" in name)
    calls = sorted_unique(view.trace.links.launch_of[blocking.row]).astype(np.int64)
    syncs = facts.select_on_launch_lanes(view.gap_finder.sync_calls)
    if len(syncs) and len(calls):
        # A copy and the sync that follows it in the same op are one wait.
        ops = nearest_ancestor(view.trace, syncs.row)
        calls = calls[~np.isin(nearest_ancestor(view.trace, calls), ops[ops >= 0])]
    return facts.event_table(np.sort(np.concatenate([syncs.row, calls])))


def _idle_time_after(view: ScopeView, waits: EventTable) -> int:
    """ns of the window in which a GPU was idle behind one of these waits; the worst device's."""
    worst = 0
    gaps, host = view.gap_finder.gaps, view.gap_finder.host_activity
    for device in view.tables.devices:
        mine = gaps.device == device
        start, end = gaps.start[mine], gaps.end[mine]
        if not len(start):
            continue
        # Each wait's gap: the one in which it returned.
        place = np.maximum(start.searchsorted(waits.end, side="right") - 1, 0)
        hit = (start[place] <= waits.end) & (waits.end <= end[place])
        place = place[hit]
        idle = union(np.maximum(start[place], waits.start[hit]), end[place])
        own = (idle - host.profiler - host.input).clip(*view.window)
        worst = max(worst, own.total)
    return worst


@register_pattern(
    "pageable-copy",
    Section.BEYOND,
    "Copies from memory that is not pinned",
    meaning="they go through a staging buffer: slower, and the CPU waits meanwhile",
    action="pin the memory and copy without blocking",
    code="DataLoader(…, pin_memory=True); x = x.to(device, non_blocking=True)",
    decided="Copies between host and device whose name says Pageable, of more than the limit; their bandwidth beside "
    "that of pinned copies in the trace.",
    thresholds=(limits.PAGEABLE_MIN,),
    severity=Severity.PROBLEM,
)
def pageable_copy(view: ScopeView) -> Answer:
    facts = view.tables
    if not len(facts.work):
        return cannot_tell_answer(NO_GPU)
    copies = facts.work.events.select(facts.work.kind == Kind.COPY)
    slow = facts.filter_by_name(copies, lambda name: _matches(PAGEABLE_COPY_REGEX, name))
    size = transfer_sizes(view.trace, slow.row)
    large = slow.select((size < 0) | (size > limits.PAGEABLE_MIN.value))
    here = view.select_in_scope(large)
    if not len(here):
        between = facts.filter_by_name(copies, lambda name: "HtoD" in name or "DtoH" in name or "Host" in name)
        tells = facts.filter_by_name(between, lambda name: "Pageable" in name or "Pinned" in name)
        if len(view.select_in_scope(between)) and not len(tells):
            return cannot_tell_answer("this trace's copies do not say whether memory is pinned")
        return absent_answer()
    time = view.covered_time(here)
    speed = _compute_bandwidth(transfer_sizes(view.trace, here.row), here)
    fast = facts.filter_by_name(copies, lambda name: _matches(PINNED_COPY_REGEX, name))
    fast_size = transfer_sizes(view.trace, fast.row)
    pinned = _compute_bandwidth(fast_size, fast.select(fast_size > limits.PAGEABLE_MIN.value))
    words = f" at {speed:.1f} GB/s" if speed else ""
    words += f", pinned ones at {pinned:.1f} GB/s" if pinned and speed else ""
    return fired_answer(
        f"{format_count(len(here), 'pageable copy', 'pageable copies')}{view.format_per_step(len(here))}: {us(time)}{words}",
        np.sort(here.row),
        time,
    )


def _matches(pattern_: str, name: str) -> bool:
    return re.match(pattern_, name) is not None


def _compute_bandwidth(size: I64, copies: EventTable) -> float | None:
    """GB/s (10^9 bytes) of these copies together, None where the trace does not tell their sizes."""
    if len(size) != len(copies) or not len(copies) or (size < 0).any():
        return None
    time = int(copies.duration.sum())
    return float(size.sum()) / time if time else None


@register_pattern(
    "input-starved",
    Section.BEYOND,
    "The GPU waits for the next batch",
    meaning="loading and preparing data takes longer than the step that consumes it",
    action="load in worker processes, ahead of the step, into pinned memory",
    code="DataLoader(…, num_workers=8, prefetch_factor=4, pin_memory=True, persistent_workers=True)",
    decided="GPU idle time while a launching thread is in the data loader; or, where no loader was recorded, before "
    "the first op of a step, if that takes longer than the limit.",
    thresholds=(limits.INPUT_SHARE, limits.INPUT_WITHOUT_LOADER_MIN),
    severity=Severity.PROBLEM,
    fires_on_absence=True,
)
def input_starved(view: ScopeView) -> Answer:
    facts = view.tables
    if missing := view.missing_window_reason():
        return cannot_tell_answer(missing)
    finder = view.gap_finder
    if not len(finder.loader_calls) and not len(facts.steps):
        return cannot_tell_answer("no data loader and no steps were recorded")
    idle = sum(times.measure_between(*view.window) for times in finder.input_idle_intervals.values()) // len(
        facts.devices
    )
    what = "the data loader" if len(finder.loader_calls) else "no op"
    share = idle / view.window_length
    if share < limits.INPUT_SHARE.value:
        return absent_answer(f"the GPU waited {us(idle)} for input, {format_percent(share)}")
    here = view.select_in_scope(finder.input_waits)
    return fired_answer(
        f"{format_percent(share)} of the time ({us(idle)}) the GPU was idle while the CPU was in {what}"
        f"{' at the start of steps' if what == 'no op' else ''}",
        here.row,
        idle,
    )


@register_pattern(
    "idle-gap",
    Section.BEYOND,
    "The GPU is idle again and again",
    meaning="each gap has a cause on the CPU: dispatch, a sync, input, code between ops, a collective",
    action="take the most frequent cause first; the gaps are labelled on the lanes",
    decided="Gaps between pieces of GPU work (the union over streams), longer than the limit, the profiler's and the "
    "hardware's own left out; at least so many, in half of the steps where there are several, and together a "
    "noticeable share.",
    thresholds=(limits.IDLE_MIN, limits.IDLE_SHARE, limits.IDLE_MIN_GAPS, limits.IDLE_STEPS_SHARE),
    severity=Severity.PROBLEM,
    fires_on_absence=True,
)
def idle_gap(view: ScopeView) -> Answer:
    if missing := view.missing_window_reason():
        return cannot_tell_answer(missing)
    facts, gaps = view.tables, view.gaps
    ours = (gaps.reason != IdleReason.PROFILER) & (gaps.reason != IdleReason.QUEUED)
    long = np.flatnonzero(ours & (gaps.duration >= limits.IDLE_MIN.value))
    time = int(gaps.duration[long].sum()) // len(facts.devices)
    share = time * len(facts.devices) / view.device_time if view.device_time > 0 else 0.0
    few = len(long) < limits.IDLE_MIN_GAPS.value
    if few or share < limits.IDLE_SHARE.value:
        return absent_answer(f"{format_count(len(long), 'gap')}, {format_percent(share)} of the time")
    if len(view.steps) > 1:
        # The step that was late is the one that launched what ends the gap.
        launch = np.where(
            gaps.next_event[long] >= 0, view.trace.links.launch_of[np.maximum(gaps.next_event[long], 0)], -1
        )
        late = facts.steps.index_at(view.trace.start[launch[launch >= 0]])
        late = sorted_unique(late[late >= 0])
        if len(late) < max(2, limits.IDLE_STEPS_SHARE.value * len(view.steps)):
            return absent_answer(f"such gaps in {len(late)} of {len(view.steps)} steps only")
    reasons = np.bincount(gaps.reason[long], weights=gaps.duration[long], minlength=len(IdleReason))
    order = np.argsort(-reasons, kind="stable")
    listed = ", ".join(
        f"{IdleReason(int(reason)).label} {format_percent(float(reasons[reason] / reasons.sum()))}"
        for reason in order[:3]
        if reasons[reason]
    )
    around = sorted_unique(
        np.concatenate([gaps.next_event[long][gaps.next_event[long] >= 0], _find_steps_at(view, gaps.start[long])])
    )
    evidence = view.select_in_scope(facts.event_table(around)).row
    evidence = evidence if len(evidence) else view.representative_events()
    if not len(evidence):
        return cannot_tell_answer(NOTHING_HERE)
    return fired_answer(
        f"{format_count(len(long), 'gap')}, {us(time)} or {format_percent(share)} of the time: {listed}", evidence, time
    )


def _find_steps_at(view: ScopeView, starts: I64) -> I64:
    """The steps that gaps begin in: they have a part in the scope where the work around a gap has none."""
    steps = view.tables.steps
    place = steps.index_at(starts)
    return steps.row[place[place >= 0]]


@register_pattern(
    "tiny-kernels",
    Section.BEYOND,
    "One op launches dozens of tiny kernels",
    meaning="launching takes longer than running: the GPU keeps up easily, the CPU does not",
    action="use a foreach or fused variant, compile the op, or capture it in a CUDA graph",
    code="torch.optim.AdamW(params, fused=True)",
    decided="Kernels launched beneath one operator, or one optimizer step, each launch a kernel: at least so many, "
    "with a short median.",
    thresholds=(limits.TINY_KERNEL_MIN_COUNT, limits.TINY_KERNEL_MAX),
    severity=Severity.PROBLEM,
)
def tiny_kernels(view: ScopeView) -> Answer:
    if missing := view.missing_gpu_reason() or view.missing_ops_reason():
        return cannot_tell_answer(missing)
    facts, work = view.tables, view.work
    kernels = (work.kind == Kind.KERNEL) & (work.launch >= 0)
    if not kernels.any():
        return cannot_tell_answer(NO_LINKS)
    optimizer = np.zeros(len(view.trace), dtype=np.bool_)
    optimizer[facts.match_names(OPTIMIZER_STEP_REGEX).row] = True
    calls, back = np.unique(work.launch[kernels], return_inverse=True)
    owner = outermost_ancestor(view.trace, calls, optimizer)
    owner = np.where(owner >= 0, owner, outermost_ancestor(view.trace, calls, facts.is_dispatcher_op))[back.reshape(-1)]
    fan_out = np.bincount(back.reshape(-1))[back.reshape(-1)]
    rows = work.events.select(kernels)
    own = (owner >= 0) & (fan_out == 1)  # a graph's kernels cost no launch each
    found = _find_tiny_kernel_owners(owner[own], rows.duration[own])
    if not len(found):
        return absent_answer()
    chosen = own & np.isin(owner, found)
    here = view.select_in_scope(facts.event_table(found))
    tiny = rows.select(chosen)
    counts = np.bincount(np.searchsorted(found, owner[chosen]))
    worst = int(found[int(counts.argmax())])
    return fired_answer(
        f"{facts.name(worst)} launches {int(counts.max()):,} kernels, {us(float(np.median(tiny.duration)))} in the "
        f"median; {format_count(len(found), 'such call')}{view.format_per_step(len(found))}",
        np.sort(np.concatenate([here.row, tiny.row])),
        view.covered_time(here) or view.covered_time(tiny),
    )


def _find_tiny_kernel_owners(owner: I64, duration: I64) -> I64:
    """The owners of many kernels whose median is short, ascending."""
    order = np.lexsort((duration, owner))
    owners, first, count = np.unique(owner[order], return_index=True, return_counts=True)
    low = duration[order][first + (count - 1) // 2]
    high = duration[order][first + count // 2]
    chosen: I64 = owners[
        (count >= limits.TINY_KERNEL_MIN_COUNT.value) & ((low + high) / 2 < limits.TINY_KERNEL_MAX.value)
    ]
    return chosen


@register_pattern(
    "alloc-in-step",
    Section.BEYOND,
    "Memory from the driver in steady steps",
    meaning="the caching allocator found nothing to reuse: shapes change, or memory is short; cudaFree waits as well",
    action="warm up, keep shapes fixed, or let segments grow",
    code="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
    decided="cudaMalloc, cudaFree and their kin on any thread, inside a step after the first.",
    severity=Severity.PROBLEM,
)
def alloc_in_step(view: ScopeView) -> Answer:
    facts = view.tables
    if not len(facts.calls):
        return cannot_tell_answer(NO_CALLS)
    if len(facts.steps) < 2:
        return cannot_tell_answer("fewer than two steps were recorded: the first one may allocate")
    rows = view.match_names(ALLOCATION_CALL_REGEX, Kind.RUNTIME)
    steps = facts.steps.index_at(rows.start)
    late = rows.select(steps >= 1)
    if not len(late):
        return absent_answer("only in the first step" if len(rows) else "")
    time = view.covered_time(late)
    calls = sorted({facts.name(int(row)) for row in late.row})
    return fired_answer(
        f"{format_count(len(late), 'call')} ({', '.join(calls)}) in {format_count(len(sorted_unique(steps[steps >= 1])), 'step')} "
        f"after the first: {us(time)}",
        late.row,
        time,
    )
