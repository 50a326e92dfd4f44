"""The pattern of clocks that change: the same kernels take longer over time, or on another rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.gpu_idle_causes import GapFinder
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Severity, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.rules.generation_steps import find_generation_steps
from torchprof_tui.analysis.time.kernel_speed import weighted_median
from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.query.read_entries import read_entries


@dataclass(frozen=True, slots=True)
class ClockDrift:
    """How the same kernels' times changed from the first third of their runs to the last.

    `ratio`: late over early, the median by GPU time, 1 where nothing can be compared. `kernel_count`: kernels compared,
    each place of a step for itself; `covered_share`: their share of GPU time. `slow_rows` int64[k]: runs in the slower
    third, `excess` int64[k] ns: how much longer each took than the median of the faster third.
    """

    ratio: float
    kernel_count: int
    covered_share: float
    slow_rows: I64
    excess: I64


_NO_ROWS = np.empty(0, dtype=np.int64)
_NO_DRIFT = ClockDrift(1.0, 0, 0.0, _NO_ROWS, _NO_ROWS)


def find_clock_drift(tables: TraceTables, gap_finder: GapFinder) -> ClockDrift:
    """Compare the same kernels early and late: place by place in repeated steps, else by the order of their runs.

    One kernel on one grid may work on different data at another place of a step, so runs are compared in order only
    where no steps repeat and nothing is communicated. Kernels beside a collective are left out.
    """
    work = tables.work
    has_collectives = any(len(intervals) for intervals in tables.collective_intervals.values())
    repeats = gap_finder.repeated_steps
    if len(repeats.steps) >= thresholds.CLOCK_MIN_STEPS.value:
        order = np.argsort(work.events.row)
        places = order[np.searchsorted(work.events.row[order], repeats.events)]  # [steps, places]
        chosen = (work.kind[places] == Kind.KERNEL).all(axis=0)
        chosen &= np.median(work.events.duration[places], axis=0) >= thresholds.CLOCK_MIN_DURATION.value
        groups = list(places[:, chosen & ~_mark_beside_collectives(tables)[places].any(axis=0)].T)
        third = max(len(repeats.steps) // 3, 1)
        return _compare_runs(tables, groups, third)
    if has_collectives:
        return _NO_DRIFT
    kernels = np.flatnonzero(work.kind == Kind.KERNEL)
    group = tables.launch_group[kernels]
    kernels = kernels[np.argsort(group, kind="stable")]  # work is sorted by start
    counts = np.unique(group, return_counts=True)[1]
    groups = np.split(kernels, np.cumsum(counts)[:-1]) if len(counts) else []
    groups = [runs for runs in groups if len(runs) >= thresholds.CLOCK_MIN_RUNS.value]
    drift = _compare_runs(tables, groups, 0)
    if max(drift.ratio, 1 / drift.ratio) < thresholds.CLOCK_RATIO.value:
        return drift
    return _compare_runs(tables, _select_equal_inputs(tables, groups), 0)


def _select_equal_inputs(tables: TraceTables, groups: list[I64]) -> list[I64]:
    """Select the kernels whose first and last runs have inputs of the same shapes, as far as those were recorded.

    Attention in a loop over tokens is left out: it reads more keys and values for each token.
    """
    work, op = tables.work, tables.launching_ops[0]
    has_tokens = len(tables.compute_once(find_generation_steps)) > 0
    attention = KernelClass.ATTENTION
    groups = [runs for runs in groups if not (has_tokens and work.kernel_class[runs[0]] == attention)]
    groups.sort(key=lambda runs: -int(work.events.duration[runs].sum()))
    sides = [side for runs in groups[:_MAX_KERNELS_READ] for side in (runs[:_RUNS_READ], runs[-_RUNS_READ:])]
    side_of = np.repeat(np.arange(len(sides)), [len(side) for side in sides])
    rows = op[np.concatenate(sides)] if sides else np.empty(0, np.int64)
    shapes: list[set[str]] = [set() for _ in sides]
    try:
        for index, entry in read_entries(tables.trace, rows[rows >= 0]):
            args = entry.get("args")
            shapes[side_of[rows >= 0][index]].add(str(args.get("Input Dims") if isinstance(args, dict) else None))
    except (OSError, LookupError):
        return groups
    return [runs for k, runs in enumerate(groups) if k >= _MAX_KERNELS_READ or shapes[2 * k] == shapes[2 * k + 1]]


_MAX_KERNELS_READ, _RUNS_READ = 32, 4
"""Kernels whose input shapes are read from the file, those with most time, and runs at either end of each."""


def _mark_beside_collectives(tables: TraceTables) -> Bool:
    """Mark work during which a collective ran on the same device: bool[work]."""
    work = tables.work
    beside = np.zeros(len(work), dtype=np.bool_)
    for device in tables.devices:
        intervals = tables.collective_intervals[device]
        overlap = intervals.measure_before(work.events.end) > intervals.measure_before(work.events.start)
        beside |= (work.device == device) & overlap
    return beside


def _compare_runs(tables: TraceTables, groups: list[I64], third: int) -> ClockDrift:
    """Compare the first `third` runs of each group (indices of work, by start) with its last; 0: a third of them."""
    work = tables.work
    ratios, weights, slow_indices, excesses = [], [], [], []
    for runs in groups:
        duration = work.events.duration[runs]
        if np.median(duration) < thresholds.CLOCK_MIN_DURATION.value:
            continue
        size = third or len(runs) // 3
        early, late = float(np.median(duration[:size])), float(np.median(duration[-size:]))
        if not early or not late:
            continue  # runs without a duration have no speed
        ratios.append(late / early)
        weights.append(float(duration.sum()))
        slow = slice(len(runs) - size, len(runs)) if late >= early else slice(0, size)
        slow_indices.append(runs[slow])
        excesses.append(np.maximum(duration[slow] - min(early, late), 0).astype(np.int64))
    if not ratios:
        return _NO_DRIFT
    total = float(work.events.duration[work.kind == Kind.KERNEL].sum())
    return ClockDrift(
        weighted_median(np.array(ratios), np.array(weights)),
        len(ratios),
        sum(weights) / total if total else 0.0,
        work.events.row[np.concatenate(slow_indices)],
        np.concatenate(excesses),
    )


@register_pattern(
    "The GPU's clock changes",
    meaning="the same kernels take longer than before, or than on another GPU: a power or heat limit lowers the clock",
    action="compare only runs at the same clock; find the reason for the throttling, or lock the clock",
    code="nvidia-smi --query-gpu=clocks.sm,clocks_throttle_reasons.active,power.draw --format=csv -l 1",
    decided="Compares the same kernels in repeated steps: the last third of the steps with the first third, the "
    "median weighted by GPU time, without kernels that run beside a collective. Without repeated steps: "
    "kernels of one name and launch shape, in time order, if their ops have the same input shapes. With "
    "several ranks, also the same kernels of different ranks.",
    thresholds=(
        thresholds.CLOCK_RATIO,
        thresholds.CLOCK_MIN_STEPS,
        thresholds.CLOCK_MIN_RUNS,
        thresholds.CLOCK_MIN_DURATION,
        thresholds.CLOCK_COVERED_SHARE,
    ),
    severity=Severity.PROBLEM,
    needs=(ScopeView.missing_work_reason,),
)
def clock_variation(view: ScopeView) -> Answer:
    tables = view.tables
    drift = tables.compute_once(find_clock_drift, view.gap_finder)
    rank_text = _describe_ranks(view)
    if drift.covered_share < thresholds.CLOCK_COVERED_SHARE.value and not rank_text:
        return Answer.cannot_tell(
            f"{format_count(drift.kernel_count, 'kernel')} of 20 µs or more can be compared over time: too few"
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
        return Answer.absent(f"late over early {drift.ratio:.2f} ({format_count(drift.kernel_count, 'kernel')})")
    return Answer.fired("; ".join(parts), events, at_stake)


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
