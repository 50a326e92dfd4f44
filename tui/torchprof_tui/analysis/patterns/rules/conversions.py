"""Patterns of kernels that only convert: casts, changes of the memory layout, keys and values copied for each head."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from torchprof_tui.analysis.kernel.footprint import find_device
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.launch_owners import MATH_ATTENTION_REGEX, is_launched_beneath
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.trace.core.arrays import I64, Bool, is_in, sorted_unique
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

_LAYOUT_WORDS = ("layout change", "transpose", "TransData")
_AUTOCAST_OPS = (
    r"aten::(linear|matmul|mm|addmm|bmm|baddbmm|conv\w*|_convolution|scaled_dot_product_attention|layer_norm|softmax"
    r"|log_softmax|cross_entropy_loss|nll_loss\w*|pow|einsum|prelu|gru\w*|lstm\w*)$"
)
"""Operators into which autocast puts casts of their inputs."""


@register_pattern(
    "Casts between data types",
    meaning="a cast reads and writes a whole tensor and computes nothing; autocast repeats the casts of the weights "
    "in each step",
    action="keep each tensor in one type, or compile: Inductor fuses casts into the neighbouring kernels",
    decided="Copy kernels whose decoded name says that they change the data type. Cause: autocast where an operator "
    "such as aten::linear called aten::to, else casts in the program. Casts of `sdpa-math` are counted there.",
    thresholds=(thresholds.CONVERSION_SHARE, thresholds.CONVERSION_TIME),
    needs=(ScopeView.missing_gpu_reason,),
)
def autocast_casts(view: ScopeView) -> Answer:
    is_cast = _select_copies(view, lambda display: display.startswith("cast"))
    is_cast &= ~is_launched_beneath(view, is_cast, MATH_ATTENTION_REGEX)
    if answer := _too_small(view, is_cast):
        return answer
    kernels = view.work.events.select(is_cast)
    by_autocast = is_launched_beneath(view, is_cast, _AUTOCAST_OPS, calling=r"aten::to$")
    share = view.share_of_gpu_time(is_cast)
    seen = f"{format_percent(share)} of GPU time in {view.format_count(len(kernels), 'cast')}"
    if count := int(by_autocast.sum()):
        share = float(view.work_time[by_autocast].sum()) / max(float(view.work_time[is_cast].sum()), 1.0)
        seen += f"; autocast added {view.format_count(count, 'cast')} into operators, "
        seen += f"{format_percent(share)} of it"
    remedy = _choose_cast_remedy(view, kernels, count > 0)
    return Answer.fired(seen, kernels.row, view.covered_time(kernels), remedy)


def _choose_cast_remedy(view: ScopeView, kernels: EventTable, is_autocast: bool) -> Remedy | None:
    if view.work.class_mask(KernelClass.TRITON).any():
        return Remedy("keep each tensor in one type: these casts are outside the compiled code")
    if not is_autocast:
        return None
    dtypes = {dtype for row in kernels.row[:64].tolist() for dtype in decode_kernel_name(view.tables.name(row)).dtypes}
    device = find_device(view.trace, int(kernels.row[0]))
    has_bf16 = device is None or device.vendor != "NVIDIA" or device.capability is None or device.capability >= (8, 0)
    if "bf16" in dtypes and has_bf16:
        return Remedy(
            "keep the weights in bf16 (fp32 master weights in the optimizer if needed), or compile the model",
            "model = model.to(torch.bfloat16)",
        )
    return Remedy("compile the model: it fuses casts into the neighbouring kernels", "model = torch.compile(model)")


@register_pattern(
    "Changes of the memory layout",
    meaning="the data is copied into another order of its axes, because the next kernel needs that order",
    action="produce the tensor in the layout that the next op reads: avoid permute followed by contiguous or reshape",
    decided="Copy kernels whose decoded name is a change of layout (nchwToNhwc and back, transposes), and those that "
    "aten::contiguous or aten::reshape launched without a change of type.",
    thresholds=(thresholds.CONVERSION_SHARE, thresholds.CONVERSION_TIME),
    needs=(ScopeView.missing_gpu_reason,),
)
def layout_conversion(view: ScopeView) -> Answer:
    is_named = _select_copies(view, lambda display: any(word in display for word in _LAYOUT_WORDS))
    is_copy = _select_copies(view, lambda display: display.startswith("copy"))
    if answer := _too_small(view, is_named | is_copy):
        return answer
    is_layout = is_named | is_launched_beneath(view, is_copy, r"aten::(contiguous|reshape)$")
    if answer := _too_small(view, is_layout):
        return answer
    kernels = view.work.events.select(is_layout)
    half = 0.5 * float(view.work_time[is_layout].sum())
    names = [name for name in sorted_unique(view.work.events.name).tolist() if "TransData" in view.trace.names[name]]
    is_tiled = is_layout & is_in(view.work.events.name, names)
    owner, remedy = "aten::contiguous or aten::reshape", None
    if float(view.work_time[is_tiled].sum()) > half:
        owner = "tiled formats (TransData)"
        remedy = Remedy(
            "products and convolutions use the NPU's tiled formats (NZ, 5HD): keep tensors in the plain format, and "
            "sizes at multiples of 16",
            "torch.npu.config.allow_internal_format = False",
        )
    elif view.work_time[is_launched_beneath(view, is_layout, r"aten::\w*convolution\w*$")].sum() > half:
        owner = "convolutions"
        remedy = Remedy(
            "keep images and weights in channels_last: cuDNN's tensor-core kernels read that layout",
            "model, x = (t.to(memory_format=torch.channels_last) for t in (model, x))",
        )
    count, share = view.format_count(len(kernels), "copy", "copies"), view.share_of_gpu_time(is_layout)
    seen = f"{format_percent(share)} of GPU time in {count}, mostly for {owner}"
    return Answer.fired(seen, kernels.row, view.covered_time(kernels), remedy)


def _select_copies(view: ScopeView, predicate: Callable[[str], bool]) -> Bool:
    """Select the copy kernels of the scope whose short decoded name fulfils a predicate: bool[work]."""
    work = view.work
    is_copy = work.class_mask(KernelClass.COPY) & (work.kind == Kind.KERNEL)
    used, names = sorted_unique(work.events.name[is_copy]).tolist(), view.trace.names
    chosen = [name for name in used if predicate(decode_kernel_name(names[name]).display)]
    selected: Bool = is_copy & is_in(work.events.name, chosen)
    return selected


def _too_small(view: ScopeView, chosen: Bool) -> Answer | None:
    """Return the answer "absent" if this work takes too little of GPU time or of the time, else None."""
    time, share = int(view.work_time[chosen].sum()), view.share_of_gpu_time(chosen)
    if share < thresholds.CONVERSION_SHARE.value:
        return Answer.absent(f"{format_percent(share)} of GPU time")
    if time < thresholds.CONVERSION_TIME.value * max(view.device_time, 1):
        return Answer.absent(f"{format_percent(share)} of GPU time, but only {format_duration(time)} in total")
    return None


_EXPAND_REGEX = r"aten::expand$"
_COPYING_REGEX = r"aten::(reshape|contiguous|clone|flatten)$"
_SDPA_REGEX = r"aten::scaled_dot_product_attention$"
_NAMED_REGEX = r"aten::scaled_dot_product_attention$|\w+::\w*attention\w*$"
_SOFTMAX_REGEX = r"aten::softmax$"
_PRODUCT_REGEX = r"aten::(mm|addmm|bmm|baddbmm|_scaled_mm|_grouped_mm)$"
_BATCHED_REGEX = r"aten::(bmm|baddbmm)$"


def find_attentions(tables: TraceTables) -> EventTable:
    """Find the ops of attention, by row: named ones, and a softmax whose last product and next product are batched.

    The softmax of a router follows the product of a linear layer.
    """
    softmaxes = tables.match_names(_SOFTMAX_REGEX, Kind.OP).row
    products = tables.match_names(_PRODUCT_REGEX, Kind.OP).row
    after = products.searchsorted(softmaxes)
    is_between = (after > 0) & (after < len(products))
    softmaxes, after = softmaxes[is_between], after[is_between]
    is_batched, lane = tables.mark_ops(_BATCHED_REGEX), tables.trace.lane
    for product in (products[after - 1], products[after]) if len(after) else ():
        softmaxes = np.where(is_batched[product] & (lane[product] == lane[softmaxes]), softmaxes, -1)
    named = tables.match_names(_NAMED_REGEX, Kind.OP).row
    return tables.event_table(np.sort(np.concatenate([named, softmaxes[softmaxes >= 0]])))


def find_expanded_copies(tables: TraceTables) -> I64:
    """Find ops that copy what `expand` repeated: the next op, outside of other ops, that is a clone or has one inside.

    Returns their rows, int64[k]. A product that expands its own inputs is left out: `hidden-copy` names those.
    """
    trace = tables.trace
    expands = tables.match_names(_EXPAND_REGEX, Kind.OP)
    copying = tables.match_names(_COPYING_REGEX, Kind.OP)
    ops = tables.ops
    if not len(expands) or not len(copying):
        return np.empty(0, dtype=np.int64)
    clones = tables.match_names(r"aten::clone$", Kind.OP).row
    above = np.asarray(trace.parent[clones])
    is_copy = tables.mark_rows(np.concatenate([clones, above[above >= 0]]))
    is_copying = tables.mark_rows(copying.row)
    # The op that begins after the expand has ended: children of it come before.
    inside = np.asarray(trace.start[ops.row])
    after, candidates = ops.row.searchsorted(expands.row, side="right"), np.full(len(expands), -1, dtype=np.int64)
    for _ in range(_MAX_CHILDREN):
        index = np.minimum(after, len(ops) - 1)
        behind = (candidates < 0) & (after < len(ops)) & (inside[index] >= expands.end)
        candidates[behind] = ops.row[index[behind]]
        after = after + 1
    expanded, candidates = expands.row[candidates >= 0], candidates[candidates >= 0]
    parents = trace.parent[expanded]
    fits = is_copying[candidates] & is_copy[candidates] & (trace.parent[candidates] == parents)
    fits &= ~((parents >= 0) & (trace.kind[np.maximum(parents, 0)] == Kind.OP))
    rows: I64 = candidates[fits & (trace.lane[candidates] == trace.lane[expanded])]
    return rows


_MAX_CHILDREN = 4  # ops below an `expand` that are skipped on the way to the next op: it has one, `as_strided`


@register_pattern(
    "Keys and values are copied for each head",
    meaning="grouped-query attention has fewer heads of keys and values than of queries; here keys and values are "
    "first repeated in memory",
    action="let the attention op share the heads of keys and values",
    code="F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)",
    decided="An expand directly followed by an op that copies its result (reshape, contiguous, clone), at least as "
    "often as attention runs: a fused op, or a softmax between two batched products. Time at stake: the "
    "copies on the GPU.",
    thresholds=(thresholds.GQA_COPIES_PER_ATTENTION,),
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason, ScopeView.missing_links_reason),
)
def gqa_expand_copy(view: ScopeView) -> Answer:
    tables, work = view.tables, view.work
    fused = view.match_names(_SDPA_REGEX, Kind.OP)
    attentions = fused if len(fused) else view.select_in_scope(tables.compute_once(find_attentions))
    if not len(attentions):
        return Answer.absent("no attention")
    copies = view.select_in_scope(tables.event_table(np.sort(tables.compute_once(find_expanded_copies))))
    if len(copies) < max(2, thresholds.GQA_COPIES_PER_ATTENTION.value * len(attentions)):
        return Answer.absent(f"{format_count(len(copies), 'expanded copy', 'expanded copies')}" if len(copies) else "")
    kernels = work.events.select(np.flatnonzero(is_in(view.outer_op, copies.row)))
    time = view.covered_time(kernels)
    if not time:
        return Answer.absent("the copies launched nothing on the GPU")
    remedy = None
    if not len(fused):
        remedy = Remedy(
            "use scaled_dot_product_attention, and let it share the heads of keys and values",
            "F.scaled_dot_product_attention(q, k, v, enable_gqa=True)",
        )
    seen = (
        f"{format_count(len(copies), 'copy', 'copies')} of expanded keys and values for "
        f"{format_count(len(attentions), 'attention')}: {format_duration(time)} on the GPU"
    )
    return Answer.fired(seen, np.concatenate([copies.row, kernels.row]), time, remedy)
