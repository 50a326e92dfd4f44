"""The pattern of clocks that change: the same kernels take longer over time, or on another rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Section,
    Severity,
    absent_answer,
    cannot_tell_answer,
    fired_answer,
)
from torchprof_tui.analysis.patterns.engine.registry import register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import NO_GPU, ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.time.kernel_speed import weighted_median
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.event_kind import Kind


@dataclass(frozen=True, slots=True)
class ClockDrift:
    """How the same kernels' times changed from the first third of their runs to the last.

    `ratio`: late over early, the median by GPU time, 1 where nothing can be compared. `kernel_count`: kernels compared;
    `covered_share`: their share of GPU time. `slow_rows` int64[k]: runs in the slower third, `excess` int64[k] ns: how
    much longer each took than the median of the faster third.
    """

    ratio: float
    kernel_count: int
    covered_share: float
    slow_rows: I64
    excess: I64


def find_clock_drift(tables: TraceTables) -> ClockDrift:
    """Compare the runs of each kernel on one launch shape; those beside a collective are left out."""
    work = tables.work
    chosen = work.kind == Kind.KERNEL
    for device in tables.devices:
        intervals = tables.collective_intervals[device]
        if len(intervals):
            on_device = work.device == device
            beside = intervals.measure_before(work.events.end) > intervals.measure_before(work.events.start)
            chosen &= ~(on_device & beside)
    index = np.flatnonzero(chosen)
    group, duration = tables.launch_group[index], work.events.duration[index]
    order = np.argsort(group, kind="stable")  # work is sorted by start
    index, group, duration = index[order], group[order], duration[order]
    _, first, count = np.unique(group, return_index=True, return_counts=True)
    ratios, weights, slow_indices, excesses = [], [], [], []
    for start, runs in zip(first.tolist(), count.tolist(), strict=True):
        of_kernel = duration[start : start + runs]
        if runs < thresholds.CLOCK_MIN_RUNS.value or np.median(of_kernel) < thresholds.CLOCK_MIN_DURATION.value:
            continue
        third = runs // 3
        early, late = float(np.median(of_kernel[:third])), float(np.median(of_kernel[-third:]))
        ratios.append(late / early)
        weights.append(float(of_kernel.sum()))
        slow = slice(start + runs - third, start + runs) if late >= early else slice(start, start + third)
        slow_indices.append(index[slow])
        excesses.append(np.maximum(duration[slow] - min(early, late), 0).astype(np.int64))
    if not ratios:
        return ClockDrift(1.0, 0, 0.0, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    total = float(work.events.duration[work.kind == Kind.KERNEL].sum())
    return ClockDrift(
        weighted_median(np.array(ratios), np.array(weights)),
        len(ratios),
        sum(weights) / total if total else 0.0,
        work.events.row[np.concatenate(slow_indices)],
        np.concatenate(excesses),
    )


@register_pattern(
    "clock-variation",
    Section.BEYOND,
    "The GPU's clock changes",
    meaning="the same kernels take longer than before, or than on another GPU: power or heat lowers the clock",
    action="compare only runs at the same clock; look for the reason of the throttling, or lock the clock",
    code="nvidia-smi --query-gpu=clocks.sm,clocks_throttle_reasons.active,power.draw --format=csv -l 1",
    decided="Kernels of one name and launch shape with a dozen runs: the last third of their runs against the first, "
    "the median by GPU time, without those beside a collective. With several ranks also the same kernels between "
    "ranks.",
    thresholds=(
        thresholds.CLOCK_RATIO,
        thresholds.CLOCK_MIN_RUNS,
        thresholds.CLOCK_MIN_DURATION,
        thresholds.CLOCK_COVERED_SHARE,
    ),
    severity=Severity.PROBLEM,
)
def clock_variation(view: ScopeView) -> Answer:
    tables = view.tables
    if not len(tables.work):
        return cannot_tell_answer(NO_GPU)
    drift = tables.compute_once(find_clock_drift)
    rank_text = _describe_ranks(view)
    if drift.covered_share < thresholds.CLOCK_COVERED_SHARE.value and not rank_text:
        return cannot_tell_answer(
            f"{format_count(drift.kernel_count, 'kernel')} of 20 µs or more ran a dozen times: too few to compare"
        )
    change = max(drift.ratio, 1 / drift.ratio)
    slow = tables.event_table(drift.slow_rows)
    in_scope = view.overlap_mask(slow.start, slow.end)
    parts = []
    events, at_stake = np.empty(0, dtype=np.int64), 0
    has_drift = change >= thresholds.CLOCK_RATIO.value and drift.covered_share >= thresholds.CLOCK_COVERED_SHARE.value
    if has_drift and in_scope.any():
        slower = "late" if drift.ratio > 1 else "early"
        parts.append(
            f"the same kernels take {change:.2f}× as long in the {slower} third of their runs "
            f"({format_count(drift.kernel_count, 'kernel')}, {format_percent(drift.covered_share)} of GPU time)"
        )
        events = slow.row[in_scope]
        at_stake = min(int(drift.excess[in_scope].sum()), view.covered_time(slow.select(in_scope)))
    if rank_text:
        parts.append(rank_text)
        events = events if len(events) else view.representative_events()
    if not parts or not len(events):
        return absent_answer(f"late over early {drift.ratio:.2f} ({format_count(drift.kernel_count, 'kernel')})")
    return fired_answer("; ".join(parts), events, at_stake)


def _describe_ranks(view: ScopeView) -> str:
    """Describe how much slower this rank's GPU is than the fastest; "" if it is not."""
    rank_context = view.tables.rank_context
    if rank_context is None:
        return ""
    speed = rank_context.arrivals.kernel_speed
    if not speed.kernel_count:
        return ""
    factor = float(speed.factor[rank_context.rank_index] / speed.factor.min())
    if factor < thresholds.CLOCK_RATIO.value:
        return ""
    fastest = rank_context.arrivals.ranks.all[speed.fastest].label
    return f"this GPU takes {factor:.2f}× as long as {fastest}'s for the same kernels ({speed.kernel_count})"
