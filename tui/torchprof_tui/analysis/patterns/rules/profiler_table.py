"""Section "Profiler table": what sums over the scope say."""

from __future__ import annotations

import numpy as np

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
from torchprof_tui.analysis.patterns.engine.scope_view import (
    NO_CPU,
    NO_LINKS,
    NOTHING_HERE,
    ScopeView,
    format_count,
    format_percent,
    us,
)
from torchprof_tui.analysis.patterns.engine.verdict import measure_shares
from torchprof_tui.trace.core.arrays import Bool


@register_pattern(
    "overhead-bound",
    Section.TABLE,
    "The GPU waits for the CPU",
    meaning="dispatching the work takes longer than doing it",
    action="give each call more work, make fewer calls, compile, or replay a CUDA graph",
    code='model = torch.compile(model, mode="reduce-overhead")',
    decided="Over the steps (and the GPU work they launched, without the profiler's own time), the union of GPU work "
    "is below the first limit, and most of the idle time is dispatch, host code, or the filling of the queue after a "
    "sync; not input, communication or the profiler.",
    thresholds=(limits.GPU_BUSY_LOW, limits.OVERHEAD_SHARE_OF_IDLE),
    severity=Severity.PROBLEM,
    fires_on_absence=True,
)
def overhead_bound(view: ScopeView) -> Answer:
    if missing := view.missing_window_reason() or ("" if view.tables.has_cpu_threads else "no CPU thread was recorded"):
        return cannot_tell_answer(missing)
    shares = measure_shares(view)
    if not shares.is_overhead_bound:
        return absent_answer(f"GPU busy {format_percent(shares.busy)} of {us(view.window_length)}")
    steps = view.steps
    where = "the steps" if len(steps) else "the range"
    seen = (
        f"GPU busy {format_percent(shares.busy)} of {where} ({us(view.window_length)}); for {format_percent(shares.overhead)} it waited for "
        f"the CPU to dispatch or run code"
    )
    evidence = view.representative_events()
    if not len(evidence):
        return cannot_tell_answer(NOTHING_HERE)
    return fired_answer(seen, evidence, int(shares.overhead * view.device_time) // len(view.tables.devices))


@register_pattern(
    "compute-bound",
    Section.TABLE,
    "The GPU is the bottleneck",
    meaning="the CPU runs ahead and the GPU never waits: usually what you want",
    action="only faster kernels help now: lower precision, fused or compiled ops, better tile sizes",
    decided="Kernels cover more than the limit of the steps' span, and the median piece of GPU work starts after its "
    "launch call has returned (the queue is not empty).",
    thresholds=(limits.GPU_BUSY_HIGH,),
)
def compute_bound(view: ScopeView) -> Answer:
    if missing := view.missing_window_reason():
        return cannot_tell_answer(missing)
    shares = measure_shares(view)
    if shares.compute < limits.GPU_BUSY_HIGH.value:
        return absent_answer(f"kernels cover {format_percent(shares.compute)} of {us(view.window_length)}")
    work, trace = view.work, view.trace
    linked = work.launch >= 0
    if not linked.any():
        return cannot_tell_answer(NO_LINKS)
    launch = work.launch[linked]
    delay = int(np.median(work.events.start[linked] - trace.start[launch] - trace.duration[launch]))
    if delay <= 0:
        return absent_answer(f"kernels cover {format_percent(shares.compute)}, but launches do not run ahead of them")
    top = work.events.row[np.argsort(-view.work_time, kind="stable")[:20]]
    return fired_answer(
        f"kernels cover {format_percent(shares.compute)} of {us(view.window_length)}; the median launch is {us(delay)} ahead",
        np.sort(top),
    )


@register_pattern(
    "hotspot",
    Section.TABLE,
    "One kernel or op takes most of the GPU's time",
    meaning="whatever else is improved, this one decides",
    action="start there: its shapes, its precision, a fused or a tuned replacement",
    decided="GPU time summed by kernel name in the scope, then by the innermost operator that launched it; the first "
    "has at least the limit of all.",
    thresholds=(limits.HOTSPOT_SHARE,),
)
def hotspot(view: ScopeView) -> Answer:
    if missing := view.missing_gpu_reason():
        return cannot_tell_answer(missing)
    names = view.work.events.name
    time = np.bincount(names, weights=view.work_time)
    total = float(time.sum())
    top = int(time.argmax())
    share = time[top] / total if total else 0.0
    place, who, unit = (
        names == top,
        view.tables.short_name(int(view.work.events.row[int((names == top).argmax())])),
        "run",
    )
    kernel = share
    if share < limits.HOTSPOT_SHARE.value:
        share, place = _find_heaviest_operator(view, total)
        unit = "piece"
        who = view.tables.name(int(view.inner_op[int(place.argmax())])) if place.any() else ""
    if share < limits.HOTSPOT_SHARE.value:
        by = f", the heaviest op {format_percent(share)}" if who else ""
        return absent_answer(f"the heaviest kernel takes {format_percent(kernel)} of GPU time{by}")
    rows = view.work.events.select(place)
    of = " of work, of several kernels" if unit == "piece" else ""
    return fired_answer(
        f"{who} takes {format_percent(share)} of GPU time: {us(float(view.work_time[place].sum()))} in "
        f"{format_count(len(rows), unit)}{of}",
        rows.row,
        min(view.covered_time(rows), view.scope.length),
    )


def _find_heaviest_operator(view: ScopeView, total: float) -> tuple[float, Bool]:
    """(share of GPU time of the operator that launched most, bool[work]: what it launched). Wrappers of autograd and of
    compiled code are no operators: below one of them lies a whole model."""
    inner = view.inner_op
    known = (inner >= 0) & view.tables.is_dispatcher_op[np.maximum(inner, 0)]
    if not known.any() or not total:
        return 0.0, known
    name = view.trace.name[inner[known]]
    time = np.bincount(name, weights=view.work_time[known])
    top = int(time.argmax())
    chosen = known.copy()
    chosen[known] = name == top
    return float(time[top]) / total, chosen


@register_pattern(
    "call-count",
    Section.TABLE,
    "A cheap op, called very often",
    meaning="each call is cheap; their number is what costs",
    action="batch or fuse the calls, use a foreach or fused variant, or compile the region",
    code="torch.optim.AdamW(params, fused=True)",
    decided="An op or a runtime call with at least so many calls a step (or in the scope, without steps), a short mean "
    "self time, and together a noticeable share of the scope.",
    thresholds=(limits.CALLS_PER_STEP, limits.CALLS_MEAN_MAX, limits.CALLS_SHARE),
    severity=Severity.PROBLEM,
)
def call_count(view: ScopeView) -> Answer:
    if missing := view.missing_ops_reason():
        return cannot_tell_answer(missing)
    ops = view.select_in_scope(view.tables.ops_and_calls)
    if not len(ops):
        return absent_answer("no op in this range")
    own = np.minimum(view.trace.self_duration[ops.row], view.time_in_scope(ops))
    calls = np.bincount(ops.name)
    time = np.bincount(ops.name, weights=own)
    steps = max(len(view.steps), 1)
    often = (calls >= limits.CALLS_PER_STEP.value * steps) & (time <= limits.CALLS_MEAN_MAX.value * calls)
    dear = often & (time >= limits.CALLS_SHARE.value * view.scope.length)
    if not dear.any():
        return absent_answer(
            f"the most frequent one runs {int(calls.max()):,} times{view.format_per_step(int(calls.max()))}"
        )
    top = int(np.where(dear, time, 0).argmax())
    return fired_answer(
        f"{view.trace.names[top]} runs {int(calls[top]):,} times{view.format_per_step(int(calls[top]))} at "
        f"{us(time[top] / calls[top])} of its own: {us(time[top])} together",
        ops.row[ops.name == top],
        min(int(time[top]), view.scope.length),
    )


@register_pattern(
    "cost-in-children",
    Section.TABLE,
    "The cost lies below this row",
    meaning="a large total with a small self time: the work is done by what it calls",
    action="follow its children; the row to improve is further down",
    decided="Among the ops and annotations with the largest totals (no steps: what they cost always lies below them): "
    "total time at least so many times the self time.",
    thresholds=(limits.TOTAL_OVER_SELF_RATIO, limits.CHILDREN_TOP_ROWS),
)
def cost_in_children(view: ScopeView) -> Answer:
    if not len(view.tables.ops_and_annotations):
        return cannot_tell_answer(NO_CPU)
    table = view.select_in_scope(view.tables.ops_and_annotations)
    if not len(table):
        return absent_answer("no op in this range")
    trace = view.trace
    total = np.bincount(table.name, weights=table.duration)
    own = np.bincount(table.name, weights=trace.self_duration[table.row])
    top = np.argsort(-total, kind="stable")[: int(limits.CHILDREN_TOP_ROWS.value)]
    deep = [
        name for name in top.tolist() if total[name] and total[name] >= limits.TOTAL_OVER_SELF_RATIO.value * own[name]
    ]
    if not deep:
        return absent_answer("the rows with the largest totals do their work themselves")
    name = deep[0]
    return fired_answer(
        f"{trace.names[name]}: {us(total[name])} in all, {us(own[name])} of its own",
        table.row[table.name == name],
    )
