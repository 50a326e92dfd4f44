"""Section "GPU lane": gaps that are not the program's, times that vary, GEMMs and what stands before them."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Section,
    Severity,
    absent_answer,
    cannot_tell_answer,
    fired_answer,
)
from torchprof_tui.analysis.patterns.engine.registry import register_pattern
from torchprof_tui.analysis.patterns.engine.repeated_steps import find_one_off_gaps
from torchprof_tui.analysis.patterns.engine.scope_view import (
    NO_GPU,
    NO_LINKS,
    NO_STEPS,
    NOTHING_HERE,
    ScopeView,
    format_count,
    format_percent,
    us,
)
from torchprof_tui.analysis.patterns.rules.cpu_lane import device_copy_mask
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.event_kind import Kind


@register_pattern(
    "buffer-request",
    Section.GPU_LANE,
    "The profiler asked for buffers",
    meaning="room for the profiler's own records; it explains the first offset between CPU and GPU",
    action="nothing: let the schedule's warmup steps take it",
    code="schedule=torch.profiler.schedule(wait=1, warmup=1, active=3)",
    decided="Overhead events called Activity Buffer Request; beside them, the time from the first launch in the scope "
    "to the first GPU work that was launched in it.",
    severity=Severity.ARTEFACT,
)
def buffer_request(view: ScopeView) -> Answer:
    facts = view.tables
    if not len(facts.work):
        return cannot_tell_answer(NO_GPU)
    asked = view.select_in_scope(facts.match_names(r"Activity Buffer Request", Kind.OVERHEAD))
    if not len(asked):
        return absent_answer()
    taken = view.covered_time(asked)
    launch = facts.work.launch
    first = np.flatnonzero(launch >= 0)[:1]
    offset = ""
    if len(first):
        delay = int(facts.work.events.start[first[0]] - view.trace.start[launch[first[0]]])
        offset = f"; the first kernel began {us(delay)} after its launch"
    return fired_answer(f"{format_count(len(asked), 'request')} for buffers took {us(taken)}{offset}", asked.row)


@register_pattern(
    "one-off-gap",
    Section.GPU_LANE,
    "A gap in one step only",
    meaning="something outside your code, most likely the profiler or the system: the other steps do not have it",
    action="record more steps before you believe it",
    decided="The gap before a piece of work, in which no stream of its GPU worked, against the median of the gaps at "
    "the same position (by stream) of the other steps, which launched the same work; in one step alone (else it "
    "recurs: idle-gap).",
    thresholds=(limits.ONE_OFF_RATIO, limits.ONE_OFF_MIN, limits.MIN_OTHERS),
    severity=Severity.ARTEFACT,
    fires_on_absence=True,
)
def one_off_gap(view: ScopeView) -> Answer:
    facts = view.tables
    if not len(facts.work):
        return cannot_tell_answer(NO_GPU)
    if not len(facts.steps):
        return cannot_tell_answer(NO_STEPS)
    repeats = view.gap_finder.repeated_steps
    if len(repeats.steps) < 1 + limits.MIN_OTHERS.value:
        return cannot_tell_answer("fewer than three steps launched the same work: positions cannot be compared")
    found = find_one_off_gaps(repeats)
    inside = view.overlap_mask(found.gap_start, found.gap_end)
    if not inside.any():
        return absent_answer(f"{len(repeats.steps)} steps of {repeats.events.shape[1]:,} pieces of work compared")
    after = repeats.events[found.step[inside], found.position[inside]]
    gap, usual = (found.gap_end - found.gap_start)[inside], found.median_gap[inside]
    worst = int(gap.argmax())
    number = facts.steps.number[repeats.steps[found.step[inside][worst]]]
    # The gap, not what follows it, is what must lie in the scope: its ends are the work around it, and a scope inside
    # the gap has neither.
    around = (
        np.sort(after),
        np.sort(repeats.previous_event[found.step[inside], found.position[inside]]),
        view.representative_events(),
    )
    evidence = _select_first_in_scope(view, *around)
    if not len(evidence):
        return cannot_tell_answer(NOTHING_HERE)
    return fired_answer(
        f"{format_count(len(after), 'gap')}, the longest in step #{number}: {us(int(gap[worst]))} before "
        f"{facts.short_name(int(after[worst]))}, elsewhere {us(float(usual[worst]))}",
        evidence,
    )


def _select_first_in_scope(view: ScopeView, *choices: I64) -> I64:
    """The first choice of events that have a part in the scope."""
    for rows in choices:
        inside = view.select_in_scope(view.tables.event_table(rows)).row
        if len(inside):
            return inside
    return np.empty(0, dtype=np.int64)


@register_pattern(
    "kernel-variance",
    Section.GPU_LANE,
    "The same kernel, different times",
    meaning="clocks, heat, power or other work on the GPU: one number does not describe this kernel",
    action="read the distribution, not the mean; lock the clocks when you compare",
    code="nvidia-smi --lock-gpu-clocks=1500",
    decided="Runs of one name, grid and block: 95th minus 5th percentile over the median. Where a step runs it more "
    "than once (perhaps on other sizes), each position in the step is compared over the steps, and half of them vary.",
    thresholds=(limits.VARIANCE_RATIO, limits.VARIANCE_MIN_RUNS, limits.VARIANCE_MIN_SPREAD, limits.VARIANCE_SHARE),
)
def kernel_variance(view: ScopeView) -> Answer:
    if missing := view.missing_gpu_reason():
        return cannot_tell_answer(missing)
    work = view.work
    kernels = (work.kind == Kind.KERNEL) & (work.events.start >= view.scope.t0) & (work.events.end <= view.scope.t1)
    if not kernels.any():
        return cannot_tell_answer("no whole kernel in this range")
    rows = work.events.select(kernels)
    step = view.tables.launch_step[view.work_in_scope][kernels]
    total = float(view.work_time.sum())
    group = view.tables.launch_group[view.work_in_scope][kernels]
    count = np.bincount(group)
    if count.max() < limits.VARIANCE_MIN_RUNS.value:
        return cannot_tell_answer("no kernel ran three times with the same grid and block")
    time = np.bincount(group, weights=rows.duration)
    candidates = np.flatnonzero(
        (count >= limits.VARIANCE_MIN_RUNS.value) & (time >= limits.VARIANCE_SHARE.value * total)
    )
    best: tuple[float, I64] | None = None
    undecided = 0
    for one in candidates.tolist():
        mine = np.flatnonzero(group == one)
        spread = _measure_spread(rows.duration[mine], step[mine])
        if spread is None:
            undecided += 1
        elif spread >= limits.VARIANCE_RATIO.value and (best is None or time[one] > best[0]):
            best = (time[one], mine)
    if best is None:
        if undecided:
            return cannot_tell_answer(
                f"of {format_count(len(candidates), 'kernel')} {undecided} vary, but a step runs them several times, "
                f"perhaps on other sizes: needs three equal steps"
            )
        return absent_answer(f"{format_count(len(candidates), 'kernel')} compared")
    mine = best[1]
    taken = rows.duration[mine]
    p5, median, p95 = np.percentile(taken, [5, 50, 95])
    return fired_answer(
        f"{view.tables.short_name(int(rows.row[mine[0]]))}, {format_count(len(mine), 'run')}: mean {us(taken.mean())}, median "
        f"{us(median)}, 5–95 % {us(p5)} – {us(p95)}",
        np.sort(rows.row[mine]),
    )


def _measure_spread(durations: I64, step: I64) -> float | None:
    """(p95 − p5) / median; of the median position where steps run the kernel several times; None where that cannot be
    compared and the runs differ."""
    steps, runs = np.unique(step, return_counts=True)
    if runs.max() == 1 or (len(steps) == 1 and steps[0] < 0):
        table = durations[None, :]
    elif len(steps) >= limits.VARIANCE_MIN_RUNS.value and (runs == runs[0]).all() and (steps >= 0).all():
        table = durations[np.argsort(step, kind="stable")].reshape(len(steps), -1).T
    else:
        # Not comparable place by place; but runs that are alike all together are alike at each place, too.
        together = _relative_spread(durations[None, :])
        return together if together < limits.VARIANCE_RATIO.value else None
    return _relative_spread(table)


def _relative_spread(table: I64) -> float:
    """Of each row (p95 − p5) / median, 0 where it is but the clock's ticks; the median over the rows."""
    p5, median, p95 = np.percentile(table, [5, 50, 95], axis=1)
    wide = p95 - p5 >= limits.VARIANCE_MIN_SPREAD.value
    return float(np.median(np.where(wide, (p95 - p5) / np.maximum(median, 1), 0.0)))


@register_pattern(
    "gemm-kernel",
    Section.GPU_LANE,
    "A matrix product",
    meaning="the real matmul work; its name says architecture, type, tile and whether tensor cores run it",
    action="read the decoded name: the type and tensor cores decide most of its speed",
    decided="Kernels whose decoded name is a GEMM's.",
)
def gemm_kernel(view: ScopeView) -> Answer:
    if missing := view.missing_gpu_reason():
        return cannot_tell_answer(missing)
    rows = view.work.events.select(view.work.class_mask(KernelClass.GEMM))
    if not len(rows):
        return absent_answer()
    time = np.bincount(rows.name, weights=view.time_in_scope(rows))
    top = int(time.argmax())
    heaviest = decode_kernel_name(view.trace.names[top])
    share = float(time.sum()) / max(float(view.work_time.sum()), 1.0)
    says = heaviest.summary or heaviest.display
    return fired_answer(
        f"{format_count(len(rows), 'GEMM')}, {format_percent(share)} of GPU time; the heaviest: {says}", rows.row
    )


@register_pattern(
    "copy-before-gemm",
    Section.GPU_LANE,
    "A copy right before a GEMM",
    meaning="the bias is copied into the output, and the GEMM adds to it: fused in the dispatcher, not in the kernel",
    action="for a linear layer use nn.Linear: a bias of one dimension can ride in the GEMM's epilogue",
    code="torch.nn.functional.linear(x, w, b)",
    decided="A device-to-device copy followed by a GEMM on the same stream, fills aside, launched by the same op.",
    severity=Severity.PROBLEM,
)
def copy_before_gemm(view: ScopeView) -> Answer:
    if missing := view.missing_gpu_reason():
        return cannot_tell_answer(missing)
    work = view.work
    copies = device_copy_mask(view)
    if not copies.any():
        return absent_answer("no device-to-device copy")
    if not (work.launch[copies] >= 0).any():
        return cannot_tell_answer(NO_LINKS)
    gemm = work.class_mask(KernelClass.GEMM) & (work.kind == Kind.KERNEL)
    # By stream, then start, without fills: neighbours in this order are neighbours on their stream.
    order = np.lexsort((work.events.start, work.lane))
    order = order[work.kind[order] != Kind.MEMSET]
    inner = view.inner_op
    one, two = order[:-1], order[1:]
    pair = copies[one] & gemm[two] & (work.lane[one] == work.lane[two]) & (inner[one] >= 0) & (inner[one] == inner[two])
    place = np.sort(one[pair])
    if not len(place):
        return absent_answer("copies ran, but none right before a GEMM of the same op")
    rows = work.events.select(place)
    time = view.covered_time(rows)
    op = view.tables.name(int(inner[place[0]]))
    return fired_answer(
        f"{op} copies before its GEMM {len(place):,}×{view.format_per_step(len(place))}: {us(time)} on the GPU",
        rows.row,
        time,
    )
