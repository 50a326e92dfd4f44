"""Beyond Part 1, what makes the GPU wait: syncs, slow copies, input, tiny kernels, allocations."""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.event_tables import Rows
from torchprof_tui.analysis.patterns.engine.gpu_gaps import Idle
from torchprof_tui.analysis.patterns.engine.gpu_work_table import bytes_of
from torchprof_tui.analysis.patterns.engine.nearest_ancestors import nearest, outermost
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Section, Weight, absent, cannot_tell, fired
from torchprof_tui.analysis.patterns.engine.registry import pattern
from torchprof_tui.analysis.patterns.engine.scope_view import (
    NO_CALLS,
    NO_GPU,
    NO_LINKS,
    NO_STEPS,
    NOTHING_HERE,
    View,
    percent,
    several,
    us,
)
from torchprof_tui.analysis.patterns.rules.cpu_lane import last_sync
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.arrays import I64, distinct
from torchprof_tui.trace.model.event_kind import Kind

PAGEABLE = r"(Memcpy (HtoD|DtoH)|CopyHostToDevice|CopyDeviceToHost).*Pageable"
PINNED = r"(Memcpy (HtoD|DtoH)).*Pinned"
ALLOCATION = r"(cuda|hip)(Malloc|Free)$|cuMem(Alloc|Free)(_v2)?$|cuMem(Create|Release|Map|Unmap)$"
"""Calls that take memory from the driver or give it back; pool allocations (…Async) are cheap."""

OPTIMIZER = r"Optimizer\.step#"


@pattern(
    "sync-in-step",
    Section.BEYOND,
    "The CPU waits for the GPU inside a step",
    meaning="a value was brought to the CPU (.item(), .cpu(), nonzero(), printing a loss), or a sync was written: the "
    "GPU runs dry, and stays idle until its queue is filled again",
    action="keep values on the GPU, read them every hundredth step, and synchronise only where you measure",
    code="losses.append(loss.detach())  # read them after the epoch, not in each step",
    decided="A call that waits for a stream, device or event, or a device-to-host copy that blocks, inside a step. "
    "Time at stake: how long the GPU then was idle, without input and the profiler's own work.",
    weight=Weight.PROBLEM,
    by_absence=True,
)
def sync_in_step(view: View) -> Answer:
    facts = view.facts
    if not len(facts.calls):
        return cannot_tell(NO_CALLS)
    if not len(facts.work):
        return cannot_tell(NO_GPU)
    if not len(facts.steps):
        return cannot_tell(NO_STEPS)
    waits = _waits(view)
    inside = waits.where(facts.steps.of(waits.start) >= 0)
    here = inside.where(view.touches(inside.start, inside.end) & (inside.row != last_sync(view)))
    if not len(here):
        return absent()
    idle = _idle_after(view, here)
    if not idle:
        return absent(f"{several(len(here), 'wait')}, and the GPU was idle after none of them")
    steps = distinct(facts.steps.of(here.start))
    ops = outermost(view.trace, here.row, facts.aten)
    by = [facts.name(int(op)) for op in ops if op >= 0]
    who = max(sorted(set(by)), key=by.count) if by else "none of them in an op"
    calls = [facts.name(int(row)) for row in here.row]
    call = max(sorted(set(calls)), key=calls.count)
    return fired(
        f"{several(len(here), 'wait')} in {several(len(steps), 'step')} ({call}; {who}); the GPU was idle {us(idle)} "
        f"after them",
        here.row,
        min(idle, view.scope.length),
    )


def _waits(view: View) -> Rows:
    """Calls that wait for the GPU: syncs, and device-to-host copies that block, on threads that launch."""
    facts = view.facts
    work = facts.work
    copies = work.rows.where((work.kind == Kind.COPY) & (work.launch >= 0))
    blocking = facts.names_that(copies, lambda name: "DtoH" in name and "Pageable" in name)
    calls = distinct(view.trace.links.launch_of[blocking.row]).astype(np.int64)
    syncs = facts.on_launch_lanes(view.finder.syncs)
    if len(syncs) and len(calls):
        # A copy and the sync that follows it in the same op are one wait.
        ops = nearest(view.trace, syncs.row)
        calls = calls[~np.isin(nearest(view.trace, calls), ops[ops >= 0])]
    return facts.rows(np.sort(np.concatenate([syncs.row, calls])))


def _idle_after(view: View, waits: Rows) -> int:
    """ns of the window in which a GPU was idle behind one of these waits; the worst device's."""
    worst = 0
    gaps, host = view.finder.gaps, view.finder.host
    for device in view.facts.devices:
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


@pattern(
    "pageable-copy",
    Section.BEYOND,
    "Copies from memory that is not pinned",
    meaning="they go through a staging buffer: slower, and the CPU waits meanwhile",
    action="pin the memory and copy without blocking",
    code="DataLoader(…, pin_memory=True); x = x.to(device, non_blocking=True)",
    decided="Copies between host and device whose name says Pageable, of more than the limit; their bandwidth beside "
    "that of pinned copies in the trace.",
    thresholds=(limits.PAGEABLE_MIN,),
    weight=Weight.PROBLEM,
)
def pageable_copy(view: View) -> Answer:
    facts = view.facts
    if not len(facts.work):
        return cannot_tell(NO_GPU)
    copies = facts.work.rows.where(facts.work.kind == Kind.COPY)
    slow = facts.names_that(copies, lambda name: _is(PAGEABLE, name))
    size = bytes_of(view.trace, slow.row)
    large = slow.where((size < 0) | (size > limits.PAGEABLE_MIN.value))
    here = view.cut(large)
    if not len(here):
        between = facts.names_that(copies, lambda name: "HtoD" in name or "DtoH" in name or "Host" in name)
        tells = facts.names_that(between, lambda name: "Pageable" in name or "Pinned" in name)
        if len(view.cut(between)) and not len(tells):
            return cannot_tell("this trace's copies do not say whether memory is pinned")
        return absent()
    time = view.covered(here)
    speed = _bandwidth(bytes_of(view.trace, here.row), here)
    fast = facts.names_that(copies, lambda name: _is(PINNED, name))
    fast_size = bytes_of(view.trace, fast.row)
    pinned = _bandwidth(fast_size, fast.where(fast_size > limits.PAGEABLE_MIN.value))
    words = f" at {speed:.1f} GB/s" if speed else ""
    words += f", pinned ones at {pinned:.1f} GB/s" if pinned and speed else ""
    return fired(
        f"{several(len(here), 'pageable copy', 'pageable copies')}{view.per_step(len(here))}: {us(time)}{words}",
        np.sort(here.row),
        time,
    )


def _is(pattern_: str, name: str) -> bool:
    return re.match(pattern_, name) is not None


def _bandwidth(size: I64, copies: Rows) -> float | None:
    """GB/s (10^9 bytes) of these copies together, None where the trace does not tell their sizes."""
    if len(size) != len(copies) or not len(copies) or (size < 0).any():
        return None
    time = int(copies.duration.sum())
    return float(size.sum()) / time if time else None


@pattern(
    "input-starved",
    Section.BEYOND,
    "The GPU waits for the next batch",
    meaning="loading and preparing data takes longer than the step that consumes it",
    action="load in worker processes, ahead of the step, into pinned memory",
    code="DataLoader(…, num_workers=8, prefetch_factor=4, pin_memory=True, persistent_workers=True)",
    decided="GPU idle time while a launching thread is in the data loader; or, where no loader was recorded, before "
    "the first op of a step, if that takes longer than the limit.",
    thresholds=(limits.INPUT_SHARE, limits.INPUT_UNNAMED),
    weight=Weight.PROBLEM,
    by_absence=True,
)
def input_starved(view: View) -> Answer:
    facts = view.facts
    if missing := view.missing_window():
        return cannot_tell(missing)
    finder = view.finder
    if not len(finder.loading) and not len(facts.steps):
        return cannot_tell("no data loader and no steps were recorded")
    idle = sum(times.within(*view.window) for times in finder.waiting_for_input.values()) // len(facts.devices)
    what = "the data loader" if len(finder.loading) else "no op"
    share = idle / view.length
    if share < limits.INPUT_SHARE.value:
        return absent(f"the GPU waited {us(idle)} for input, {percent(share)}")
    here = view.cut(finder.fetching)
    return fired(
        f"{percent(share)} of the time ({us(idle)}) the GPU was idle while the CPU was in {what}"
        f"{' at the start of steps' if what == 'no op' else ''}",
        here.row,
        idle,
    )


@pattern(
    "idle-gap",
    Section.BEYOND,
    "The GPU is idle again and again",
    meaning="each gap has a cause on the CPU: dispatch, a sync, input, code between ops, a collective",
    action="take the most frequent cause first; the gaps are labelled on the lanes",
    decided="Gaps between pieces of GPU work (the union over streams), longer than the limit, the profiler's and the "
    "hardware's own left out; at least so many, in half of the steps where there are several, and together a "
    "noticeable share.",
    thresholds=(limits.IDLE_MIN, limits.IDLE_SHARE, limits.IDLE_TIMES, limits.IDLE_STEPS),
    weight=Weight.PROBLEM,
    by_absence=True,
)
def idle_gap(view: View) -> Answer:
    if missing := view.missing_window():
        return cannot_tell(missing)
    facts, gaps = view.facts, view.gaps
    ours = (gaps.reason != Idle.PROFILER) & (gaps.reason != Idle.QUEUED)
    long = np.flatnonzero(ours & (gaps.duration >= limits.IDLE_MIN.value))
    time = int(gaps.duration[long].sum()) // len(facts.devices)
    share = time * len(facts.devices) / view.device_time if view.device_time > 0 else 0.0
    few = len(long) < limits.IDLE_TIMES.value
    if few or share < limits.IDLE_SHARE.value:
        return absent(f"{several(len(long), 'gap')}, {percent(share)} of the time")
    if len(view.steps) > 1:
        # The step that was late is the one that launched what ends the gap.
        launch = np.where(gaps.after[long] >= 0, view.trace.links.launch_of[np.maximum(gaps.after[long], 0)], -1)
        late = facts.steps.of(view.trace.start[launch[launch >= 0]])
        late = distinct(late[late >= 0])
        if len(late) < max(2, limits.IDLE_STEPS.value * len(view.steps)):
            return absent(f"such gaps in {len(late)} of {len(view.steps)} steps only")
    reasons = np.bincount(gaps.reason[long], weights=gaps.duration[long], minlength=len(Idle))
    order = np.argsort(-reasons, kind="stable")
    listed = ", ".join(
        f"{Idle(int(reason)).label} {percent(float(reasons[reason] / reasons.sum()))}"
        for reason in order[:3]
        if reasons[reason]
    )
    around = distinct(np.concatenate([gaps.after[long][gaps.after[long] >= 0], _before(view, gaps.start[long])]))
    evidence = view.cut(facts.rows(around)).row
    evidence = evidence if len(evidence) else view.something()
    if not len(evidence):
        return cannot_tell(NOTHING_HERE)
    return fired(f"{several(len(long), 'gap')}, {us(time)} or {percent(share)} of the time: {listed}", evidence, time)


def _before(view: View, starts: I64) -> I64:
    """The steps that gaps begin in: they have a part in the scope where the work around a gap has none."""
    steps = view.facts.steps
    place = steps.of(starts)
    return steps.row[place[place >= 0]]


@pattern(
    "tiny-kernels",
    Section.BEYOND,
    "One op launches dozens of tiny kernels",
    meaning="launching takes longer than running: the GPU keeps up easily, the CPU does not",
    action="use a foreach or fused variant, compile the op, or capture it in a CUDA graph",
    code="torch.optim.AdamW(params, fused=True)",
    decided="Kernels launched beneath one operator, or one optimizer step, each launch a kernel: at least so many, "
    "with a short median.",
    thresholds=(limits.TINY_COUNT, limits.TINY_KERNEL),
    weight=Weight.PROBLEM,
)
def tiny_kernels(view: View) -> Answer:
    if missing := view.missing_gpu() or view.missing_ops():
        return cannot_tell(missing)
    facts, work = view.facts, view.work
    kernels = (work.kind == Kind.KERNEL) & (work.launch >= 0)
    if not kernels.any():
        return cannot_tell(NO_LINKS)
    optimizer = np.zeros(len(view.trace), dtype=np.bool_)
    optimizer[facts.named(OPTIMIZER).row] = True
    calls, back = np.unique(work.launch[kernels], return_inverse=True)
    owner = outermost(view.trace, calls, optimizer)
    owner = np.where(owner >= 0, owner, outermost(view.trace, calls, facts.aten))[back.reshape(-1)]
    fan_out = np.bincount(back.reshape(-1))[back.reshape(-1)]
    rows = work.rows.where(kernels)
    own = (owner >= 0) & (fan_out == 1)  # a graph's kernels cost no launch each
    found = _many_and_short(owner[own], rows.duration[own])
    if not len(found):
        return absent()
    chosen = own & np.isin(owner, found)
    here = view.cut(facts.rows(found))
    tiny = rows.where(chosen)
    counts = np.bincount(np.searchsorted(found, owner[chosen]))
    worst = int(found[int(counts.argmax())])
    return fired(
        f"{facts.name(worst)} launches {int(counts.max()):,} kernels, {us(float(np.median(tiny.duration)))} in the "
        f"median; {several(len(found), 'such call')}{view.per_step(len(found))}",
        np.sort(np.concatenate([here.row, tiny.row])),
        view.covered(here) or view.covered(tiny),
    )


def _many_and_short(owner: I64, duration: I64) -> I64:
    """The owners of many kernels whose median is short, ascending."""
    order = np.lexsort((duration, owner))
    owners, first, count = np.unique(owner[order], return_index=True, return_counts=True)
    low = duration[order][first + (count - 1) // 2]
    high = duration[order][first + count // 2]
    chosen: I64 = owners[(count >= limits.TINY_COUNT.value) & ((low + high) / 2 < limits.TINY_KERNEL.value)]
    return chosen


@pattern(
    "alloc-in-step",
    Section.BEYOND,
    "Memory from the driver in steady steps",
    meaning="the caching allocator found nothing to reuse: shapes change, or memory is short; cudaFree waits as well",
    action="warm up, keep shapes fixed, or let segments grow",
    code="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
    decided="cudaMalloc, cudaFree and their kin on any thread, inside a step after the first.",
    weight=Weight.PROBLEM,
)
def alloc_in_step(view: View) -> Answer:
    facts = view.facts
    if not len(facts.calls):
        return cannot_tell(NO_CALLS)
    if len(facts.steps) < 2:
        return cannot_tell("fewer than two steps were recorded: the first one may allocate")
    rows = view.named(ALLOCATION, Kind.RUNTIME)
    steps = facts.steps.of(rows.start)
    late = rows.where(steps >= 1)
    if not len(late):
        return absent("only in the first step" if len(rows) else "")
    time = view.covered(late)
    calls = sorted({facts.name(int(row)) for row in late.row})
    return fired(
        f"{several(len(late), 'call')} ({', '.join(calls)}) in {several(len(distinct(steps[steps >= 1])), 'step')} "
        f"after the first: {us(time)}",
        late.row,
        time,
    )
