"""Section "Profiler table": patterns of the sums over a scope."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.pattern import Answer, register_notice, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import NO_CPU, NO_LINKS, NOTHING_HERE
from torchprof_tui.analysis.patterns.rules.op_loop import find_repeats
from torchprof_tui.analysis.patterns.rules.remedy_choice import choose_call_count_remedy, choose_cpu_remedy
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals, union, unite
from torchprof_tui.analysis.words.dictionary import explain
from torchprof_tui.trace.core.arrays import I64, Bool, find_largest, find_median
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role

_MAX_PERIOD = 32  # outermost ops of one round: longer groups are layers or whole models
_MIN_ROUNDS = 16  # rounds in a row: a dozen equal layers are a model's own


def find_loops_around(view: ScopeView, calls: EventTable, min_calls: int) -> Intervals:
    """Find when loops ran that contain at least `min_calls` of these calls each, within the scope.

    A loop is a run of outermost ops of one thread whose names repeat with a period of 1 to 32, for 16 rounds or more:
    from the start of its first op to the end of its last, with the Python between them.
    """
    trace, ops = view.trace, view.tables.ops
    if not len(calls) or not len(ops):
        return NO_INTERVALS
    is_op = np.asarray(trace.kind) == Kind.OP
    ops = ops.select(view.tables.outermost_ancestor(ops.row, is_op) < 0)
    values = ops.name.astype(np.int64) + np.asarray(trace.lane[ops.row]).astype(np.int64) * len(trace.names)
    start, stop, _ = find_repeats(values, _MIN_ROUNDS, _MAX_PERIOD)
    loops = union(start, stop)
    first, last = loops.starts, loops.ends - 1
    index = np.sort(ops.row.searchsorted(calls.row, side="right") - 1)
    count = index.searchsorted(last, side="right") - index.searchsorted(first)
    first, last = first[count >= min_calls], last[count >= min_calls]
    return view.clip(union(ops.start[first], ops.end[last])) if len(first) else NO_INTERVALS


@register_pattern(
    "The GPU waits for the CPU",
    meaning="the CPU takes longer to prepare and launch the work than the GPU to run it",
    action="make fewer and larger calls, compile, or replay a CUDA graph",
    code='model = torch.compile(model, mode="reduce-overhead")',
    decided="Without the profiler's own time, the GPU is busy for less than the first limit of the steps, and the CPU "
    "causes most of its idle time: dispatch, host code, or refilling the queue after a synchronisation.",
    thresholds=(thresholds.GPU_BUSY_LOW, thresholds.OVERHEAD_SHARE_OF_IDLE),
    fires_on_absence=True,
    needs=(ScopeView.missing_window_reason,),
)
def overhead_bound(view: ScopeView) -> Answer:
    if not any(lane.role is Role.THREAD and len(lane) for lane in view.trace.lanes):
        return Answer.cannot_tell("no CPU thread was recorded")
    shares = view.shares
    if not shares.is_overhead_bound:
        return Answer.absent(f"GPU busy {format_percent(shares.busy)} of {view.counted_length}")
    scope_label = "the steps" if len(view.steps) else "the range"
    summary = (
        f"GPU busy {format_percent(shares.busy)} of {scope_label} ({view.counted_length}): "
        "it waited for the CPU to dispatch and launch"
    )
    evidence = view.representative_events()
    if not len(evidence):
        return Answer.cannot_tell(NOTHING_HERE)
    at_stake = int(shares.overhead * view.device_time) // len(view.tables.devices)
    idle = (
        view.clip(view.gap_finder.find_cause_intervals(cause, device))
        for cause in shares.OVERHEAD_CAUSES
        for device in view.tables.devices
    )
    return Answer.fired(summary, evidence, at_stake, choose_cpu_remedy(view), unite(idle))


@register_notice(
    "The GPU is the bottleneck",
    meaning="the CPU launches work ahead of time and the GPU hardly waits: usually a good state",
    action="only faster kernels help: lower precision, fused or compiled ops, better tile sizes",
    decided="Kernels run for more than the limit of the steps' time, and the median GPU work starts after its launch "
    "call has returned (the queue is not empty).",
    thresholds=(thresholds.GPU_BUSY_HIGH,),
    needs=(ScopeView.missing_window_reason,),
)
def compute_bound(view: ScopeView) -> Answer:
    shares = view.shares
    if shares.compute < thresholds.GPU_BUSY_HIGH.value:
        return Answer.absent(f"kernels run for {format_percent(shares.compute)} of {view.counted_length}")
    work, trace, has_launch = view.work, view.trace, view.work.launch >= 0
    if not has_launch.any():
        return Answer.cannot_tell(NO_LINKS)
    launch = work.launch[has_launch]
    delay = int(find_median(work.events.start[has_launch] - trace.start[launch] - trace.duration[launch]))
    if delay <= 0:
        return Answer.absent(
            f"kernels run for {format_percent(shares.compute)}, but the launches are not ahead of them"
        )
    heaviest = work.events.row[find_largest(view.work_time, 20)]
    return Answer.fired(
        f"kernels run for {format_percent(shares.compute)} of {view.counted_length}; the median "
        f"launch is {format_duration(delay)} ahead",
        np.sort(heaviest),
    )


@register_notice(
    "One kernel or op takes most of the GPU's time",
    meaning=explain("hotspot", "is", "why"),
    action="start there: change its shapes or precision, or use a fused or tuned replacement",
    decided="GPU time summed by kernel name in the scope, then by the innermost operator that launched it; the first "
    "one has at least the share of the limit.",
    thresholds=(thresholds.HOTSPOT_SHARE,),
    needs=(ScopeView.missing_gpu_reason,),
)
def hotspot(view: ScopeView) -> Answer:
    names, unit = view.work.events.name, "run"
    time_by_name = np.bincount(names, weights=view.work_time)
    total, heaviest = float(time_by_name.sum()), int(time_by_name.argmax())
    share = kernel_share = time_by_name[heaviest] / total if total else 0.0
    in_hotspot = names == heaviest
    hotspot_name = view.tables.short_name(int(view.work.events.row[int(in_hotspot.argmax())]))
    if share < thresholds.HOTSPOT_SHARE.value:
        share, in_hotspot = _find_heaviest_operator(view, total)
        unit = "piece"
        hotspot_name = view.tables.name(int(view.inner_op[int(in_hotspot.argmax())])) if in_hotspot.any() else ""
    if share < thresholds.HOTSPOT_SHARE.value:
        op_text = f", the heaviest op {format_percent(share)}" if hotspot_name else ""
        return Answer.absent(f"the heaviest kernel takes {format_percent(kernel_share)} of GPU time{op_text}")
    hotspot_work = view.work.events.select(in_hotspot)
    unit_note = " of work, of several kernels" if unit == "piece" else ""
    seen = (
        f"{hotspot_name} takes {format_percent(share)} of GPU time: "
        f"{format_duration(float(view.work_time[in_hotspot].sum()))} in "
        f"{format_count(len(hotspot_work), unit)}{unit_note}"
    )
    return Answer.fired(seen, hotspot_work.row, min(view.covered_time(hotspot_work), view.scope.length))


def _find_heaviest_operator(view: ScopeView, total: float) -> tuple[float, Bool]:
    """Find the operator that launched most GPU time: (its share of `total`, bool[work]: the work that it launched).

    Wrappers of autograd and of compiled code are no operators: one of them can contain a whole model.
    """
    inner_op = view.inner_op
    has_op = (inner_op >= 0) & view.tables.is_dispatcher_op[np.maximum(inner_op, 0)]
    if not has_op.any() or not total:
        return 0.0, has_op
    name = view.trace.name[inner_op[has_op]]
    time_by_name = np.bincount(name, weights=view.work_time[has_op])
    heaviest = int(time_by_name.argmax())
    of_heaviest = has_op.copy()
    of_heaviest[has_op] = name == heaviest
    return float(time_by_name[heaviest]) / total, of_heaviest


@register_pattern(
    "A short op is called very often",
    meaning="each call is short; their number makes them expensive",
    action="batch the calls into fewer, larger ones, or compile the region",
    decided="An op or a runtime call whose calls per step (without steps: in the scope) reach the first limit, whose "
    "mean self time is below the second, and whose total self time reaches the third. Time at stake: that self time; "
    "without a GPU, the time of the loops around the calls: the same outermost ops 16 times in a row or more.",
    thresholds=(thresholds.CALLS_PER_STEP, thresholds.CALLS_MEAN_MAX, thresholds.CALLS_SHARE),
    needs=(ScopeView.missing_ops_reason,),
)
def call_count(view: ScopeView) -> Answer:
    tables = (view.ops, view.calls)
    if not any(len(table) for table in tables):
        return Answer.absent("no op in this range")
    calls, time = np.zeros(len(view.trace.names), np.int64), np.zeros(len(view.trace.names))
    for table in tables:
        self_time = np.minimum(view.trace.self_duration[table.row], view.time_in_scope(table))
        calls += np.bincount(table.name, minlength=len(calls))
        time += np.bincount(table.name, weights=self_time, minlength=len(time))
    steps = max(len(view.steps), 1)
    is_frequent = (calls >= thresholds.CALLS_PER_STEP.value * steps) & (time <= thresholds.CALLS_MEAN_MAX.value * calls)
    is_costly = is_frequent & (time >= thresholds.CALLS_SHARE.value * view.scope.length)
    if not is_costly.any():
        return Answer.absent(
            f"the most frequent one runs {int(calls.max()):,} times{view.format_per_step(int(calls.max()))}"
        )
    costliest = int(np.where(is_costly, time, 0).argmax())
    of_name = view.tables.event_table(_list_rows_of_name(tables, costliest))
    own_time = min(int(time[costliest]), view.scope.length)
    seen = (
        f"{view.trace.names[costliest]} runs {int(calls[costliest]):,} "
        f"times{view.format_per_step(int(calls[costliest]))}: "
        f"{format_duration(time[costliest])} of self time, {format_duration(time[costliest] / calls[costliest])} each"
    )
    remedy = choose_call_count_remedy(view, of_name)
    loops = NO_INTERVALS
    if not len(view.tables.work):  # with a GPU the loop may run while the GPU works
        loops = find_loops_around(view, of_name, int(thresholds.CALLS_PER_STEP.value))
    if loops.total <= own_time:
        return Answer.fired(seen, of_name.row, own_time, remedy)
    around = "loop" if len(loops) == 1 else f"{len(loops):,} loops"
    seen += f"; the {around} around them: {format_duration(loops.total)}"
    return Answer.fired(seen, of_name.row, loops.total, remedy, loops)


@register_notice(
    "The time is spent in nested calls",
    meaning="a large total time with a small self time: the time is spent in the calls below this row",
    action="look at its children: the row to improve is further down",
    decided="Among the ops and annotations with the largest totals: total time over self time reaches the limit. "
    "Steps are left out, because their time is always in their children.",
    thresholds=(thresholds.TOTAL_OVER_SELF_RATIO, thresholds.CHILDREN_TOP_ROWS),
)
def cost_in_children(view: ScopeView) -> Answer:
    if not len(view.tables.ops) and not len(view.tables.annotations):
        return Answer.cannot_tell(NO_CPU)
    tables = (view.ops, view.select_in_scope(view.tables.annotations))
    if not any(len(table) for table in tables):
        return Answer.absent("no op in this range")
    trace = view.trace
    total, self_time = np.zeros(len(trace.names)), np.zeros(len(trace.names))
    for table in tables:
        total += np.bincount(table.name, weights=table.duration, minlength=len(total))
        self_time += np.bincount(table.name, weights=trace.self_duration[table.row], minlength=len(total))
    largest = np.argsort(-total, kind="stable")[: int(thresholds.CHILDREN_TOP_ROWS.value)]
    with_costly_children = [
        name_id
        for name_id in largest.tolist()
        if total[name_id] and total[name_id] >= thresholds.TOTAL_OVER_SELF_RATIO.value * self_time[name_id]
    ]
    if not with_costly_children:
        return Answer.absent("the rows with the largest totals spend the time themselves")
    name_id = with_costly_children[0]
    return Answer.fired(
        f"{trace.names[name_id]}: total {format_duration(total[name_id])}, self {format_duration(self_time[name_id])}",
        _list_rows_of_name(tables, name_id),
    )


def _list_rows_of_name(tables: Iterable[EventTable], name: int) -> I64:
    """List the rows of the events of one name in several tables, ascending: int64[k]."""
    return np.sort(np.concatenate([table.row[table.name == name] for table in tables]), kind="stable")
