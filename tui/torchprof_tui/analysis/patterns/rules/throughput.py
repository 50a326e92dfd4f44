"""Patterns of GPU work compared with the device's peaks: bytes a second, operations a second, full waves."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.kernel.footprint import find_device, find_occupancy
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.launch_owners import MATH_ATTENTION_REGEX, is_launched_beneath
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_notice, register_pattern
from torchprof_tui.analysis.patterns.engine.practices import OPTIMIZER_STEP_REGEX, OptimizerKind
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.rules.optimizer import choose_optimizer_remedy
from torchprof_tui.analysis.throughput.device_peaks import DTYPES
from torchprof_tui.analysis.throughput.op_formulas import PRODUCT_CLASSES
from torchprof_tui.analysis.throughput.op_inputs import SMALL_SIDE, explain_shape, find_product_shape
from torchprof_tui.analysis.throughput.roofline import Roofline
from torchprof_tui.trace.core.arrays import F64, I64, Bool, is_in, sorted_unique
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

_COMPILED_SHARE = 0.10
"""Inductor's kernels, in relation to the unfused ones, from which the program counts as compiled already."""
_FUSED_ATTENTION = Remedy(
    "let one kernel compute all of attention, so that the scores are not written to memory",
    "torch.nn.functional.scaled_dot_product_attention(q, k, v)",
)
_ATTENTION_SHARE = 0.15
"""Softmax between batched products, in relation to all such kernels, from which attention is what is not fused."""


@register_pattern(
    "Unfused kernels that only move data",
    meaning="each elementwise, copy and norm kernel reads and writes all its data, and several in a row repeat that",
    action="fuse them with torch.compile, fused norms or a fused optimizer",
    code="model = torch.compile(model)",
    decided="Elementwise, copy, random, norm, softmax and foreach kernels whose share of GPU time and of the time "
    "reaches the limits; those of `sdpa-math` are counted there. Time at stake: in each row of such kernels "
    "on a stream, all but the longest. GB/s: the smallest number of bytes that the operators' shapes need, "
    "over the kernels' time.",
    thresholds=(thresholds.MEMORY_BOUND_SHARE, thresholds.MEMORY_BOUND_TIME, thresholds.MEMORY_BOUND_WIN),
    needs=(ScopeView.missing_gpu_reason,),
)
def memory_bound_elementwise(view: ScopeView) -> Answer:
    work = view.work
    is_streaming = work.class_mask(KernelClass.ELEMENTWISE, KernelClass.COPY, KernelClass.RANDOM)
    is_streaming |= work.class_mask(KernelClass.NORM, KernelClass.SOFTMAX, KernelClass.OPTIMIZER)
    is_streaming &= work.kind == Kind.KERNEL
    is_streaming &= ~is_launched_beneath(view, is_streaming, MATH_ATTENTION_REGEX)
    share, kernels = view.share_of_gpu_time(is_streaming), work.events.select(is_streaming)
    busy_time = view.covered_time(kernels)
    if share < thresholds.MEMORY_BOUND_SHARE.value:
        return Answer.absent(f"{format_percent(share)} of GPU time")
    if busy_time < thresholds.MEMORY_BOUND_TIME.value * max(view.device_time, 1):
        return Answer.absent(f"{format_percent(share)} of GPU time, but only {format_duration(busy_time)} in total")
    at_stake, run_count = _time_in_runs(view, is_streaming)
    attention_time = 0  # of softmax kernels, in scopes with batched products
    if len(view.match_names(r"aten::(bmm|baddbmm)$", Kind.OP)):
        softmaxes = view.tables.match_names(r"aten::_softmax$", Kind.OP).row
        is_softmax = is_in(view.inner_op, softmaxes) & work.class_mask(KernelClass.SOFTMAX)
        attention_time = int(view.work_time[is_softmax].sum())
    is_attention = attention_time > _ATTENTION_SHARE * float(view.work_time[is_streaming].sum())
    at_stake = min(max(at_stake, attention_time if is_attention else 0), busy_time)
    if at_stake < thresholds.MEMORY_BOUND_WIN.value * view.device_time:
        return Answer.absent(
            f"{format_percent(share)} of GPU time, but few in a row: {format_duration(at_stake)} can be saved"
        )
    seen = (
        f"{format_duration(busy_time)} in {format_count(len(kernels), 'kernel')} that only move data"
        f"{_format_rate(view, is_streaming)}; {format_count(run_count, 'run')} of several in a row"
    )
    remedy = _FUSED_ATTENTION if is_attention else _choose_fusion(view, is_streaming)
    return Answer.fired(seen, kernels.row, at_stake, remedy)


def _time_in_runs(view: ScopeView, chosen: Bool) -> tuple[int, int]:
    """Return (ns of all but the longest kernel of each run of chosen kernels on a stream, runs of two or more)."""
    lane = view.work.lane
    order = np.lexsort((view.work.events.start, lane))
    chosen, lane, time = chosen[order], lane[order], view.work_time[order]
    is_start = np.ones(len(order), np.bool_)
    is_start[1:] = (lane[1:] != lane[:-1]) | (chosen[1:] != chosen[:-1])
    first = np.flatnonzero(is_start)
    in_run = chosen[first]
    rest = np.add.reduceat(time, first) - np.maximum.reduceat(time, first)
    length = np.diff(np.append(first, len(order)))
    return int(rest[in_run].sum()), int((in_run & (length > 1)).sum())


def _format_rate(view: ScopeView, chosen: Bool) -> str:
    """Format the rate of chosen work: " at 2,233 GB/s, 47 % of memory bandwidth"; "" where too little is known."""
    roofline = view.tables.roofline
    weight = _time_by_group(view, roofline, chosen)
    known = (weight > 0) & ~np.isnan(roofline.gb_s)
    if weight[known].sum() < 0.5 * weight.sum():
        return ""
    rate = f" at {float(np.average(roofline.gb_s[known], weights=weight[known])):,.0f} GB/s"
    shared = (weight > 0) & ~np.isnan(roofline.memory_share)
    if weight[shared].sum() >= 0.5 * weight.sum():
        share = float(np.average(roofline.memory_share[shared], weights=weight[shared]))
        return f"{rate}, {format_percent(share)} of memory bandwidth"
    return f"{rate}, mostly from tensors that fit into the cache" if weight[roofline.is_cached].any() else rate


def _time_by_group(view: ScopeView, roofline: Roofline, chosen: Bool) -> F64:
    """Return the ns of the chosen work of the scope by the roofline's groups: float64[k]."""
    group = roofline.group[view.work_in_scope][chosen]
    return np.bincount(group, weights=view.work_time[chosen], minlength=len(roofline.time)).astype(np.float64)


def _choose_fusion(view: ScopeView, chosen: Bool) -> Remedy | None:
    time, practices = view.work_time, view.tables.practices
    total = float(time[chosen].sum())
    is_optimizer = view.work.class_mask(KernelClass.OPTIMIZER) & chosen
    is_optimizer |= is_launched_beneath(view, chosen, OPTIMIZER_STEP_REGEX, Kind.ANNOTATION)
    optimizer_time = float(time[is_optimizer].sum())
    if optimizer_time > 0.5 * total:
        steps = view.tables.match_names(OPTIMIZER_STEP_REGEX, Kind.ANNOTATION).row
        step_name = view.tables.name(int(steps[0])) if len(steps) else ""
        return choose_optimizer_remedy(step_name, practices.optimizer_kind)
    if practices.uses_compile or float(time[view.work.class_mask(KernelClass.TRITON)].sum()) > _COMPILED_SHARE * total:
        return Remedy("these run outside the compiled code: compile them as well, or find out why they are not")
    is_fused = practices.optimizer_kind is OptimizerKind.FUSED
    if is_fused or optimizer_time < thresholds.OPTIMIZER_SHARE.value * float(time.sum()):
        return Remedy("fuse them with torch.compile or fused norms", "model = torch.compile(model)")
    return None


@register_pattern(
    "Matrix products far below the peak",
    meaning="the shape limits this work, not the GPU: too few rows, odd sizes, too few tiles",
    action="use larger or rounder shapes: a larger batch, sizes that are multiples of 64, one product instead of "
    "several",
    decided="GEMMs, convolutions and attention whose FLOPs (or bytes, if they take longer) are known from shapes, "
    "and which take several times as long as at the peak of the GPU for their data type.",
    thresholds=(
        thresholds.PRODUCT_EFFICIENCY_LOW,
        thresholds.PRODUCT_SHARE,
        thresholds.PRODUCT_TIME,
        thresholds.PRODUCT_KNOWN_SHARE,
        thresholds.PRODUCT_EFFICIENCY_GOOD,
    ),
    needs=(ScopeView.missing_gpu_reason,),
)
def gemm_efficiency(view: ScopeView) -> Answer:
    work = view.work
    is_product = work.class_mask(*PRODUCT_CLASSES) & (work.kind == Kind.KERNEL)
    gpu_time = max(float(view.work_time.sum()), 1.0)
    product_time = float(view.work_time[is_product].sum())
    if product_time < thresholds.PRODUCT_SHARE.value * gpu_time:
        return Answer.absent(f"products take {format_percent(product_time / gpu_time)} of GPU time")
    roofline = view.tables.roofline
    if roofline.missing:
        return Answer.cannot_tell(roofline.missing)
    # ns by the roofline's groups, and the share of it that the nearer peak would need, of memory-bound shapes that of
    # memory bandwidth. A product whose rate cannot be compared is unknown (NaN), not slow.
    time = _time_by_group(view, roofline, is_product)
    compute = np.where(roofline.flops > 0, roofline.compute_share, np.nan)
    at_peak = np.where(np.isnan(compute), np.nan, np.fmax(compute, roofline.memory_share))
    is_low = at_peak < thresholds.PRODUCT_EFFICIENCY_LOW.value  # NaN is not low
    low_time = float(time[is_low].sum())
    known_time = float(time[~np.isnan(at_peak)].sum())
    if low_time < thresholds.PRODUCT_SHARE.value * gpu_time:
        if known_time < thresholds.PRODUCT_KNOWN_SHARE.value * product_time:
            return Answer.cannot_tell(
                f"the shapes or the GPU's peak are unknown for {format_percent(1 - known_time / product_time)} of the "
                "products' time"
            )
        known = ~np.isnan(at_peak) & (time > 0)
        mean = float(np.average(at_peak[known], weights=time[known]))
        return Answer.absent(f"{format_percent(mean)} of the peak on average")
    low = np.flatnonzero(is_low & (time > 0))
    heaviest = int(low[time[low].argmax()])
    good = at_peak[low] / thresholds.PRODUCT_EFFICIENCY_GOOD.value
    kernels = work.events.select(is_product & is_in(roofline.group[view.work_in_scope], low))
    at_stake = min(int((time[low] * (1 - good)).sum()), view.covered_time(kernels))
    if at_stake < thresholds.PRODUCT_TIME.value * view.device_time:
        return Answer.absent(
            f"{format_percent(low_time / gpu_time)} of GPU time, but only {format_duration(at_stake)} can be saved"
        )
    product, remedy = _describe_product(view, roofline, heaviest)
    seen = (
        f"{format_duration(low_time)} in GEMMs, convolutions or attention at "
        f"{format_percent(float(np.average(at_peak[low], weights=time[low])))} of the nearer peak, compute or memory; "
        f"the heaviest: {product}"
    )
    return Answer.fired(seen, kernels.row, at_stake, remedy)


def _describe_product(view: ScopeView, roofline: Roofline, group: int) -> tuple[str, Remedy | None]:
    """Describe one product and what limits it, and choose its remedy, None for the pattern's own.

    "aten::mm 4×4096×4096 bf16, 12.3 TFLOP/s (too few rows)".
    """
    tables, inputs, first = view.tables, roofline.inputs(group), roofline.first[group]
    row = int(tables.gpu_pieces.op[first])
    op = tables.name(row) if row >= 0 else ""
    shape = None if inputs is None else find_product_shape(op, inputs)
    is_thin = shape is not None and min(shape.m, shape.n) <= SMALL_SIDE
    size, reason, dtype = "", "", DTYPES[roofline.dtype[group]]
    if shape is not None:
        device = find_device(view.trace, int(tables.work.events.row[first]))
        size = " " + "×".join(map(str, shape[1:] if shape.batch == 1 else shape))
        reason = explain_shape(shape, dtype, device.sms if device else None)
    rate = f"{roofline.tflops[group]:.3g} TFLOP/s"
    if is_thin and not np.isnan(roofline.gb_s[group]):
        rate = f"{roofline.gb_s[group]:,.0f} GB/s"
    text = f"{op}{size} {dtype}".rstrip() + f", {rate}{reason and f' ({reason})'}"
    remedy = None
    if is_thin:
        remedy = Remedy("read the weights once for more rows: decode more sequences at once, or quantize the weights")
    elif "attention" in op:
        remedy = Remedy(
            "compare the attention backends for this head size and data type; short sequences need a larger batch"
        )
    elif "convolution" in op:
        remedy = Remedy(
            "use channels_last, which avoids layout changes; let cuDNN search; use channel counts that are multiples "
            "of 64",
            "model = model.to(memory_format=torch.channels_last); torch.backends.cudnn.benchmark = True",
        )
    return text, remedy


@register_notice(
    "An almost empty last wave",
    meaning="the grid does not fill the GPU a whole number of times, so in its last wave most SMs wait for a few "
    "blocks",
    action="choose sizes whose grid fills whole waves (batch size, padding); for your own kernels, change the block "
    "size",
    decided="Of the kernels with most GPU time, those whose grid needs more than one wave and at most a few (blocks "
    "over SMs times resident blocks). Time at stake: the share of empty slots in the last wave, of the "
    "kernel's time. Kernels that overlap another one are left out, because it may use the idle SMs.",
    thresholds=(thresholds.TAIL_SHARE, thresholds.TAIL_MAX_WAVES, thresholds.TAIL_KERNELS),
    needs=(ScopeView.missing_gpu_reason,),
)
def wave_quantization(view: ScopeView) -> Answer:
    work = view.work
    alone = np.flatnonzero((work.kind == Kind.KERNEL) & _runs_alone(view))
    if not len(alone):
        return Answer.absent("every kernel overlaps another one")
    group = view.tables.launch_group[view.work_in_scope][alone]
    time = np.bincount(group, weights=view.work_time[alone])
    heaviest = np.argsort(-time, kind="stable")[: int(thresholds.TAIL_KERNELS.value)]
    tails: list[tuple[float, int, float]] = []
    known = 0
    for number in heaviest[time[heaviest] > 0].tolist():
        first = int(work.events.row[alone[int((group == number).argmax())]])
        occupancy = find_occupancy(view.trace, first)
        if occupancy is None or occupancy.waves is None or occupancy.tail_waste is None:
            continue
        known += 1
        if 1 < occupancy.waves <= thresholds.TAIL_MAX_WAVES.value:
            tails.append((float(time[number]) * occupancy.tail_waste, number, occupancy.waves))
    if not known:
        return Answer.cannot_tell("the occupancy of the longest kernels is unknown")
    lost = sum(tail for tail, _, _ in tails)
    share = lost / max(view.device_time, 1)
    if share < thresholds.TAIL_SHARE.value:
        return Answer.absent(
            f"{format_percent(share)} of the time is lost in the last waves of the {known} longest kernels"
        )
    _, worst, waves = max(tails)
    kernels = work.events.select(alone[is_in(group, [number for _, number, _ in tails])])
    worst_row = int(work.events.row[alone[int((group == worst).argmax())]])
    seen = (
        f"{format_percent(share)} of the time; {view.tables.short_name(worst_row)} needs {waves:.2f} waves: its "
        f"last is {format_percent(waves % 1)} full"
    )
    return Answer.fired(seen, kernels.row, min(int(lost), view.covered_time(kernels)))


def _runs_alone(view: ScopeView) -> Bool:
    """Return whether no other work of its device covers more than a tenth of each piece: bool[work of the scope]."""
    events, device = view.work.events, view.work.device
    alone = np.zeros(len(view.work), np.bool_)
    for number in sorted_unique(device).tolist():
        here: I64 = np.flatnonzero(device == number)
        start, end = events.start[here], events.end[here]
        slack = (end - start) // 10
        latest_end = np.maximum.accumulate(end)
        before = np.concatenate([[np.iinfo(np.int64).min], latest_end[:-1]])
        after = np.append(start[1:], np.iinfo(np.int64).max)
        alone[here] = (before <= start + slack) & (after >= end - slack)
    return alone
