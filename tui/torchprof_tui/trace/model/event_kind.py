"""What kind of thing an event is, decided from its category alone.

The kind decides on which sort of lane an event lies, whether it counts as GPU work, and its colour.
Category strings differ by torch version (`Operator` in 1.9, `cpu_op` since) and by vendor
(`xpu_runtime`, `mtia_runtime`, ...); everything behind the reader asks for the kind instead.
"""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """A uint8 in the `kind` column. The values are stored in caches: append, never renumber."""

    OTHER = 0
    STEP = 1  # ProfilerStep#N on a CPU thread
    ANNOTATION = 2  # record_function, Optimizer.step, nccl:all_reduce: user_annotation
    PYTHON = 3  # python_function: a Python frame or an nn.Module call
    OP = 4  # cpu_op: aten::…, autograd nodes, Triton wrappers
    RUNTIME = 5  # a CUDA, HIP, XPU, … runtime or driver call
    KERNEL = 6
    COPY = 7  # gpu_memcpy
    MEMSET = 8  # gpu_memset
    COLLECTIVE = 9  # a kernel of a communication library
    SYNC = 10  # cuda_sync: what a stream waited for; not work
    GPU_ANNOTATION = 11  # the span of a user annotation on a stream; synthetic, holds idle time
    OVERHEAD = 12  # the profiler's own work
    PROFILER = 13  # its spans and marks: cat `Trace`, pids "Spans", "Traces"
    ASYNC = 14  # nestable and old async events of Chrome traces
    INSTANT = 15  # a mark without a duration
    MEMORY = 16  # [memory], [OutOfMemory]: points of a counter, not bars


GPU_WORK = frozenset({Kind.KERNEL, Kind.COPY, Kind.MEMSET, Kind.COLLECTIVE})
"""What a GPU really did; only these count as busy time."""

STREAM_KINDS = GPU_WORK | {Kind.SYNC, Kind.GPU_ANNOTATION}
"""What lies on a stream's lanes; `args.device` and `args.stream` say which one."""

_KIND_BY_CATEGORY = {
    "cpu_op": Kind.OP,
    "operator": Kind.OP,
    "hpu_op": Kind.OP,
    "user_annotation": Kind.ANNOTATION,
    "python_function": Kind.PYTHON,
    "kernel": Kind.KERNEL,
    "mtia_ccp_events": Kind.KERNEL,
    "collective_comm": Kind.COLLECTIVE,
    "gpu_memcpy": Kind.COPY,
    "memcpy": Kind.COPY,
    "gpu_memset": Kind.MEMSET,
    "memset": Kind.MEMSET,
    "cuda_sync": Kind.SYNC,
    "gpu_user_annotation": Kind.GPU_ANNOTATION,
    "cuda_profiler_range": Kind.GPU_ANNOTATION,
    "overhead": Kind.OVERHEAD,
    "trace": Kind.PROFILER,
    "runtime": Kind.RUNTIME,
}


def kind_of_category(category: str) -> Kind:
    """The kind of a complete event of this category; OTHER for what is not a profiler's."""
    folded = category.lower()
    known = _KIND_BY_CATEGORY.get(folded)
    if known is not None:
        return known
    if folded.endswith(("_runtime", "_driver")):
        return Kind.RUNTIME
    return Kind.OTHER


_COLLECTIVE_PREFIXES = ("nccl", "rccl", "oneccl", "hccl", "hcom", "mccl")
"""How kernels of communication libraries begin: NVIDIA, AMD, Intel, Huawei (its operators too), Moore Threads."""


def refine_kind(kind: Kind, name: str) -> Kind:
    """Some kinds need the name as well: steps among annotations, collectives among kernels.

    torch 1.9 recorded steps as plain operators, hence OP here.
    """
    if kind in (Kind.ANNOTATION, Kind.OP) and name.startswith("ProfilerStep#"):
        return Kind.STEP
    if kind is Kind.KERNEL and name.lower().startswith(_COLLECTIVE_PREFIXES):
        return Kind.COLLECTIVE
    return kind
