"""Patterns of kernels that their inputs suit badly: few blocks, odd sizes, strided reads, atomics, float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from torchprof_tui.analysis.kernel.footprint import find_device
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import launch_shapes
from torchprof_tui.analysis.patterns.engine.op_text import read_inputs
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_fault
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.throughput.op_formulas import PRODUCT_CLASSES
from torchprof_tui.analysis.throughput.op_inputs import OpInputs
from torchprof_tui.trace.core.arrays import I64, Bool, is_in, sorted_unique
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

_NO_SHAPES = "shapes were not recorded (record_shapes=True)"
_MAX_GROUPS = 24
"""Groups of like launches whose op is read from the file, those with most time first: each takes some microseconds."""

_NOTHING = np.empty(0, dtype=np.int64)


def _answer(
    view: ScopeView, chosen: Bool, seen: str, headline: str, removed: I64 | None = None, remedy: Remedy | None = None
) -> Answer:
    """Answer by kernels, bool[work]; `removed`: rows that are gone once mended, none where that is not known."""
    if not chosen.any():
        return Answer.absent()
    kernels = view.work.events.select(chosen)
    text = f"{seen}: {format_percent(view.share_of_gpu_time(chosen))} of GPU time"
    gone = _NOTHING if removed is None else removed
    return Answer.fired(text, kernels.row, view.covered_time(kernels), remedy, removed=gone, headline=headline)


def _find_by_inputs(view: ScopeView, candidates: Bool, judge: Callable[[OpInputs], bool]) -> tuple[Bool, bool]:
    """Find the kernels whose op has inputs that fulfil a condition: (bool[work], whether any inputs were recorded).

    Like launches of one op have like inputs: one of each group is read, of the groups that take most time.
    """
    work, inner = view.work, view.inner_op
    group = view.tables.launch_group[view.work_in_scope]
    found, is_known = np.zeros(len(work), dtype=np.bool_), False
    index = np.flatnonzero(candidates & (inner >= 0))
    if not len(index):
        return found, is_known
    numbers, member = np.unique(group[index], return_inverse=True)
    time = np.bincount(member.reshape(-1), weights=view.work_time[index], minlength=len(numbers))
    groups = np.argsort(-time, kind="stable")[:_MAX_GROUPS]
    members = [index[member.reshape(-1) == number] for number in groups.tolist()]
    ops = inner[np.array([each[0] for each in members])].astype(np.int64)
    for each, inputs in zip(members, read_inputs(view.trace, ops), strict=True):
        if inputs is not None:
            is_known, found[each] = True, judge(inputs)
    return found, is_known


@register_fault(
    "Kernels with few thread blocks leave most of the GPU idle",
    meaning="a block runs on one SM: a reduction over a few long rows has as many blocks as rows",
    action="split the rows, and reduce in two stages: more blocks share the work",
    code="y = x.view(rows, parts, -1).amax(-1).amax(-1)  # in place of x.amax(-1)",
    decided="Long kernels with fewer blocks than the share of the SMs; no collectives, products, convolutions, "
    "attention or Triton. Time at stake: these kernels.",
    thresholds=(thresholds.FEW_BLOCKS_SHARE, thresholds.LONG_KERNEL),
    needs=(ScopeView.missing_gpu_reason,),
)
def few_blocks(view: ScopeView) -> Answer:
    work = view.work
    device = find_device(view.trace, int(work.events.row[0])) if len(work) else None
    if device is None or not device.sms:
        return Answer.cannot_tell("the trace does not say how many SMs the GPU has")
    chosen = (work.kind == Kind.KERNEL) & (work.events.duration >= thresholds.LONG_KERNEL.value)
    chosen &= ~work.class_mask(KernelClass.TRITON, *PRODUCT_CLASSES)  # a library chooses the blocks of products
    grid = launch_shapes(view.trace, work.events.row[chosen])[:, :3]
    blocks = np.full(len(work), device.sms)
    blocks[chosen] = np.where((grid > 0).all(axis=1), grid.prod(axis=1), device.sms)
    chosen &= blocks < thresholds.FEW_BLOCKS_SHARE.value * device.sms
    if not chosen.any():
        return Answer.absent()
    longest = int(np.flatnonzero(chosen)[view.work_time[chosen].argmax()])
    name = view.tables.short_name(int(work.events.row[longest]))
    count = format_count(int(blocks[longest]), "block")
    seen = f"{name} runs {count} on {device.sms} SMs, {format_duration(float(work.events.duration[longest]))}"
    headline = f"kernels with few thread blocks ({name}: {int(blocks[longest])}) leave most SMs idle"
    return _answer(view, chosen, seen, headline, work.events.row[chosen])


@register_fault(
    "Matrix sizes suit tensor cores badly",
    meaning="half-precision products load rows in pieces of 16 bytes, and more slowly where the length of a row is no "
    "multiple of 8",
    action="pad the size to a multiple of 8 (better 64), and slice the result",
    code="x = F.pad(x, (0, -x.shape[-1] % 8))",
    decided="Products of 16-bit numbers that have an input whose last axis is no multiple of 8. Time at stake: these "
    "kernels.",
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_links_reason),
)
def odd_matrix_size(view: ScopeView) -> Answer:
    chosen, is_known = _find_by_inputs(view, view.work.class_mask(KernelClass.GEMM), _has_odd_rows)
    if not is_known:
        return Answer.cannot_tell(_NO_SHAPES)
    count = format_count(int(chosen.sum()), "product")
    return _answer(view, chosen, f"{count} of odd sizes", "matmuls have an odd width, no multiple of 8")


def _has_odd_rows(inputs: OpInputs) -> bool:
    tensors = [tensor for tensor in inputs.tensors(3) if len(tensor.sizes) >= 2]
    sizes = [tensor.sizes[-1] for tensor in tensors if tensor.element_bytes == 2]
    return any(size % 8 and size > 8 for size in sizes)


_COPY_REGEX = r"aten::(copy_|clone|contiguous|_to_copy)$"
"""Ops that change the layout on purpose: other patterns are about those."""


@register_fault(
    "Elementwise kernels read a tensor in another layout",
    meaning="one input is transposed beside the others: neighbouring threads read far apart, at part of the bandwidth",
    action="store it contiguously once, before it is used again and again",
    code="other = other.contiguous()  # once",
    decided="Long elementwise kernels that are not vectorised, whose op has two inputs of one shape with different "
    "orders of strides; copies are not counted. Time at stake: these kernels.",
    thresholds=(thresholds.LONG_KERNEL,),
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_links_reason),
)
def strided_reads(view: ScopeView) -> Answer:
    work = view.work
    candidates = match_names(
        view.trace, lambda name: "elementwise_kernel<" in name and "vectorized" not in name, work.events.name
    ) & (work.events.duration >= thresholds.LONG_KERNEL.value)
    candidates &= ~view.tables.match_rows(np.maximum(view.inner_op, 0), _COPY_REGEX)
    if not candidates.any():
        return Answer.absent()
    chosen, is_known = _find_by_inputs(view, candidates, _reads_two_orders)
    if not is_known:
        return Answer.cannot_tell(_NO_SHAPES)
    seen = f"{format_count(int(chosen.sum()), 'elementwise kernel')} with strided reads"
    return _answer(view, chosen, seen, "elementwise kernels read a transposed (non-contiguous) tensor beside another")


def _reads_two_orders(inputs: OpInputs) -> bool:
    """Return whether two tensors of one shape, larger than a row, are stored in different orders of their axes."""
    orders = set()
    shapes = []
    for index, sizes in enumerate(inputs.dims[:3]):
        strides = inputs.strides[index] if index < len(inputs.strides) else None
        if not isinstance(sizes, list) or not isinstance(strides, list) or len(sizes) != len(strides) or len(sizes) < 2:
            continue
        if not all(isinstance(each, int) for each in (*sizes, *strides)) or 0 in strides:
            continue
        axes = [axis for axis in range(len(sizes)) if sizes[axis] > 1]
        orders.add(tuple(sorted(axes, key=lambda axis: (-strides[axis], axis))))
        shapes.append(tuple(sizes))
    return len(shapes) >= 2 and len(set(shapes)) == 1 and len(orders) > 1


_READ_BY_EMBEDDING = Remedy("read the rows with F.embedding or index_select", "rows = F.embedding(numbers, table)")
_SORTED_ADD = "indexing_backward_kernel"  # one thread adds all equal rows of a sorted index
_SCATTER_REGEX = r"aten::(index_add_?|scatter_add_?|index_reduce_?|scatter_reduce_?)$"


@register_fault(
    "Atomics collide: many rows are added to few targets",
    meaning="index_add and scatter_add add with atomics, and those of one target wait for each other; the gradient of "
    "an indexing adds equal rows one after the other",
    action="multiply by a one-hot matrix, or sort by target and add segments: no two threads write one target",
    code="total = F.one_hot(index, targets).to(values.dtype).t() @ values",
    decided="index_add, scatter_add and their like, and the gradient of an indexing (x[i]), with at least as many rows "
    "for each target as the limit. Time at stake: their kernels.",
    thresholds=(thresholds.ROWS_PER_TARGET,),
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason, ScopeView.missing_links_reason),
)
def colliding_atomics(view: ScopeView) -> Answer:
    work, scatters = view.work, view.tables.match_names(_SCATTER_REGEX, Kind.OP).row
    is_sorted = match_names(view.trace, lambda name: _SORTED_ADD in name, work.events.name)
    candidates = is_sorted | (is_in(view.inner_op, scatters) & (work.kind == Kind.KERNEL))
    if not candidates.any():
        return Answer.absent()
    chosen, is_known = _find_by_inputs(view, candidates, _adds_to_few)
    if not is_known:
        return Answer.cannot_tell(_NO_SHAPES)
    removed = work.events.row[chosen]
    seen = f"{format_count(int(chosen.sum()), 'kernel')} with many rows for each target"
    if view.work_time[chosen & is_sorted].sum() > view.work_time[chosen & ~is_sorted].sum():
        headline = "a table's rows are read by indexing, whose gradient adds equal rows one after the other"
        return _answer(view, chosen, seen, headline, removed, _READ_BY_EMBEDDING)
    return _answer(view, chosen, seen, "many rows are added to few targets, whose atomics collide", removed)


def _adds_to_few(inputs: OpInputs) -> bool:
    """Return whether an op adds many rows to each of its targets: index_add and its like, or index_put by one index."""
    target, index = inputs.tensor(0), inputs.tensor(2)
    axis = (inputs.numbers(1) or [0])[0]
    if target is None or index is None or not target.sizes or not -len(target.sizes) <= axis < len(target.sizes):
        return False
    rows = index.sizes[axis] if len(index.sizes) == len(target.sizes) else index.elements
    return rows >= thresholds.ROWS_PER_TARGET.value * max(target.sizes[axis], 1)


def _mark_types(view: ScopeView, *types: str) -> Bool:
    """Mark the work whose name says that it computes on one of these data types: bool[work]."""
    names, numbers = view.trace.names, view.work.events.name
    wanted = [each for each in sorted_unique(numbers).tolist() if {*types} & {*decode_kernel_name(names[each]).dtypes}]
    return is_in(numbers, wanted)


@register_fault(
    "Kernels compute in float64",
    meaning="double precision, which a NumPy array often brings, takes twice the memory and no tensor cores "
    "of most GPUs",
    action="use float32, or bf16 where it is enough: x.float()",
    code="x = torch.as_tensor(array, dtype=torch.float32)",
    decided="Kernels whose name says that they compute on double. Time at stake: these kernels.",
    needs=(ScopeView.missing_gpu_reason,),
)
def float64_kernels(view: ScopeView) -> Answer:
    chosen = _mark_types(view, "fp64") & (view.work.kind == Kind.KERNEL)
    seen = f"{format_count(int(chosen.sum()), 'kernel')} in float64"
    return _answer(view, chosen, seen, "kernels compute in float64 (double)")


@register_fault(
    "Attention computes in float32, and the products in half precision",
    meaning="flash attention takes fp16 and bf16 alone: in float32 a kernel several times slower reads twice the bytes",
    action="cast queries, keys and values to bf16 before attention: norms and rotary positions often leave float32",
    code="y = F.scaled_dot_product_attention(q.bfloat16(), k.bfloat16(), v.bfloat16())",
    decided="Fused attention whose kernel name says float32, in a program whose matrix products run in half precision "
    "for most of their time. Time at stake: these kernels.",
    needs=(ScopeView.missing_gpu_reason,),
)
def float32_attention(view: ScopeView) -> Answer:
    work, time = view.work, view.work_time
    is_product, half = work.class_mask(KernelClass.GEMM, KernelClass.CONV), _mark_types(view, "fp16", "bf16")
    chosen = work.class_mask(KernelClass.ATTENTION) & _mark_types(view, "fp32") & ~half
    if 2 * int(time[is_product & half].sum()) <= int(time[is_product].sum()):
        return Answer.absent("products in float32, too" if chosen.any() else "")
    return _answer(view, chosen, format_count(int(chosen.sum()), "kernel"), "attention computes in float32")
