"""Beyond Part 1, what runs on the GPU: fusion, attention, tensor cores, occupancy, graphs."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.kernel.footprint import find_device
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.nearest_ancestors import outermost_ancestor
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
    NO_CALLS,
    NO_LINKS,
    ScopeView,
    format_count,
    format_percent,
    us,
)
from torchprof_tui.trace.core.arrays import sorted_unique
from torchprof_tui.trace.model.event_kind import Kind

VIEW_OP_REGEX = (
    r"aten::(t|view|transpose|as_strided|permute|expand|reshape|squeeze|unsqueeze|select|slice|narrow|detach|alias"
    r"|_unsafe_view|_reshape_alias|view_as|expand_as|unbind|split|chunk|flatten|unflatten|movedim|swapaxes|T|mT)$"
)
"""Ops that rewrite a tensor's shape and strides; whether one launched something is asked of its subtree."""

_MAX_KERNELS_READ = 12
"""Kernels whose args are read from the file for one check: the heaviest; each costs a few milliseconds once."""


@register_pattern(
    "metadata-op",
    Section.BEYOND,
    "Ops that launch nothing",
    meaning="views rewrite shape and stride on the CPU; no data moves and no kernel runs",
    action="nothing: cheap, but not free; compiled code does without them",
    decided="View operators (aten::t, view, transpose, as_strided …) beneath which no GPU work was launched.",
    fires_on_absence=True,
)
def metadata_op(view: ScopeView) -> Answer:
    if missing := view.missing_ops_reason():
        return cannot_tell_answer(missing)
    rows = view.match_names(VIEW_OP_REGEX, Kind.OP)
    if len(view.tables.work) and not (view.tables.work.launch >= 0).any():
        return cannot_tell_answer(NO_LINKS)
    found = rows.select(~view.tables.has_work[rows.row])
    if not len(found):
        return absent_answer()
    own = int(np.minimum(view.trace.self_duration[found.row], view.time_in_scope(found)).sum())
    counts = np.bincount(found.name)
    listed = ", ".join(view.trace.names[name] for name in np.argsort(-counts, kind="stable")[:3] if counts[name])
    return fired_answer(
        f"{format_count(len(found), 'op')}{view.format_per_step(len(found))} ({listed}): {us(own)} on the CPU",
        found.row,
        min(own, view.covered_time(found)),
    )


@register_pattern(
    "fused-triton",
    Section.BEYOND,
    "Kernels that Inductor fused",
    meaning="several ops in one kernel: their intermediate results never reach memory",
    action="nothing: the name lists what was merged",
    decided="Kernels whose decoded name is Inductor's (triton_poi_fused_…, triton_red_…, triton_per_…).",
)
def fused_triton(view: ScopeView) -> Answer:
    if missing := view.missing_gpu_reason():
        return cannot_tell_answer(missing)
    rows = view.tables.filter_by_name(
        view.work.events.select(view.work.kind == Kind.KERNEL),
        lambda name: name.startswith(("triton_poi_", "triton_red_", "triton_per_", "triton_tem_", "triton_for_",
                                      "triton_mix_")) and bool(decode_kernel_name(name).fused or "fused" in name),
    )  # fmt: skip
    if not len(rows):
        return absent_answer()
    time = np.bincount(rows.name, weights=view.time_in_scope(rows))
    heaviest = decode_kernel_name(view.trace.names[int(time.argmax())])
    merged = f": {' + '.join(heaviest.fused[:6])}{' …' if len(heaviest.fused) > 6 else ''}" if heaviest.fused else ""
    kinds = int((time > 0).sum()) or 1
    return fired_answer(
        f"{format_count(kinds, 'fused kernel')}, {format_count(len(rows), 'run')}; the heaviest{merged}", rows.row
    )


@register_pattern(
    "sdpa-math",
    Section.BEYOND,
    "Attention by the slow reference",
    meaning="no fused backend took this call: scores are written out, in more precision, by many kernels",
    action="ask why the fused backends refuse: type (fp16 or bf16), head size, mask, or a forced backend",
    code="with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION): …",
    decided="Ops called aten::_scaled_dot_product_attention_math; time at stake: the GPU work beneath them.",
    severity=Severity.PROBLEM,
)
def sdpa_math(view: ScopeView) -> Answer:
    if missing := view.missing_ops_reason():
        return cannot_tell_answer(missing)
    facts = view.tables
    rows = facts.match_names(r"aten::_scaled_dot_product_attention_math", Kind.OP)
    if not len(rows):
        return absent_answer()
    is_math = np.zeros(len(view.trace), dtype=np.bool_)
    is_math[rows.row] = True
    launch = view.work.launch
    calls, back = np.unique(np.maximum(launch, 0), return_inverse=True)
    beneath = (outermost_ancestor(view.trace, calls, is_math)[back.reshape(-1)] >= 0) & (launch >= 0)
    work = view.work.events.select(beneath)
    here = view.select_in_scope(rows)
    if not len(here) and not len(work):
        return absent_answer("not in this range")
    evidence = np.sort(np.concatenate([here.row, work.row]))
    time = view.covered_time(work) or view.covered_time(here)
    where = "on the GPU" if len(work) else "on the CPU"
    kernels = f"{format_count(len(work), 'piece')} of GPU work" if len(work) else "no GPU work known"
    return fired_answer(
        f"{format_count(len(here), 'call')}{view.format_per_step(len(here))}, {kernels}, {us(time)} {where}",
        evidence,
        time,
    )


@register_pattern(
    "sdpa-fused",
    Section.BEYOND,
    "Fused attention",
    meaning="one kernel does the whole of attention; its low occupancy is by design, it keeps tiles in registers",
    action="nothing: compare backends by their time, not by their occupancy",
    decided="Kernels whose decoded name is a fused attention's (flash, memory-efficient, cuDNN, AOTriton …).",
)
def sdpa_fused(view: ScopeView) -> Answer:
    if missing := view.missing_gpu_reason():
        return cannot_tell_answer(missing)
    rows = view.work.events.select(view.work.class_mask(KernelClass.ATTENTION) & (view.work.kind == Kind.KERNEL))
    if not len(rows):
        return absent_answer()
    backends = sorted({decode_kernel_name(view.tables.name(int(row))).family for row in rows.row})
    return fired_answer(
        f"{', '.join(backends)}: {format_count(len(rows), 'kernel')}, {us(view.covered_time(rows))}", rows.row
    )


@register_pattern(
    "no-tensor-core",
    Section.BEYOND,
    "Matrix products without tensor cores",
    meaning="FP32 products run on the ordinary cores, several times slower",
    action="autocast to bf16, or let FP32 products use TF32",
    code="torch.backends.cuda.matmul.fp32_precision = 'tf32'  # or: with torch.autocast('cuda', torch.bfloat16): …",
    decided="GEMMs and convolutions whose decoded name says that no tensor core runs them, with a noticeable share of "
    "GPU time, on a GPU that has tensor cores (compute capability 7.0 and later, GTX 16 excepted).",
    thresholds=(limits.TENSOR_CORE_SHARE,),
    severity=Severity.PROBLEM,
)
def no_tensor_core(view: ScopeView) -> Answer:
    if missing := view.missing_gpu_reason():
        return cannot_tell_answer(missing)
    work = view.work
    products = work.events.select(work.class_mask(KernelClass.GEMM, KernelClass.CONV) & (work.kind == Kind.KERNEL))
    if not len(products):
        return absent_answer("no matrix product")
    rows = view.tables.filter_by_name(products, lambda name: decode_kernel_name(name).tensor_core is False)
    if not len(rows):
        unknown = view.tables.filter_by_name(products, lambda name: decode_kernel_name(name).tensor_core is None)
        if len(unknown) == len(products):
            return cannot_tell_answer("the products' kernel names do not say which cores run them")
        return absent_answer()
    share = float(view.time_in_scope(rows).sum()) / max(float(view.work_time.sum()), 1.0)
    if share < limits.TENSOR_CORE_SHARE.value:
        return absent_answer(f"{format_percent(share)} of GPU time")
    able = _has_tensor_cores(view, int(rows.row[0]))
    if able is None:
        return cannot_tell_answer("the trace does not describe its GPU")
    if not able:
        return absent_answer("this GPU has no tensor cores")
    return fired_answer(
        f"{view.tables.short_name(int(rows.row[0]))} and others like it take {format_percent(share)} of GPU time",
        rows.row,
        view.covered_time(rows),
    )


def _has_tensor_cores(view: ScopeView, row: int) -> bool | None:
    """Of the device that ran the kernel; by the architecture in its name where the trace does not describe it."""
    device = find_device(view.trace, row)
    if device is not None and device.vendor == "NVIDIA" and device.capability is not None:
        return device.capability >= (7, 0) and "GTX 16" not in device.name
    arch = decode_kernel_name(view.tables.name(row)).arch or ""
    digits = "".join(letter for letter in arch.removeprefix("sm_") if letter.isdigit())
    return int(digits) >= 70 if arch.startswith("sm_") and digits else None


@register_pattern(
    "occupancy-misread",
    Section.BEYOND,
    "0 % occupancy that is not",
    meaning="the profiler's estimate reads 0 for launches by the driver's API and for grids of a few blocks",
    action="trust the computed occupancy in the footprint panel instead",
    decided="Of the twelve kernels that take most GPU time in the scope, those whose `est. achieved occupancy %` in "
    "the trace is 0. Lighter ones are not read: nobody tunes those.",
)
def occupancy_misread(view: ScopeView) -> Answer:
    if missing := view.missing_gpu_reason():
        return cannot_tell_answer(missing)
    facts, work = view.tables, view.work
    kernels = np.flatnonzero(work.kind == Kind.KERNEL)
    if not len(kernels):
        return absent_answer("no kernel in this range")
    group = facts.launch_group[view.work_in_scope][kernels]
    time = np.bincount(group, weights=view.work_time[kernels])
    first = np.full(len(time), -1, dtype=np.int64)
    first[group[::-1]] = kernels[::-1]
    read, zero = 0, []
    for one in np.argsort(-time, kind="stable")[:_MAX_KERNELS_READ].tolist():
        value = facts.reported_occupancy(int(work.events.row[first[one]]), one) if first[one] >= 0 else None
        read += value is not None
        if value == 0:
            zero.append(one)
    if not zero:
        if not read:
            return cannot_tell_answer("the trace reports no occupancy")
        return absent_answer(f"none of the {format_count(read, 'heaviest kernel')} reads 0 %")
    rows = work.events.select(kernels[np.isin(group, zero)])
    worst = int(work.events.row[first[zero[0]]])
    call = int(view.trace.links.launch_of[worst])
    by = f", launched by {facts.name(call)}" if call >= 0 else ""
    return fired_answer(
        f"{facts.short_name(worst)} ({us(int(view.trace.duration[worst]))}{by}) is reported with 0 %; "
        f"{format_count(len(zero), 'kernel')} of {read} looked at",
        np.sort(rows.row),
    )


@register_pattern(
    "graph-replay",
    Section.BEYOND,
    "A CUDA graph was replayed",
    meaning="one launch starts many kernels: their launch cost is gone, and the ops inside cannot be seen",
    action="nothing: profile once without the graph to see the ops",
    decided="One runtime call whose correlation joins it to two pieces of GPU work or more.",
)
def graph_replay(view: ScopeView) -> Answer:
    if missing := view.missing_gpu_reason():
        return cannot_tell_answer(missing)
    if not len(view.tables.calls):
        return cannot_tell_answer(NO_CALLS)
    launch = view.work.launch
    if not (launch >= 0).any():
        return cannot_tell_answer(NO_LINKS)
    first = view.trace.links.work_first
    calls = sorted_unique(launch[launch >= 0])
    many = calls[first[calls + 1] - first[calls] > 1]
    if not len(many):
        return absent_answer("each launch started one piece of work")
    work = view.work.events.select(np.isin(launch, many))
    called = view.select_in_scope(view.tables.event_table(many))
    return fired_answer(
        f"{format_count(len(many), 'launch', 'launches')} ({view.tables.name(int(many[0]))}) started {len(work):,} pieces of "
        f"GPU work",
        np.sort(np.concatenate([called.row, work.row])),
    )
