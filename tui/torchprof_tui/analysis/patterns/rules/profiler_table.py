"""Section "Profiler table": what sums over the scope say."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Section, Weight, absent, cannot_tell, fired
from torchprof_tui.analysis.patterns.engine.registry import pattern
from torchprof_tui.analysis.patterns.engine.scope_view import (
    NO_CPU,
    NO_LINKS,
    NOTHING_HERE,
    View,
    percent,
    several,
    us,
)
from torchprof_tui.analysis.patterns.engine.verdict import measure
from torchprof_tui.trace.core.arrays import Bool


@pattern(
    "overhead-bound",
    Section.TABLE,
    "The GPU waits for the CPU",
    meaning="dispatching the work takes longer than doing it",
    action="give each call more work, make fewer calls, compile, or replay a CUDA graph",
    code='model = torch.compile(model, mode="reduce-overhead")',
    decided="Over the steps (and the GPU work they launched, without the profiler's own time), the union of GPU work "
    "is below the first limit, and most of the idle time is dispatch, host code, or the filling of the queue after a "
    "sync; not input, communication or the profiler.",
    thresholds=(limits.GPU_BUSY_LOW, limits.OVERHEAD_OF_IDLE),
    weight=Weight.PROBLEM,
    by_absence=True,
)
def overhead_bound(view: View) -> Answer:
    if missing := view.missing_window() or ("" if view.facts.recorded_threads else "no CPU thread was recorded"):
        return cannot_tell(missing)
    shares = measure(view)
    if not shares.overhead_bound:
        return absent(f"GPU busy {percent(shares.busy)} of {us(view.length)}")
    steps = view.steps
    where = "the steps" if len(steps) else "the range"
    seen = (
        f"GPU busy {percent(shares.busy)} of {where} ({us(view.length)}); for {percent(shares.overhead)} it waited for "
        f"the CPU to dispatch or run code"
    )
    evidence = view.something()
    if not len(evidence):
        return cannot_tell(NOTHING_HERE)
    return fired(seen, evidence, int(shares.overhead * view.device_time) // len(view.facts.devices))


@pattern(
    "compute-bound",
    Section.TABLE,
    "The GPU is the bottleneck",
    meaning="the CPU runs ahead and the GPU never waits: usually what you want",
    action="only faster kernels help now: lower precision, fused or compiled ops, better tile sizes",
    decided="Kernels cover more than the limit of the steps' span, and the median piece of GPU work starts after its "
    "launch call has returned (the queue is not empty).",
    thresholds=(limits.GPU_BUSY_HIGH,),
)
def compute_bound(view: View) -> Answer:
    if missing := view.missing_window():
        return cannot_tell(missing)
    shares = measure(view)
    if shares.kernels < limits.GPU_BUSY_HIGH.value:
        return absent(f"kernels cover {percent(shares.kernels)} of {us(view.length)}")
    work, trace = view.work, view.trace
    linked = work.launch >= 0
    if not linked.any():
        return cannot_tell(NO_LINKS)
    launch = work.launch[linked]
    delay = int(np.median(work.rows.start[linked] - trace.start[launch] - trace.duration[launch]))
    if delay <= 0:
        return absent(f"kernels cover {percent(shares.kernels)}, but launches do not run ahead of them")
    top = work.rows.row[np.argsort(-view.work_time, kind="stable")[:20]]
    return fired(
        f"kernels cover {percent(shares.kernels)} of {us(view.length)}; the median launch is {us(delay)} ahead",
        np.sort(top),
    )


@pattern(
    "hotspot",
    Section.TABLE,
    "One kernel or op takes most of the GPU's time",
    meaning="whatever else is improved, this one decides",
    action="start there: its shapes, its precision, a fused or a tuned replacement",
    decided="GPU time summed by kernel name in the scope, then by the innermost operator that launched it; the first "
    "has at least the limit of all.",
    thresholds=(limits.HOTSPOT,),
)
def hotspot(view: View) -> Answer:
    if missing := view.missing_gpu():
        return cannot_tell(missing)
    names = view.work.rows.name
    time = np.bincount(names, weights=view.work_time)
    total = float(time.sum())
    top = int(time.argmax())
    share = time[top] / total if total else 0.0
    place, who, unit = names == top, view.facts.short(int(view.work.rows.row[int((names == top).argmax())])), "run"
    kernel = share
    if share < limits.HOTSPOT.value:
        share, place = _by_operator(view, total)
        unit = "piece"
        who = view.facts.name(int(view.inner_op[int(place.argmax())])) if place.any() else ""
    if share < limits.HOTSPOT.value:
        by = f", the heaviest op {percent(share)}" if who else ""
        return absent(f"the heaviest kernel takes {percent(kernel)} of GPU time{by}")
    rows = view.work.rows.where(place)
    of = " of work, of several kernels" if unit == "piece" else ""
    return fired(
        f"{who} takes {percent(share)} of GPU time: {us(float(view.work_time[place].sum()))} in "
        f"{several(len(rows), unit)}{of}",
        rows.row,
        min(view.covered(rows), view.scope.length),
    )


def _by_operator(view: View, total: float) -> tuple[float, Bool]:
    """(share of GPU time of the operator that launched most, bool[work]: what it launched). Wrappers of autograd and of
    compiled code are no operators: below one of them lies a whole model."""
    inner = view.inner_op
    known = (inner >= 0) & view.facts.aten[np.maximum(inner, 0)]
    if not known.any() or not total:
        return 0.0, known
    name = view.trace.name[inner[known]]
    time = np.bincount(name, weights=view.work_time[known])
    top = int(time.argmax())
    chosen = known.copy()
    chosen[known] = name == top
    return float(time[top]) / total, chosen


@pattern(
    "call-count",
    Section.TABLE,
    "A cheap op, called very often",
    meaning="each call is cheap; their number is what costs",
    action="batch or fuse the calls, use a foreach or fused variant, or compile the region",
    code="torch.optim.AdamW(params, fused=True)",
    decided="An op or a runtime call with at least so many calls a step (or in the scope, without steps), a short mean "
    "self time, and together a noticeable share of the scope.",
    thresholds=(limits.CALLS_PER_STEP, limits.CALLS_MEAN, limits.CALLS_SHARE),
    weight=Weight.PROBLEM,
)
def call_count(view: View) -> Answer:
    if missing := view.missing_ops():
        return cannot_tell(missing)
    ops = view.cut(view.facts.dispatching)
    if not len(ops):
        return absent("no op in this range")
    own = np.minimum(view.trace.self_duration[ops.row], view.clipped(ops))
    calls = np.bincount(ops.name)
    time = np.bincount(ops.name, weights=own)
    steps = max(len(view.steps), 1)
    often = (calls >= limits.CALLS_PER_STEP.value * steps) & (time <= limits.CALLS_MEAN.value * calls)
    dear = often & (time >= limits.CALLS_SHARE.value * view.scope.length)
    if not dear.any():
        return absent(f"the most frequent one runs {int(calls.max()):,} times{view.per_step(int(calls.max()))}")
    top = int(np.where(dear, time, 0).argmax())
    return fired(
        f"{view.trace.names[top]} runs {int(calls[top]):,} times{view.per_step(int(calls[top]))} at "
        f"{us(time[top] / calls[top])} of its own: {us(time[top])} together",
        ops.row[ops.name == top],
        min(int(time[top]), view.scope.length),
    )


@pattern(
    "cost-in-children",
    Section.TABLE,
    "The cost lies below this row",
    meaning="a large total with a small self time: the work is done by what it calls",
    action="follow its children; the row to improve is further down",
    decided="Among the ops and annotations with the largest totals (no steps: what they cost always lies below them): "
    "total time at least so many times the self time.",
    thresholds=(limits.CHILDREN_RATIO, limits.CHILDREN_TOP),
)
def cost_in_children(view: View) -> Answer:
    if not len(view.facts.ranges):
        return cannot_tell(NO_CPU)
    table = view.cut(view.facts.ranges)
    if not len(table):
        return absent("no op in this range")
    trace = view.trace
    total = np.bincount(table.name, weights=table.duration)
    own = np.bincount(table.name, weights=trace.self_duration[table.row])
    top = np.argsort(-total, kind="stable")[: int(limits.CHILDREN_TOP.value)]
    deep = [name for name in top.tolist() if total[name] and total[name] >= limits.CHILDREN_RATIO.value * own[name]]
    if not deep:
        return absent("the rows with the largest totals do their work themselves")
    name = deep[0]
    return fired(
        f"{trace.names[name]}: {us(total[name])} in all, {us(own[name])} of its own",
        table.row[table.name == name],
    )
