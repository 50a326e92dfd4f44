"""Section "GPU lane": gaps not caused by the program, durations that vary, GEMMs and the copies before them."""

from __future__ import annotations

import sys

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.gpu_gaps import find_one_off_gaps
from torchprof_tui.analysis.patterns.engine.op_text import read_dims
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    register_artefact,
    register_notice,
    sort_places,
)
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import NO_LINKS, NOTHING_HERE
from torchprof_tui.analysis.patterns.rules.cpu_lane import device_copy_mask
from torchprof_tui.analysis.patterns.rules.serving import find_generation_steps
from torchprof_tui.analysis.time.intervals import find_range_at
from torchprof_tui.analysis.words.dictionary import explain
from torchprof_tui.trace.core.arrays import I64, find_median, find_percentiles
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind


@register_artefact(
    "The profiler allocated buffers",
    meaning=explain("Activity Buffer Request", "is", "costs"),
    action="nothing: with warm-up steps in the schedule it happens before the recording",
    code="schedule=torch.profiler.schedule(wait=1, warmup=1, active=3)",
    decided="Overhead events called Activity Buffer Request. Shown with them: the time from the first launch in the "
    "scope to the first GPU work launched in it.",
    needs=(ScopeView.missing_work_reason,),
)
def buffer_request(view: ScopeView) -> Answer:
    tables = view.tables
    requests = view.select_in_scope(tables.match_names(r"Activity Buffer Request", Kind.OVERHEAD))
    if not len(requests):
        return Answer.absent()
    request_time = view.covered_time(requests)
    launch = tables.work.launch
    first_linked = np.flatnonzero(launch >= 0)[:1]
    delay_text = ""
    if len(first_linked):
        delay = int(tables.work.events.start[first_linked[0]] - view.trace.start[launch[first_linked[0]]])
        delay_text = f"; the first kernel began {format_duration(delay)} after its launch"
    seen = f"{format_count(len(requests), 'request')} for buffers took {format_duration(request_time)}{delay_text}"
    return Answer.fired(seen, requests.row)


@register_artefact(
    "A gap in one step only",
    meaning="the other steps do not have this gap, so its cause is most likely the profiler or the system, not your "
    "code",
    action="record more steps to see whether it recurs",
    decided="The idle gap before a piece of GPU work, over the median of the gaps at the same position (by stream) "
    "in the other steps that launched the same work; only where one step has it (else see idle-gap).",
    thresholds=(thresholds.ONE_OFF_RATIO, thresholds.ONE_OFF_MIN, thresholds.MIN_OTHERS),
    fires_on_absence=True,
    needs=(ScopeView.missing_work_reason, ScopeView.missing_steps_reason),
)
def one_off_gap(view: ScopeView) -> Answer:
    tables = view.tables
    repeats = view.gap_finder.repeated_steps
    if len(repeats.steps) < 1 + thresholds.MIN_OTHERS.value:
        return Answer.cannot_tell(
            f"{format_count(len(repeats.steps), 'step')} launched the same GPU work, and three are needed to compare "
            "gaps: record more active steps, such as run --wait 0 --warmup 0 --active 20"
        )
    step, position, medians = find_one_off_gaps(repeats)
    in_scope = view.overlap_mask(repeats.gap_start[step, position], repeats.gap_end[step, position])
    if not in_scope.any():
        return Answer.absent(f"{len(repeats.steps)} steps of {repeats.events.shape[1]:,} pieces of work compared")
    chosen = step[in_scope], position[in_scope]
    start, end, next_events = repeats.gap_start[chosen], repeats.gap_end[chosen], repeats.events[chosen]
    gap_length, median_gap = end - start, medians[in_scope]
    worst = int(gap_length.argmax())
    step_number = tables.steps.number[repeats.steps[chosen[0][worst]]]
    # The gap must overlap the scope, not the work after it. A scope inside the gap contains none of the work around it;
    # then the events that represent the scope are the evidence.
    choices = (np.sort(next_events), np.sort(repeats.previous_event[chosen]), view.representative_events())
    in_scope_choices = (view.select_in_scope(tables.event_table(rows)).row for rows in choices)
    evidence = next((rows for rows in in_scope_choices if len(rows)), None)
    if evidence is None:
        return Answer.cannot_tell(NOTHING_HERE)
    before = tables.short_name(int(next_events[worst]))
    seen = (
        f"{format_count(len(next_events), 'gap')}, the longest in step #{step_number}: "
        f"{format_duration(int(gap_length[worst]))} before {before}, elsewhere "
        f"{format_duration(float(median_gap[worst]))}"
    )
    return Answer.fired(seen, evidence, places=sort_places(start, end, next_events, gap_length, True))


@register_notice(
    "The same kernel, different times",
    meaning="its recorded inputs do not explain it, so clocks, heat, power or other work on the GPU do: one number "
    "does not describe this kernel",
    action="look at the distribution, not at the mean; lock the clocks to compare",
    code="nvidia-smi --lock-gpu-clocks=1500",
    decided="Runs of one name, grid and block: 95th minus 5th percentile of the duration, over the median. If a step "
    "runs the kernel more than once (perhaps on other sizes), each position is compared over the steps, and "
    "at least half of the positions vary. Inputs explain first: among the runs of one kind of step (prefill, decode) "
    "and of the same input shapes, as far as these were recorded, the time varies as well.",
    thresholds=(
        thresholds.VARIANCE_RATIO,
        thresholds.VARIANCE_MIN_RUNS,
        thresholds.VARIANCE_MIN_SPREAD,
        thresholds.VARIANCE_SHARE,
    ),
    needs=(ScopeView.missing_gpu_reason,),
)
def kernel_variance(view: ScopeView) -> Answer:
    work = view.work
    is_whole_kernel = (
        (work.kind == Kind.KERNEL) & (work.events.start >= view.scope.t0) & (work.events.end <= view.scope.t1)
    )
    if not is_whole_kernel.any():
        return Answer.cannot_tell("no complete kernel in this range")
    runs = work.events.select(is_whole_kernel)
    step = view.tables.launch_step[view.work_in_scope][is_whole_kernel]
    total = float(view.work_time.sum())
    group = view.tables.launch_group[view.work_in_scope][is_whole_kernel]
    run_count = np.bincount(group)
    if run_count.max() < thresholds.VARIANCE_MIN_RUNS.value:
        return Answer.cannot_tell("no kernel ran three times with the same grid and block")
    time = np.bincount(group, weights=runs.duration)
    candidates = np.flatnonzero(
        (run_count >= thresholds.VARIANCE_MIN_RUNS.value) & (time >= thresholds.VARIANCE_SHARE.value * total)
    )
    launch_start = view.tables.launch_start[view.work_in_scope][is_whole_kernel]
    op = view.inner_op[is_whole_kernel]
    undecided, explained = 0, []
    member_indices = np.empty(0, np.int64)
    for rank, candidate in enumerate(sorted(candidates.tolist(), key=lambda number: -time[number])):
        members = np.flatnonzero(group == candidate)
        spread = _measure_spread(runs.duration[members], step[members])
        if spread is not None and spread < thresholds.VARIANCE_RATIO.value:
            continue
        groups = _split_by_inputs(view, op[members], launch_start[members], reads_shapes=rank < _MAX_KERNELS_READ)
        spreads = [
            _measure_spread(runs.duration[members[same]], step[members[same]])
            for same in groups
            if len(same) >= thresholds.VARIANCE_MIN_RUNS.value
        ]
        measured = [found for found in spreads if found is not None]
        if any(found >= thresholds.VARIANCE_RATIO.value for found in measured):
            member_indices = members
            break
        if len(groups) > 1 and measured and len(measured) == len(spreads):
            medians = [format_duration(find_median(runs.duration[members[same]])) for same in groups[:3]]
            more = ", …" if len(groups) > 3 else ""
            name = view.tables.short_name(int(runs.row[members[0]]))
            explained.append(f"{name} takes {', '.join(medians)}{more} for {len(groups)} inputs")
        else:
            undecided += 1
    if not len(member_indices):
        if undecided:
            return Answer.cannot_tell(
                f"of {format_count(len(candidates), 'kernel')} {undecided} vary, but a step runs them several times, "
                f"perhaps on other sizes: three equal steps are needed"
            )
        because = f"; {len(explained)} vary with their inputs alone: {explained[0]}" if explained else ""
        return Answer.absent(f"{format_count(len(candidates), 'kernel')} compared{because}")
    durations = runs.duration[member_indices]
    p5, median, p95 = map(format_duration, find_percentiles(durations, (5, 50, 95)).tolist())
    seen = (
        f"{view.tables.short_name(int(runs.row[member_indices[0]]))}, {format_count(len(member_indices), 'run')}: "
        f"mean {format_duration(durations.mean())}, median {median}, 5–95 % {p5} – {p95}"
    )
    return Answer.fired(seen, np.sort(runs.row[member_indices]))


_MAX_KERNELS_READ, _MAX_RUNS_READ = 16, 2_000
"""Kernels that vary whose input shapes are read from the file, those with most time, and the runs of one at most."""


def _split_by_inputs(view: ScopeView, op: I64, launch_start: I64, reads_shapes: bool) -> list[I64]:
    """Split runs of one kernel by what they work on: prefill or decode, and the input shapes of the ops behind them.

    Returns indices of the runs, int64[k] each, the group with most runs first. What was not recorded splits nothing.
    """
    steps = view.tables.compute_once(find_generation_steps)
    index = find_range_at(steps.start, steps.end, launch_start)
    kind = np.where(index >= 0, steps.kind[index], -1) if len(steps) else index
    shapes = [""] * len(op)
    has_op = np.flatnonzero(op >= 0)
    if reads_shapes and len(has_op) <= _MAX_RUNS_READ:
        known = view.tables.compute_once(_start_shapes)
        missing = [row for row in op[has_op].tolist() if row not in known]
        for row, dims in zip(missing, read_dims(view.trace, np.array(missing, np.int64)), strict=True):
            known[row] = sys.intern(str(dims or ""))
        for run in has_op.tolist():
            shapes[run] = known[int(op[run])]
    groups: dict[tuple[int, str], list[int]] = {}
    for run, inputs in enumerate(zip(kind.tolist(), shapes, strict=True)):
        groups.setdefault(inputs, []).append(run)
    return [np.array(runs, np.int64) for runs in sorted(groups.values(), key=len, reverse=True)]


def _start_shapes(tables: TraceTables) -> dict[int, str]:
    """Start the store of input shapes by row of the op, so that each is read from the file once for all scopes."""
    return {}


def _measure_spread(durations: I64, step: I64) -> float | None:
    """Measure (p95 − p5) / median of one kernel's runs.

    Where steps run the kernel several times, the median over its positions in the step. None where positions cannot be
    compared and the runs differ.
    """
    steps, run_count = np.unique(step, return_counts=True)
    if run_count.max() == 1 or (len(steps) == 1 and steps[0] < 0):
        runs_by_position = durations[None, :]
    elif len(steps) >= thresholds.VARIANCE_MIN_RUNS.value and (run_count == run_count[0]).all() and (steps >= 0).all():
        runs_by_position = durations[np.argsort(step, kind="stable")].reshape(len(steps), -1).T
    else:
        # Positions cannot be compared, but if all runs together are alike, the runs at each position are, too.
        overall_spread = _relative_spread(durations[None, :])
        return overall_spread if overall_spread < thresholds.VARIANCE_RATIO.value else None
    return _relative_spread(runs_by_position)


def _relative_spread(durations: I64) -> float:
    """Return the median over the rows of (p95 − p5) / median, 0 where that is within the clock's resolution."""
    p5, median, p95 = find_percentiles(durations, (5, 50, 95))
    is_significant = p95 - p5 >= thresholds.VARIANCE_MIN_SPREAD.value
    return find_median(np.where(is_significant, (p95 - p5) / np.maximum(median, 1), 0.0))


@register_notice(
    "A matrix product",
    meaning=explain("GEMM", "is", "why"),
    action="read the decoded name: data type and tensor cores decide most of its speed",
    decided="Kernels with the decoded name of a GEMM.",
    needs=(ScopeView.missing_gpu_reason,),
)
def gemm_kernel(view: ScopeView) -> Answer:
    gemms = view.work.events.select(view.work.class_mask(KernelClass.GEMM))
    if not len(gemms):
        return Answer.absent()
    time = np.bincount(gemms.name, weights=view.time_in_scope(gemms))
    heaviest_name = int(time.argmax())
    decoded = decode_kernel_name(view.trace.names[heaviest_name])
    share = float(time.sum()) / max(float(view.work_time.sum()), 1.0)
    description = decoded.summary or decoded.display
    seen = f"{format_count(len(gemms), 'GEMM')}, {format_percent(share)} of GPU time; the heaviest: {description}"
    return Answer.fired(seen, gemms.row)


@register_notice(
    "A copy right before a GEMM",
    meaning="the bias is first copied into the output, and the GEMM then adds to it: the kernel does not fuse the bias",
    action="give it a bias of one dimension, which the GEMM adds itself; or add in place where b may be overwritten. "
    "The time of these copies is counted once, by hidden-copy",
    code="y = b.addmm_(x, w)  # instead of torch.addmm(b, x, w)",
    decided="A device-to-device copy followed by a GEMM on the same stream (fills in between do not count), launched "
    "by the same op.",
    needs=(ScopeView.missing_gpu_reason,),
)
def copy_before_gemm(view: ScopeView) -> Answer:
    work = view.work
    is_copy = device_copy_mask(view)
    if not is_copy.any():
        return Answer.absent("no device-to-device copy")
    if not (work.launch[is_copy] >= 0).any():
        return Answer.cannot_tell(NO_LINKS)
    is_gemm = work.class_mask(KernelClass.GEMM) & (work.kind == Kind.KERNEL)
    # Sorted by stream, then start, without fills: neighbours in this order are neighbours on their stream.
    order = np.lexsort((work.events.start, work.lane))
    order = order[work.kind[order] != Kind.MEMSET]
    inner = view.inner_op
    current, following = order[:-1], order[1:]
    is_pair = (
        is_copy[current]
        & is_gemm[following]
        & (work.lane[current] == work.lane[following])
        & (inner[current] >= 0)
        & (inner[current] == inner[following])
    )
    copy_indices = np.sort(current[is_pair])
    if not len(copy_indices):
        return Answer.absent("copies ran, but none right before a GEMM of the same op")
    copies = work.events.select(copy_indices)
    time = view.covered_time(copies)
    op = view.tables.name(int(inner[copy_indices[0]]))
    return Answer.fired(
        f"{op} copies before its GEMM {len(copy_indices):,}×{view.format_per_step(len(copy_indices))}: "
        f"{format_duration(time)} on the GPU",
        copies.row,
    )
