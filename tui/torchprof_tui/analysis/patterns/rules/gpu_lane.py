"""Section "GPU lane": gaps that are not the program's, times that vary, GEMMs and what stands before them."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.kernel.names import KernelClass, decode
from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Section, Weight, absent, cannot_tell, fired
from torchprof_tui.analysis.patterns.engine.registry import pattern
from torchprof_tui.analysis.patterns.engine.repeated_steps import one_off_gaps
from torchprof_tui.analysis.patterns.engine.scope_view import (
    NO_GPU,
    NO_LINKS,
    NO_STEPS,
    NOTHING_HERE,
    View,
    percent,
    several,
    us,
)
from torchprof_tui.analysis.patterns.rules.cpu_lane import device_copies
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.event_kind import Kind


@pattern(
    "buffer-request",
    Section.GPU_LANE,
    "The profiler asked for buffers",
    meaning="room for the profiler's own records; it explains the first offset between CPU and GPU",
    action="nothing: let the schedule's warmup steps take it",
    code="schedule=torch.profiler.schedule(wait=1, warmup=1, active=3)",
    decided="Overhead events called Activity Buffer Request; beside them, the time from the first launch in the scope "
    "to the first GPU work that was launched in it.",
    weight=Weight.ARTEFACT,
)
def buffer_request(view: View) -> Answer:
    facts = view.facts
    if not len(facts.work):
        return cannot_tell(NO_GPU)
    asked = view.cut(facts.named(r"Activity Buffer Request", Kind.OVERHEAD))
    if not len(asked):
        return absent()
    taken = view.covered(asked)
    launch = facts.work.launch
    first = np.flatnonzero(launch >= 0)[:1]
    offset = ""
    if len(first):
        delay = int(facts.work.rows.start[first[0]] - view.trace.start[launch[first[0]]])
        offset = f"; the first kernel began {us(delay)} after its launch"
    return fired(f"{several(len(asked), 'request')} for buffers took {us(taken)}{offset}", asked.row)


@pattern(
    "one-off-gap",
    Section.GPU_LANE,
    "A gap in one step only",
    meaning="something outside your code, most likely the profiler or the system: the other steps do not have it",
    action="record more steps before you believe it",
    decided="The gap before a piece of work, in which no stream of its GPU worked, against the median of the gaps at "
    "the same position (by stream) of the other steps, which launched the same work; in one step alone (else it "
    "recurs: idle-gap).",
    thresholds=(limits.ONE_OFF_RATIO, limits.ONE_OFF_MIN, limits.OTHERS),
    weight=Weight.ARTEFACT,
    by_absence=True,
)
def one_off_gap(view: View) -> Answer:
    facts = view.facts
    if not len(facts.work):
        return cannot_tell(NO_GPU)
    if not len(facts.steps):
        return cannot_tell(NO_STEPS)
    repeats = view.finder.repeats
    if len(repeats.steps) < 1 + limits.OTHERS.value:
        return cannot_tell("fewer than three steps launched the same work: positions cannot be compared")
    found = one_off_gaps(repeats)
    inside = view.touches(found.begins, found.ends)
    if not inside.any():
        return absent(f"{len(repeats.steps)} steps of {repeats.rows.shape[1]:,} pieces of work compared")
    after = repeats.rows[found.step[inside], found.place[inside]]
    gap, usual = (found.ends - found.begins)[inside], found.usual[inside]
    worst = int(gap.argmax())
    number = facts.steps.number[repeats.steps[found.step[inside][worst]]]
    # The gap, not what follows it, is what must lie in the scope: its ends are the work around it, and a scope inside
    # the gap has neither.
    around = (np.sort(after), np.sort(repeats.before[found.step[inside], found.place[inside]]), view.something())
    evidence = _overlapping(view, *around)
    if not len(evidence):
        return cannot_tell(NOTHING_HERE)
    return fired(
        f"{several(len(after), 'gap')}, the longest in step #{number}: {us(int(gap[worst]))} before "
        f"{facts.short(int(after[worst]))}, elsewhere {us(float(usual[worst]))}",
        evidence,
    )


def _overlapping(view: View, *choices: I64) -> I64:
    """The first choice of events that have a part in the scope."""
    for rows in choices:
        inside = view.cut(view.facts.rows(rows)).row
        if len(inside):
            return inside
    return np.empty(0, dtype=np.int64)


@pattern(
    "kernel-variance",
    Section.GPU_LANE,
    "The same kernel, different times",
    meaning="clocks, heat, power or other work on the GPU: one number does not describe this kernel",
    action="read the distribution, not the mean; lock the clocks when you compare",
    code="nvidia-smi --lock-gpu-clocks=1500",
    decided="Runs of one name, grid and block: 95th minus 5th percentile over the median. Where a step runs it more "
    "than once (perhaps on other sizes), each position in the step is compared over the steps, and half of them vary.",
    thresholds=(limits.VARIANCE, limits.VARIANCE_RUNS, limits.VARIANCE_SPREAD, limits.VARIANCE_SHARE),
)
def kernel_variance(view: View) -> Answer:
    if missing := view.missing_gpu():
        return cannot_tell(missing)
    work = view.work
    kernels = (work.kind == Kind.KERNEL) & (work.rows.start >= view.scope.t0) & (work.rows.end <= view.scope.t1)
    if not kernels.any():
        return cannot_tell("no whole kernel in this range")
    rows = work.rows.where(kernels)
    step = view.facts.launch_step[view.work_place][kernels]
    total = float(view.work_time.sum())
    group = view.facts.alike[view.work_place][kernels]
    count = np.bincount(group)
    if count.max() < limits.VARIANCE_RUNS.value:
        return cannot_tell("no kernel ran three times with the same grid and block")
    time = np.bincount(group, weights=rows.duration)
    candidates = np.flatnonzero((count >= limits.VARIANCE_RUNS.value) & (time >= limits.VARIANCE_SHARE.value * total))
    best: tuple[float, I64] | None = None
    undecided = 0
    for one in candidates.tolist():
        mine = np.flatnonzero(group == one)
        spread = _spread(rows.duration[mine], step[mine])
        if spread is None:
            undecided += 1
        elif spread >= limits.VARIANCE.value and (best is None or time[one] > best[0]):
            best = (time[one], mine)
    if best is None:
        if undecided:
            return cannot_tell(
                f"of {several(len(candidates), 'kernel')} {undecided} vary, but a step runs them several times, "
                f"perhaps on other sizes: needs three equal steps"
            )
        return absent(f"{several(len(candidates), 'kernel')} compared")
    mine = best[1]
    taken = rows.duration[mine]
    p5, median, p95 = np.percentile(taken, [5, 50, 95])
    return fired(
        f"{view.facts.short(int(rows.row[mine[0]]))}, {several(len(mine), 'run')}: mean {us(taken.mean())}, median "
        f"{us(median)}, 5–95 % {us(p5)} – {us(p95)}",
        np.sort(rows.row[mine]),
    )


def _spread(durations: I64, step: I64) -> float | None:
    """(p95 − p5) / median; of the median position where steps run the kernel several times; None where that cannot be
    compared and the runs differ."""
    steps, runs = np.unique(step, return_counts=True)
    if runs.max() == 1 or (len(steps) == 1 and steps[0] < 0):
        table = durations[None, :]
    elif len(steps) >= limits.VARIANCE_RUNS.value and (runs == runs[0]).all() and (steps >= 0).all():
        table = durations[np.argsort(step, kind="stable")].reshape(len(steps), -1).T
    else:
        # Not comparable place by place; but runs that are alike all together are alike at each place, too.
        together = _relative_spread(durations[None, :])
        return together if together < limits.VARIANCE.value else None
    return _relative_spread(table)


def _relative_spread(table: I64) -> float:
    """Of each row (p95 − p5) / median, 0 where it is but the clock's ticks; the median over the rows."""
    p5, median, p95 = np.percentile(table, [5, 50, 95], axis=1)
    wide = p95 - p5 >= limits.VARIANCE_SPREAD.value
    return float(np.median(np.where(wide, (p95 - p5) / np.maximum(median, 1), 0.0)))


@pattern(
    "gemm-kernel",
    Section.GPU_LANE,
    "A matrix product",
    meaning="the real matmul work; its name says architecture, type, tile and whether tensor cores run it",
    action="read the decoded name: the type and tensor cores decide most of its speed",
    decided="Kernels whose decoded name is a GEMM's.",
)
def gemm_kernel(view: View) -> Answer:
    if missing := view.missing_gpu():
        return cannot_tell(missing)
    rows = view.work.rows.where(view.work.is_class(KernelClass.GEMM))
    if not len(rows):
        return absent()
    time = np.bincount(rows.name, weights=view.clipped(rows))
    top = int(time.argmax())
    heaviest = decode(view.trace.names[top])
    share = float(time.sum()) / max(float(view.work_time.sum()), 1.0)
    says = heaviest.summary or heaviest.display
    return fired(f"{several(len(rows), 'GEMM')}, {percent(share)} of GPU time; the heaviest: {says}", rows.row)


@pattern(
    "copy-before-gemm",
    Section.GPU_LANE,
    "A copy right before a GEMM",
    meaning="the bias is copied into the output, and the GEMM adds to it: fused in the dispatcher, not in the kernel",
    action="for a linear layer use nn.Linear: a bias of one dimension can ride in the GEMM's epilogue",
    code="torch.nn.functional.linear(x, w, b)",
    decided="A device-to-device copy followed by a GEMM on the same stream, fills aside, launched by the same op.",
    weight=Weight.PROBLEM,
)
def copy_before_gemm(view: View) -> Answer:
    if missing := view.missing_gpu():
        return cannot_tell(missing)
    work = view.work
    copies = device_copies(view)
    if not copies.any():
        return absent("no device-to-device copy")
    if not (work.launch[copies] >= 0).any():
        return cannot_tell(NO_LINKS)
    gemm = work.is_class(KernelClass.GEMM) & (work.kind == Kind.KERNEL)
    # By stream, then start, without fills: neighbours in this order are neighbours on their stream.
    order = np.lexsort((work.rows.start, work.lane))
    order = order[work.kind[order] != Kind.MEMSET]
    inner = view.inner_op
    one, two = order[:-1], order[1:]
    pair = copies[one] & gemm[two] & (work.lane[one] == work.lane[two]) & (inner[one] >= 0) & (inner[one] == inner[two])
    place = np.sort(one[pair])
    if not len(place):
        return absent("copies ran, but none right before a GEMM of the same op")
    rows = work.rows.where(place)
    time = view.covered(rows)
    op = view.facts.name(int(inner[place[0]]))
    return fired(
        f"{op} copies before its GEMM {len(place):,}×{view.per_step(len(place))}: {us(time)} on the GPU", rows.row, time
    )
