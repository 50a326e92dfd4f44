"""Beyond Part 1, what runs on the GPU: fusion, attention, tensor cores, occupancy, graphs."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.kernel.footprint import device_at
from torchprof_tui.analysis.kernel.names import KernelClass, decode
from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.nearest_ancestors import outermost
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Section, Weight, absent, cannot_tell, fired
from torchprof_tui.analysis.patterns.engine.registry import pattern
from torchprof_tui.analysis.patterns.engine.scope_view import NO_CALLS, NO_LINKS, View, percent, several, us
from torchprof_tui.trace.core.arrays import distinct
from torchprof_tui.trace.model.event_kind import Kind

VIEWS = (
    r"aten::(t|view|transpose|as_strided|permute|expand|reshape|squeeze|unsqueeze|select|slice|narrow|detach|alias"
    r"|_unsafe_view|_reshape_alias|view_as|expand_as|unbind|split|chunk|flatten|unflatten|movedim|swapaxes|T|mT)$"
)
"""Ops that rewrite a tensor's shape and strides; whether one launched something is asked of its subtree."""

_READ = 12
"""Kernels whose args are read from the file for one check: the heaviest; each costs a few milliseconds once."""


@pattern(
    "metadata-op",
    Section.BEYOND,
    "Ops that launch nothing",
    meaning="views rewrite shape and stride on the CPU; no data moves and no kernel runs",
    action="nothing: cheap, but not free; compiled code does without them",
    decided="View operators (aten::t, view, transpose, as_strided …) beneath which no GPU work was launched.",
    by_absence=True,
)
def metadata_op(view: View) -> Answer:
    if missing := view.missing_ops():
        return cannot_tell(missing)
    rows = view.named(VIEWS, Kind.OP)
    if len(view.facts.work) and not (view.facts.work.launch >= 0).any():
        return cannot_tell(NO_LINKS)
    found = rows.where(~view.facts.has_work[rows.row])
    if not len(found):
        return absent()
    own = int(np.minimum(view.trace.self_duration[found.row], view.clipped(found)).sum())
    counts = np.bincount(found.name)
    listed = ", ".join(view.trace.names[name] for name in np.argsort(-counts, kind="stable")[:3] if counts[name])
    return fired(
        f"{several(len(found), 'op')}{view.per_step(len(found))} ({listed}): {us(own)} on the CPU",
        found.row,
        min(own, view.covered(found)),
    )


@pattern(
    "fused-triton",
    Section.BEYOND,
    "Kernels that Inductor fused",
    meaning="several ops in one kernel: their intermediate results never reach memory",
    action="nothing: the name lists what was merged",
    decided="Kernels whose decoded name is Inductor's (triton_poi_fused_…, triton_red_…, triton_per_…).",
)
def fused_triton(view: View) -> Answer:
    if missing := view.missing_gpu():
        return cannot_tell(missing)
    rows = view.facts.names_that(
        view.work.rows.where(view.work.kind == Kind.KERNEL),
        lambda name: name.startswith(("triton_poi_", "triton_red_", "triton_per_", "triton_tem_", "triton_for_",
                                      "triton_mix_")) and bool(decode(name).fused or "fused" in name),
    )  # fmt: skip
    if not len(rows):
        return absent()
    time = np.bincount(rows.name, weights=view.clipped(rows))
    heaviest = decode(view.trace.names[int(time.argmax())])
    merged = f": {' + '.join(heaviest.fused[:6])}{' …' if len(heaviest.fused) > 6 else ''}" if heaviest.fused else ""
    kinds = int((time > 0).sum()) or 1
    return fired(f"{several(kinds, 'fused kernel')}, {several(len(rows), 'run')}; the heaviest{merged}", rows.row)


@pattern(
    "sdpa-math",
    Section.BEYOND,
    "Attention by the slow reference",
    meaning="no fused backend took this call: scores are written out, in more precision, by many kernels",
    action="ask why the fused backends refuse: type (fp16 or bf16), head size, mask, or a forced backend",
    code="with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION): …",
    decided="Ops called aten::_scaled_dot_product_attention_math; time at stake: the GPU work beneath them.",
    weight=Weight.PROBLEM,
)
def sdpa_math(view: View) -> Answer:
    if missing := view.missing_ops():
        return cannot_tell(missing)
    facts = view.facts
    rows = facts.named(r"aten::_scaled_dot_product_attention_math", Kind.OP)
    if not len(rows):
        return absent()
    is_math = np.zeros(len(view.trace), dtype=np.bool_)
    is_math[rows.row] = True
    launch = view.work.launch
    calls, back = np.unique(np.maximum(launch, 0), return_inverse=True)
    beneath = (outermost(view.trace, calls, is_math)[back.reshape(-1)] >= 0) & (launch >= 0)
    work = view.work.rows.where(beneath)
    here = view.cut(rows)
    if not len(here) and not len(work):
        return absent("not in this range")
    evidence = np.sort(np.concatenate([here.row, work.row]))
    time = view.covered(work) or view.covered(here)
    where = "on the GPU" if len(work) else "on the CPU"
    kernels = f"{several(len(work), 'piece')} of GPU work" if len(work) else "no GPU work known"
    return fired(
        f"{several(len(here), 'call')}{view.per_step(len(here))}, {kernels}, {us(time)} {where}", evidence, time
    )


@pattern(
    "sdpa-fused",
    Section.BEYOND,
    "Fused attention",
    meaning="one kernel does the whole of attention; its low occupancy is by design, it keeps tiles in registers",
    action="nothing: compare backends by their time, not by their occupancy",
    decided="Kernels whose decoded name is a fused attention's (flash, memory-efficient, cuDNN, AOTriton …).",
)
def sdpa_fused(view: View) -> Answer:
    if missing := view.missing_gpu():
        return cannot_tell(missing)
    rows = view.work.rows.where(view.work.is_class(KernelClass.ATTENTION) & (view.work.kind == Kind.KERNEL))
    if not len(rows):
        return absent()
    backends = sorted({decode(view.facts.name(int(row))).family for row in rows.row})
    return fired(f"{', '.join(backends)}: {several(len(rows), 'kernel')}, {us(view.covered(rows))}", rows.row)


@pattern(
    "no-tensor-core",
    Section.BEYOND,
    "Matrix products without tensor cores",
    meaning="FP32 products run on the ordinary cores, several times slower",
    action="autocast to bf16, or let FP32 products use TF32",
    code="torch.backends.cuda.matmul.fp32_precision = 'tf32'  # or: with torch.autocast('cuda', torch.bfloat16): …",
    decided="GEMMs and convolutions whose decoded name says that no tensor core runs them, with a noticeable share of "
    "GPU time, on a GPU that has tensor cores (compute capability 7.0 and later, GTX 16 excepted).",
    thresholds=(limits.TENSOR_CORE_SHARE,),
    weight=Weight.PROBLEM,
)
def no_tensor_core(view: View) -> Answer:
    if missing := view.missing_gpu():
        return cannot_tell(missing)
    work = view.work
    products = work.rows.where(work.is_class(KernelClass.GEMM, KernelClass.CONV) & (work.kind == Kind.KERNEL))
    if not len(products):
        return absent("no matrix product")
    rows = view.facts.names_that(products, lambda name: decode(name).tensor_core is False)
    if not len(rows):
        unknown = view.facts.names_that(products, lambda name: decode(name).tensor_core is None)
        if len(unknown) == len(products):
            return cannot_tell("the products' kernel names do not say which cores run them")
        return absent()
    share = float(view.clipped(rows).sum()) / max(float(view.work_time.sum()), 1.0)
    if share < limits.TENSOR_CORE_SHARE.value:
        return absent(f"{percent(share)} of GPU time")
    able = _has_tensor_cores(view, int(rows.row[0]))
    if able is None:
        return cannot_tell("the trace does not describe its GPU")
    if not able:
        return absent("this GPU has no tensor cores")
    return fired(
        f"{view.facts.short(int(rows.row[0]))} and others like it take {percent(share)} of GPU time",
        rows.row,
        view.covered(rows),
    )


def _has_tensor_cores(view: View, row: int) -> bool | None:
    """Of the device that ran the kernel; by the architecture in its name where the trace does not describe it."""
    device = device_at(view.trace, row)
    if device is not None and device.vendor == "NVIDIA" and device.capability is not None:
        return device.capability >= (7, 0) and "GTX 16" not in device.name
    arch = decode(view.facts.name(row)).arch or ""
    digits = "".join(letter for letter in arch.removeprefix("sm_") if letter.isdigit())
    return int(digits) >= 70 if arch.startswith("sm_") and digits else None


@pattern(
    "occupancy-misread",
    Section.BEYOND,
    "0 % occupancy that is not",
    meaning="the profiler's estimate reads 0 for launches by the driver's API and for grids of a few blocks",
    action="trust the computed occupancy in the footprint panel instead",
    decided="Of the twelve kernels that take most GPU time in the scope, those whose `est. achieved occupancy %` in "
    "the trace is 0. Lighter ones are not read: nobody tunes those.",
)
def occupancy_misread(view: View) -> Answer:
    if missing := view.missing_gpu():
        return cannot_tell(missing)
    facts, work = view.facts, view.work
    kernels = np.flatnonzero(work.kind == Kind.KERNEL)
    if not len(kernels):
        return absent("no kernel in this range")
    group = facts.alike[view.work_place][kernels]
    time = np.bincount(group, weights=view.work_time[kernels])
    first = np.full(len(time), -1, dtype=np.int64)
    first[group[::-1]] = kernels[::-1]
    read, zero = 0, []
    for one in np.argsort(-time, kind="stable")[:_READ].tolist():
        value = facts.reported_occupancy(int(work.rows.row[first[one]]), one) if first[one] >= 0 else None
        read += value is not None
        if value == 0:
            zero.append(one)
    if not zero:
        if not read:
            return cannot_tell("the trace reports no occupancy")
        return absent(f"none of the {several(read, 'heaviest kernel')} reads 0 %")
    rows = work.rows.where(kernels[np.isin(group, zero)])
    worst = int(work.rows.row[first[zero[0]]])
    call = int(view.trace.links.launch_of[worst])
    by = f", launched by {facts.name(call)}" if call >= 0 else ""
    return fired(
        f"{facts.short(worst)} ({us(int(view.trace.duration[worst]))}{by}) is reported with 0 %; "
        f"{several(len(zero), 'kernel')} of {read} looked at",
        np.sort(rows.row),
    )


@pattern(
    "graph-replay",
    Section.BEYOND,
    "A CUDA graph was replayed",
    meaning="one launch starts many kernels: their launch cost is gone, and the ops inside cannot be seen",
    action="nothing: profile once without the graph to see the ops",
    decided="One runtime call whose correlation joins it to two pieces of GPU work or more.",
)
def graph_replay(view: View) -> Answer:
    if missing := view.missing_gpu():
        return cannot_tell(missing)
    if not len(view.facts.calls):
        return cannot_tell(NO_CALLS)
    launch = view.work.launch
    if not (launch >= 0).any():
        return cannot_tell(NO_LINKS)
    first = view.trace.links.work_first
    calls = distinct(launch[launch >= 0])
    many = calls[first[calls + 1] - first[calls] > 1]
    if not len(many):
        return absent("each launch started one piece of work")
    work = view.work.rows.where(np.isin(launch, many))
    called = view.cut(view.facts.rows(many))
    return fired(
        f"{several(len(many), 'launch', 'launches')} ({view.facts.name(int(many[0]))}) started {len(work):,} pieces of "
        f"GPU work",
        np.sort(np.concatenate([called.row, work.row])),
    )
