"""Patterns of a machine that is slow: a rank's host, the GPU's clock, CPU cores that other threads or programs hold."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.gpu_gaps import GapFinder
from torchprof_tui.analysis.patterns.engine.op_text import read_dims
from torchprof_tui.analysis.patterns.engine.pattern import Answer, find_event_places, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import NO_CPU, NO_GPU
from torchprof_tui.analysis.patterns.rules.serving import find_generation_steps
from torchprof_tui.analysis.time.intervals import NO_INTERVALS
from torchprof_tui.analysis.time.kernel_speed import weighted_median
from torchprof_tui.trace.core.arrays import F64, I32, I64, Bool, find_median, find_percentiles, is_in
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace


@register_pattern(
    "One rank's host is slow",
    meaning="nearly every op takes longer on the CPU of one rank, and the other ranks wait for it",
    action="check that host: other processes, the CPU's clock, and the cores that the rank is bound to",
    code="numactl --cpunodebind=0 --membind=0 torchrun …  # the socket next to the GPU: nvidia-smi topo -m",
    decided="For each aten op that ran ten times on all ranks, its median duration over that of the fastest rank; "
    "then the median over the ops, and the share of slower ops. If collectives were matched, the other ranks "
    "must also wait for that rank. Needs several ranks: open their traces together.",
    thresholds=(thresholds.SLOW_HOST_RATIO, thresholds.SLOW_HOST_OPS_SHARE, thresholds.STRAGGLER_SHARE),
    applies_to_all_ranks=True,
)
def slow_host(view: ScopeView) -> Answer:
    rank_context = view.tables.rank_context
    if rank_context is None:
        return Answer.cannot_tell("one rank only: the traces of the other ranks are needed")
    speed = rank_context.arrivals.host_speed
    if not speed.op_count:
        return Answer.cannot_tell("the ranks ran too few ops in common to compare them")
    ranks = rank_context.arrivals.ranks.all
    slow_label, fast_label = ranks[speed.slowest].label, ranks[speed.fastest].label
    summary = f"aten ops take {speed.slowest_factor:.2f}× as long on {slow_label} as on {fast_label}"
    slower = float(speed.slower_share[speed.slowest])
    if speed.slowest_factor < thresholds.SLOW_HOST_RATIO.value or slower < thresholds.SLOW_HOST_OPS_SHARE.value:
        return Answer.absent(f"{summary} (median of {speed.op_count})")
    at_stake = int(view.clip(speed.slowest_op_time).total * (1 - 1 / speed.slowest_factor))
    if len(rank_context.arrivals):
        is_last = rank_context.arrivals.last_rank == speed.slowest
        others = [index for index in range(len(rank_context.arrivals.ranks)) if index != speed.slowest]
        waits = [rank_context.arrivals.wait_intervals(index, is_last).measure_between(*view.window) for index in others]
        waiting = sum(waits) // len(others)
        if waiting < thresholds.STRAGGLER_SHARE.value * view.window_length:
            return Answer.absent(f"{summary}, but the others wait only {format_duration(waiting)} for it")
        at_stake = min(at_stake, waiting)
    events = np.empty(0, dtype=np.int64)
    if rank_context.rank_index == speed.slowest:
        events = view.representative_events()
    seen = (
        f"{slow_label}'s host is slow: {summary}, {format_percent(slower)} of {speed.op_count} ops are slower by a "
        "seventh or more"
    )
    return Answer.fired(seen, events, at_stake, spans=speed.slowest_op_time if len(events) else NO_INTERVALS)


@record
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
    repeats = gap_finder.repeated_steps
    if len(repeats.steps) >= thresholds.CLOCK_MIN_STEPS.value:
        order = np.argsort(work.events.row)
        places = order[np.searchsorted(work.events.row[order], repeats.events)]  # [steps, places]
        chosen = (work.kind[places] == Kind.KERNEL).all(axis=0)
        chosen &= np.median(work.events.duration[places], axis=0) >= thresholds.CLOCK_MIN_DURATION.value
        # Mark work during which a collective ran on the same device.
        beside = np.zeros(len(work), dtype=np.bool_)
        for device in tables.devices:
            collectives = tables.collective_intervals[device]
            overlap = collectives.measure_before(work.events.end) > collectives.measure_before(work.events.start)
            beside |= (work.device == device) & overlap
        groups = list(places[:, chosen & ~beside[places].any(axis=0)].T)
        return _compare_runs(tables, groups, max(len(repeats.steps) // 3, 1))
    if any(len(intervals) for intervals in tables.collective_intervals.values()):
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
    for side, dims in zip(side_of[rows >= 0].tolist(), read_dims(tables.trace, rows[rows >= 0]), strict=True):
        shapes[side].add(str(dims))
    return [runs for k, runs in enumerate(groups) if k >= _MAX_KERNELS_READ or shapes[2 * k] == shapes[2 * k + 1]]


_MAX_KERNELS_READ, _RUNS_READ = 32, 4
"""Kernels whose input shapes are read from the file, those with most time, and runs at either end of each."""


def _compare_runs(tables: TraceTables, groups: list[I64], third: int) -> ClockDrift:
    """Compare the first `third` runs of each group (indices of work, by start) with its last; 0: a third of them."""
    work = tables.work
    ratios, weights, slow_indices, excesses = [], [], [], []
    for runs in groups:
        duration = work.events.duration[runs]
        if find_median(duration) < thresholds.CLOCK_MIN_DURATION.value:
            continue
        size = third or len(runs) // 3
        early, late = find_median(duration[:size]), find_median(duration[-size:])
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


_MAX_SHAPES_READ = 24  # slow calls, and as many usual ones, whose input shapes are read from the file
_PARTS = 4  # parts of a recording without steps, of which the first may be a warm-up


@record
class SlowCalls:
    """k slow calls of the main thread. `calls` by start; `time`, `excess`: int64[k], ns of self time, and of that the
    part above ten times what is usual.

    `name`: the op with most excess, -1 for none; `median` (ns) of its `count` calls; the `percent` slowest of them take
    `slowest` (ns) or more. `is_recurring`: whether they are spread over the recording and cost enough of it.
    `is_comparable`: whether their inputs are known to be no larger than those of the other calls.
    """

    calls: EventTable
    time: I64
    excess: I64
    name: int = -1
    count: int = 0
    median: int = 0
    percent: int = 0
    slowest: int = 0
    is_recurring: bool = False
    is_comparable: bool = False


def find_slow_calls(tables: TraceTables) -> SlowCalls:
    """Find the calls whose self time is over ten times the median of their op.

    Where all steps make the same number of calls of an op, also over ten times the fastest call at the same position in
    any step: a call that is long in every step has more to do. Ops of which only a few calls are slow are left out.
    """
    trace, steps = tables.trace, tables.steps
    ops = tables.ops.select(tables.is_dispatcher_op[tables.ops.row])
    rows = tables.steps.row if len(tables.steps) else tables.ops.row
    main_lane = int(np.bincount(trace.lane[rows]).argmax()) if len(rows) else -1
    ops = ops.select(np.flatnonzero(trace.lane[ops.row] == main_lane))
    step = steps.index_at(ops.start)
    if len(steps):
        ops, step = ops.select(step >= 0), step[step >= 0]
    time = np.asarray(trace.self_duration[ops.row]).astype(np.int64)
    if not len(ops):
        return SlowCalls(ops, time, time)
    count, median = _measure_groups(ops.name, time)
    limit = thresholds.CONTENTION_RATIO.value * median[ops.name]
    fastest, has_position = _find_fastest_at_position(ops.name, step, time, len(steps))
    limit = np.maximum(limit, thresholds.CONTENTION_RATIO.value * fastest)
    is_slow = (time > limit) & (count[ops.name] >= thresholds.CONTENTION_GROUP_MIN.value)
    slow_of_name = np.bincount(ops.name[is_slow], minlength=len(count))
    is_slow &= (slow_of_name >= thresholds.CONTENTION_CALLS_SHARE.value * count)[ops.name]
    if not is_slow.any():
        return SlowCalls(ops.select(is_slow), time[is_slow], time[is_slow])
    excess = (time - limit)[is_slow].astype(np.int64)
    slow = ops.select(is_slow)
    name = int(np.bincount(slow.name, weights=excess).argmax())
    of_name = time[ops.name == name]
    percent = 5 if slow_of_name[name] >= 0.05 * len(of_name) else 3
    is_recurring = _is_recurring(tables, slow, excess)
    has_shapes, is_same = _compare_shapes(trace, ops, is_slow, time, median, excess) if is_recurring else (False, False)
    return SlowCalls(
        slow,
        time[is_slow],
        excess,
        name,
        len(of_name),
        int(median[name]),
        percent,
        int(find_percentiles(of_name, (100 - percent,))[0]),
        is_recurring and (is_same or not has_shapes),
        has_shapes or 2 * excess[has_position[is_slow]].sum() > excess.sum(),
    )


def _measure_groups(name: I32, time: I64) -> tuple[I64, F64]:
    """Return the number of calls and the median time (ns) by number of the name; 0 for names without calls."""
    order = np.lexsort((time, name))
    names, first, counts = np.unique(name[order], return_index=True, return_counts=True)
    count, median = np.zeros(int(names[-1]) + 1, np.int64), np.zeros(int(names[-1]) + 1, np.float64)
    count[names] = counts
    median[names] = (time[order[first + (counts - 1) // 2]] + time[order[first + counts // 2]]) / 2
    return count, median


def _find_fastest_at_position(name: I32, step: I64, time: I64, steps: int) -> tuple[I64, Bool]:
    """Find the shortest time (ns) of the calls at the same position in all steps: (int64[k], bool[k]: known).

    The position is the number of the call among those of its name in its step. Unknown (0) where steps differ in it.
    """
    fastest, is_known = np.zeros(len(time), np.int64), np.zeros(len(time), np.bool_)
    if steps < 2:
        return fastest, is_known
    order = np.lexsort((step, name))  # stable: in time order within a step
    key = name[order].astype(np.int64) * steps + step[order]
    _, first, back, counts = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    position = np.arange(len(order)) - first[back]
    # Only where every step makes as many calls does the n-th call of one step do what it does in another.
    low, high = np.full(int(name.max()) + 1, len(order) + 1), np.zeros(int(name.max()) + 1, np.int64)
    name_of_key = name[order][first]
    np.minimum.at(low, name_of_key, counts)
    np.maximum.at(high, name_of_key, counts)
    is_equal = (low == high) & (np.bincount(name_of_key, minlength=len(low)) == steps)
    places, place = np.unique(name[order].astype(np.int64) * len(order) + position, return_inverse=True)
    least = np.full(len(places), np.iinfo(np.int64).max)
    np.minimum.at(least, place, time[order])
    is_known[order] = is_equal[name[order]]
    fastest[order] = np.where(is_known[order], least[place], 0)
    return fastest, is_known


def _is_recurring(tables: TraceTables, slow: EventTable, excess: I64) -> bool:
    """Return whether slow calls also cost enough after the first step (without steps: the first quarter)."""
    steps, (first, last) = tables.steps, tables.window
    begin = int(steps.start[1]) if len(steps) > 1 else first + (last - first) // _PARTS
    is_later = slow.start >= begin
    return bool(
        is_later.sum() >= thresholds.CONTENTION_MIN_CALLS.value
        and excess[is_later].sum() >= thresholds.CONTENTION_SHARE.value * max(last - begin, 1)
    )


def _compare_shapes(
    trace: Trace, ops: EventTable, is_slow: Bool, time: I64, median: F64, excess: I64
) -> tuple[bool, bool]:
    """Return whether input shapes were recorded, and whether most of the slowest calls have those of usual calls."""
    slow = np.flatnonzero(is_slow)[np.argsort(-excess, kind="stable")[:_MAX_SHAPES_READ]]
    near = np.flatnonzero(is_in(ops.name, ops.name[slow]) & ~is_slow & (time <= 2 * median[ops.name]))
    near = near[np.linspace(0, len(near) - 1, min(_MAX_SHAPES_READ, len(near))).astype(np.int64)]
    chosen = np.concatenate([slow, near])
    recorded = enumerate(read_dims(trace, ops.row[chosen]))
    shapes = {index: f"{ops.name[chosen[index]]} {dims}" for index, dims in recorded if dims}
    usual = {shape for index, shape in shapes.items() if index >= len(slow)}
    of_slow = [shape for index, shape in shapes.items() if index < len(slow)]
    return bool(of_slow and usual), 2 * sum(shape in usual for shape in of_slow) > len(of_slow)


@register_pattern(
    "Ops wait for CPU cores",
    meaning="in its slow calls the op's threads wait for cores that are busy, or that are not there",
    action="use fewer threads, or run fewer other programs: the cores are shared",
    code="torch.set_num_threads(n)  # or OMP_NUM_THREADS; compare with 1",
    decided="In a trace without GPU activity: self time of an op's calls on the main thread above ten times their "
    "median, and above ten times the fastest call at the same position of another step. Only ops with enough calls and "
    "enough such calls count, and input shapes must be those of other calls, where they were recorded. The time must "
    "reach the limit after the first step as well.",
    thresholds=(
        thresholds.CONTENTION_RATIO,
        thresholds.CONTENTION_GROUP_MIN,
        thresholds.CONTENTION_CALLS_SHARE,
        thresholds.CONTENTION_MIN_CALLS,
        thresholds.CONTENTION_SHARE,
    ),
)
def cpu_contention(view: ScopeView) -> Answer:
    tables = view.tables
    if len(tables.work):
        return Answer.absent("with a GPU, what ops wait for counts as a cause of its idle time: idle-gap")
    if missing_reason := (NO_GPU if len(tables.calls) else "" if len(tables.ops) else NO_CPU):
        return Answer.cannot_tell(missing_reason)
    found = tables.compute_once(find_slow_calls)
    if not found.is_recurring:
        return Answer.absent()
    in_scope = view.overlap_mask(found.calls.start, found.calls.end)
    calls, excess = found.calls.select(in_scope), found.excess[in_scope]
    lost = min(int(excess.sum()), view.covered_time(calls))
    share = lost / max(view.window_length, 1)
    if share < thresholds.CONTENTION_SHARE.value:
        return Answer.absent(f"slow calls take {format_percent(share)} of this range more than is usual")
    if not found.is_comparable:
        return Answer.cannot_tell(
            "some calls of an op take over ten times its median, but neither input shapes nor steps with the same "
            "calls were recorded: they may have more to do (record_shapes=True)"
        )
    time = min(int(found.time[in_scope].sum()), view.window_length)
    seen = (
        f"{view.trace.names[found.name]}: median {format_duration(found.median)}, but "
        f"{format_duration(found.slowest)} or more in {found.percent} % of {found.count:,} calls; calls over ten times "
        f"their op's median take {format_percent(time / max(view.window_length, 1))} of {view.window_label}"
    )
    return Answer.fired(seen, calls.row, lost, places=find_event_places(view.trace, calls.row, excess))
