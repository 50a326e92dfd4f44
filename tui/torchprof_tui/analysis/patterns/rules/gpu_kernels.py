"""Patterns of what runs on the GPU: fusion, attention, tensor cores, occupancy, graphs."""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.graphs.captured_ops import get_captured_ops
from torchprof_tui.analysis.kernel.footprint import find_device
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.launch_owners import find_launch_ancestors
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_notice, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import NO_LINKS
from torchprof_tui.analysis.throughput.device_peaks import peak_tflops
from torchprof_tui.analysis.words.dictionary import explain
from torchprof_tui.trace.core.arrays import is_in, sorted_unique
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

VIEW_OP_REGEX = (
    r"aten::(t|view|transpose|as_strided|permute|expand|reshape|squeeze|unsqueeze|select|slice|narrow|detach|alias"
    r"|_unsafe_view|_reshape_alias|view_as|expand_as|unbind|split|chunk|flatten|unflatten|movedim|swapaxes|T|mT)$"
)
"""Ops that rewrite a tensor's shape and strides; whether one launched work is decided from its subtree."""

_MATH_REGEX = r"aten::_scaled_dot_product_attention_math"

_MAX_KERNELS_READ = 12
"""The heaviest kernels, whose args are read from the file for one check; each costs a few milliseconds once."""


@register_notice(
    "Ops that launch nothing",
    meaning=explain("metadata op", "is", "costs"),
    action="nothing: they are cheap, but not free; compiled code avoids them",
    decided="View operators (aten::t, view, transpose, as_strided …) that launch no GPU work.",
    fires_on_absence=True,
    needs=(ScopeView.missing_ops_reason,),
)
def metadata_op(view: ScopeView) -> Answer:
    view_ops = view.match_names(VIEW_OP_REGEX, Kind.OP)
    if len(view.tables.work) and not (view.tables.work.launch >= 0).any():
        return Answer.cannot_tell(NO_LINKS)
    metadata_ops = view_ops.select(~view.tables.has_work[view_ops.row])
    if not len(metadata_ops):
        return Answer.absent()
    self_time = int(np.minimum(view.trace.self_duration[metadata_ops.row], view.time_in_scope(metadata_ops)).sum())
    counts = np.bincount(metadata_ops.name)
    frequent = [view.trace.names[name] for name in np.argsort(-counts, kind="stable")[:3] if counts[name]]
    seen = f"{view.format_count(len(metadata_ops), 'op')} ({', '.join(frequent)})"
    seen += f": {format_duration(self_time)} on the CPU"
    return Answer.fired(seen, metadata_ops.row, min(self_time, view.covered_time(metadata_ops)))


@register_notice(
    "Kernels that Inductor fused",
    meaning=explain("Triton kernel", "is", "why"),
    action="nothing: the kernel's name lists the fused ops",
    decided="Kernels whose decoded name is Inductor's (triton_poi_fused_…, triton_red_…, triton_per_…).",
    needs=(ScopeView.missing_gpu_reason,),
)
def fused_triton(view: ScopeView) -> Answer:
    is_inductors = re.compile(r"triton_(poi|red|per|tem|for|mix)_").match
    rows = view.tables.filter_by_name(
        view.work.events.select(view.work.kind == Kind.KERNEL),
        lambda name: bool(is_inductors(name) and (decode_kernel_name(name).fused or "fused" in name)),
    )
    if not len(rows):
        return Answer.absent()
    time = np.bincount(rows.name, weights=view.time_in_scope(rows))
    fused, kernel_count = decode_kernel_name(view.trace.names[int(time.argmax())]).fused, int((time > 0).sum()) or 1
    fused_text = f": {' + '.join(fused[:6])}{' …' if len(fused) > 6 else ''}" if fused else ""
    seen = f"{format_count(kernel_count, 'fused kernel')}, {format_count(len(rows), 'run')}; the heaviest{fused_text}"
    return Answer.fired(seen, rows.row)


@register_pattern(
    "Attention by the slow reference implementation",
    meaning="no fused backend supports this call: many kernels write the scores to memory, in higher precision",
    action="check why no fused backend is used: data type (fp16 or bf16 needed), head size, mask, or a forced backend",
    code="with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION): …",
    decided="Ops called aten::_scaled_dot_product_attention_math; time at stake: the GPU work that they launch.",
    needs=(ScopeView.missing_ops_reason,),
)
def sdpa_math(view: ScopeView) -> Answer:
    tables = view.tables
    math_ops = tables.match_names(_MATH_REGEX, Kind.OP)
    if not len(math_ops):
        return Answer.absent()
    above = tables.compute_once(find_launch_ancestors, _MATH_REGEX, Kind.OP)[view.work_in_scope]
    work = view.work.events.select(above >= 0)
    ops_in_scope = view.select_in_scope(math_ops)
    if not len(ops_in_scope) and not len(work):
        return Answer.absent("not in this range")
    time = view.covered_time(work) or view.covered_time(ops_in_scope)
    side = "on the GPU" if len(work) else "on the CPU"
    work_text = f"{format_count(len(work), 'piece')} of GPU work" if len(work) else "GPU work unknown"
    calls = view.format_count(len(ops_in_scope), "call")
    seen = f"{calls}, {work_text}, {format_duration(time)} {side}"
    return Answer.fired(seen, np.sort(np.concatenate([ops_in_scope.row, work.row])), time)


@register_notice(
    "Fused attention",
    meaning="one kernel computes all of attention; its low occupancy is intended, because it keeps tiles in registers",
    action="nothing: compare backends by time, not by occupancy",
    decided="Kernels with the decoded name of a fused attention (flash, memory-efficient, cuDNN, AOTriton …).",
    needs=(ScopeView.missing_gpu_reason,),
)
def sdpa_fused(view: ScopeView) -> Answer:
    kernels = view.work.events.select(view.work.class_mask(KernelClass.ATTENTION) & (view.work.kind == Kind.KERNEL))
    if not len(kernels):
        return Answer.absent()
    names = sorted_unique(kernels.name).tolist()
    backends = ", ".join(sorted({decode_kernel_name(view.trace.names[name]).family for name in names}))
    seen = f"{backends}: {format_count(len(kernels), 'kernel')}, {format_duration(view.covered_time(kernels))}"
    return Answer.fired(seen, kernels.row)


@register_pattern(
    "Matrix products without tensor cores",
    meaning="FP32 products run on the ordinary cores, several times slower",
    action="autocast to bf16, or let FP32 products use TF32",
    code="torch.backends.cuda.matmul.fp32_precision = 'tf32'  # or: with torch.autocast('cuda', torch.bfloat16): …",
    decided="GEMMs and convolutions that use no tensor cores, by their decoded name, from the share of GPU time "
    "below, on a GPU that has tensor cores (compute capability 7.0 and later, except GTX 16). Time at stake: theirs, "
    "less what they take at the peak rate of tensor cores, where the GPU's peaks are known.",
    thresholds=(thresholds.TENSOR_CORE_SHARE,),
    needs=(ScopeView.missing_gpu_reason,),
)
def no_tensor_core(view: ScopeView) -> Answer:
    work = view.work
    products = work.events.select(work.class_mask(KernelClass.GEMM, KernelClass.CONV) & (work.kind == Kind.KERNEL))
    if not len(products):
        return Answer.absent("no matrix product")
    plain_products = view.tables.filter_by_name(products, lambda name: decode_kernel_name(name).tensor_core is False)
    if not len(plain_products):
        undecidable = view.tables.filter_by_name(products, lambda name: decode_kernel_name(name).tensor_core is None)
        if len(undecidable) == len(products):
            return Answer.cannot_tell("the names of the products' kernels do not tell whether tensor cores run them")
        return Answer.absent()
    share = float(view.time_in_scope(plain_products).sum()) / max(float(view.work_time.sum()), 1.0)
    if share < thresholds.TENSOR_CORE_SHARE.value:
        return Answer.absent(f"{format_percent(share)} of GPU time")
    has_tensor_cores = _has_tensor_cores(view, int(plain_products.row[0]))
    if has_tensor_cores is None:
        return Answer.cannot_tell("the trace does not describe its GPU")
    if not has_tensor_cores:
        return Answer.absent("this GPU has no tensor cores")
    name, remedy = view.tables.short_name(int(plain_products.row[0])), _choose_precision(view, products, plain_products)
    time = view.covered_time(plain_products)
    seen = f"{name} and others like it take {format_duration(time)} in all"
    at_stake = int(time * _find_saved_share(view, int(plain_products.row[0])))
    return Answer.fired(seen, plain_products.row, at_stake, remedy)


def _find_saved_share(view: ScopeView, row: int) -> float:
    """Return what tensor cores save at most of the time of products in fp32, by the device's peaks; 1 if unknown."""
    device = find_device(view.trace, row)
    plain, *others = (peak_tflops(device.name if device else "", dtype) or 0.0 for dtype in ("fp32", "tf32", "fp16"))
    return 1 - plain / max(others) if plain and max(others) > plain else 1.0


def _choose_precision(view: ScopeView, products: EventTable, plain_products: EventTable) -> Remedy | None:
    tables, is_half = view.tables, {"fp16", "bf16"}.intersection
    if len(tables.filter_by_name(products, lambda name: bool(is_half(decode_kernel_name(name).dtypes)))):
        op = view.inner_op[is_in(view.work.events.row, plain_products.row)]
        names = sorted({tables.name(row) for row in sorted_unique(op[op >= 0]).tolist()})
        escaped = " and ".join(names[:3]) or "these products"
        return Remedy(f"half precision is used, but not here: cast the inputs of {escaped}")
    device = find_device(view.trace, int(plain_products.row[0]))
    if device is None or device.vendor != "NVIDIA" or device.capability is None or device.capability >= (8, 0):
        return None
    if tables.practices.is_inference:
        return Remedy("run the model in fp16: this GPU has neither bf16 nor TF32 tensor cores", "model = model.half()")
    return Remedy(
        "autocast to fp16 with a GradScaler: this GPU has neither bf16 nor TF32 tensor cores",
        "with torch.autocast('cuda', torch.float16): …  # scaler = torch.amp.GradScaler('cuda')",
    )


def _has_tensor_cores(view: ScopeView, row: int) -> bool | None:
    """Return whether the device that ran the kernel has tensor cores, None if unknown.

    Decided by the architecture in the kernel's name where the trace does not describe the device.
    """
    device = find_device(view.trace, row)
    if device is not None and device.vendor == "NVIDIA" and device.capability is not None:
        return device.capability >= (7, 0) and "GTX 16" not in device.name
    arch = decode_kernel_name(view.tables.name(row)).arch or ""
    digits = "".join(letter for letter in arch.removeprefix("sm_") if letter.isdigit())
    return int(digits) >= 70 if arch.startswith("sm_") and digits else None


@register_notice(
    "A reported occupancy of 0 % is wrong",
    meaning="the profiler's estimate is 0 for launches through the driver API and for grids of a few blocks",
    action="use the computed occupancy in the kernel panel (k) instead",
    decided="Of the twelve kernels that take most GPU time in the scope, those whose `est. achieved occupancy %` in "
    "the trace is 0.",
    needs=(ScopeView.missing_gpu_reason,),
)
def occupancy_misread(view: ScopeView) -> Answer:
    tables, work = view.tables, view.work
    kernels = np.flatnonzero(work.kind == Kind.KERNEL)
    if not len(kernels):
        return Answer.absent("no kernel in this range")
    group = tables.launch_group[view.work_in_scope][kernels]
    time = np.bincount(group, weights=view.work_time[kernels])
    first_of_group = np.full(len(time), -1, dtype=np.int64)
    first_of_group[group[::-1]] = kernels[::-1]
    heaviest = np.argsort(-time, kind="stable")[:_MAX_KERNELS_READ]
    heaviest = heaviest[first_of_group[heaviest] >= 0]
    rows = work.events.row[first_of_group[heaviest]]
    values = tables.reported_occupancies(dict(zip(heaviest.tolist(), rows.tolist(), strict=True)))
    read_count = sum(value is not None for value in values)
    zero_groups = [number for number, value in zip(heaviest.tolist(), values, strict=True) if value == 0]
    if not zero_groups:
        if not read_count:
            return Answer.cannot_tell("the trace reports no occupancy")
        return Answer.absent(f"none of the {format_count(read_count, 'heaviest kernel')} reads 0 %")
    misread = work.events.select(kernels[is_in(group, zero_groups)])
    worst = int(work.events.row[first_of_group[zero_groups[0]]])
    launch = int(view.trace.links.launch_of[worst])
    launch_text = f", launched by {tables.name(launch)}" if launch >= 0 else ""
    return Answer.fired(
        f"{tables.short_name(worst)} ({format_duration(int(view.trace.duration[worst]))}{launch_text}) has a reported "
        f"occupancy of 0 %; {format_count(len(zero_groups), 'kernel')} of {read_count} checked",
        np.sort(misread.row),
    )


@register_notice(
    "A CUDA graph was replayed",
    meaning=explain("cudaGraphLaunch", "is", "why"),
    action="nothing: to see the ops, name a trace of the capture or of a run without the graph with --capture",
    decided="One runtime call whose correlation links it to at least two pieces of GPU work; copies and commands of "
    "MTIA's queue, which the device splits, do not count.",
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_calls_reason, ScopeView.missing_links_reason),
)
def graph_replay(view: ScopeView) -> Answer:
    launch = view.work.launch
    work_first = view.trace.links.work_first
    calls = sorted_unique(launch[launch >= 0])
    calls = calls[work_first[calls + 1] - work_first[calls] > 1]
    is_split = [_SPLIT_CALL_REGEX.search(view.tables.name(int(call))) is not None for call in calls]
    # On Ascend an op is joined to all of its kernels: only runtime calls count.
    graph_launches = calls[(view.trace.kind[calls] == Kind.RUNTIME) & ~np.array(is_split, np.bool_)]
    if not len(graph_launches):
        return Answer.absent("each launch started one piece of GPU work")
    work = view.work.events.select(is_in(launch, graph_launches))
    launches_in_scope = view.select_in_scope(view.tables.event_table(graph_launches))
    seen = (
        f"{format_count(len(graph_launches), 'launch', 'launches')} ({view.tables.name(int(graph_launches[0]))}) "
        f"started {len(work):,} pieces of GPU work"
    )
    ops = get_captured_ops(view.trace)
    if ops is not None and ops.matched_count:
        known = f"{ops.matched_count:,} of {len(ops.replays.work):,}"
        seen += f"; ops of {known} in the whole trace are known from a capture"
    return Answer.fired(seen, np.sort(np.concatenate([launches_in_scope.row, work.row])))


_SPLIT_CALL_REGEX = re.compile(r"enqueueCommand|memcpy|memset", re.IGNORECASE)
"""Calls that may cause several pieces of GPU work without a graph."""
