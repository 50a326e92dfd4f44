"""Classify events by their category into kinds.

The kind decides the role of an event's lane, whether it counts as GPU work, and its colour. Category strings differ
by torch version (`Operator` in 1.9, `cpu_op` since) and by vendor (`xpu_runtime`, `mtia_runtime`, ...), so all stages
after decoding use the kind.
"""

from __future__ import annotations

import re
from enum import IntEnum

from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.model.communication_kernels import classify_communication


class Kind(IntEnum):
    """Kind of an event, stored as uint8. The values are stored in the cache: append, never renumber."""

    OTHER = 0
    STEP = 1  # ProfilerStep#N on a CPU thread
    ANNOTATION = 2  # record_function, Optimizer.step, nccl:all_reduce: user_annotation
    PYTHON = 3  # python_function: a Python frame or an nn.Module call
    OP = 4  # cpu_op: aten::…, autograd nodes, Triton wrappers
    RUNTIME = 5  # a CUDA, HIP, XPU, … runtime or driver call
    KERNEL = 6
    COPY = 7  # gpu_memcpy
    MEMSET = 8  # gpu_memset
    COLLECTIVE = 9  # a kernel that communicates with other GPUs, see communication_kernels.py
    SYNC = 10  # cuda_sync: a wait of a stream; not work
    GPU_ANNOTATION = 11  # the extent of a user annotation on a stream; synthetic, includes idle time
    OVERHEAD = 12  # the work of the profiler itself
    PROFILER = 13  # spans and marks of the profiler: cat `Trace`, pids "Spans", "Traces"; frames of the recorder
    ASYNC = 14  # nestable and legacy async events of Chrome traces
    INSTANT = 15  # an instant event, without a duration
    MEMORY = 16  # [memory], [OutOfMemory]: points of a counter, not events on a lane


GPU_WORK = frozenset({Kind.KERNEL, Kind.COPY, Kind.MEMSET, Kind.COLLECTIVE})
"""Work executed by a GPU; only these kinds count as busy time."""

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
    "graph_event_node": Kind.SYNC,  # nodes of a replayed graph that are no work: an event is recorded,
    "graph_host_node": Kind.SYNC,  # the stream waits for a function on the CPU
    "gpu_user_annotation": Kind.GPU_ANNOTATION,
    "cuda_profiler_range": Kind.GPU_ANNOTATION,
    "overhead": Kind.OVERHEAD,
    "trace": Kind.PROFILER,
    "runtime": Kind.RUNTIME,
}


_STREAM_WAIT = re.compile(r"(event|notify|capture)_wait(_sqe)?|event_record", re.IGNORECASE)
RECORDER_FRAME = compile_later(
    r"torchprof_runs[/\\](?!workloads[/\\])|profiler_runs[/\\](endings|exporting|harness|manifest|modes|preflight|recording"
    r"|schedule|selfprofile|session|status|stepping|target|window)\.py"
)
"""Of this project's recorder, which removes its frames from what it records; older recordings have them."""
_TRANSFER = re.compile(r"dma_request$|\[?(CUDA )?mem(cpy|set)\b", re.IGNORECASE)


def kind_of_category(category: str) -> Kind:
    """Return the kind of complete events of this category; OTHER for categories that no profiler writes."""
    folded = category.lower()
    kind = _KIND_BY_CATEGORY.get(folded)
    if kind is not None:
        return kind
    if folded.endswith(("_runtime", "_driver")):
        return Kind.RUNTIME
    return Kind.OTHER


def refine_kind(kind: Kind, name: str) -> Kind:
    """Refine a kind by the event's name: steps among annotations, frames of the recorder, collectives among kernels.

    torch 1.9 recorded steps as plain operators, hence OP. Ascend (`EVENT_WAIT_SQE`) and MTIA record the waits of a
    stream, and MTIA its copies and the records of events, like kernels; so do files without categories.
    """
    if kind in (Kind.ANNOTATION, Kind.OP) and name.startswith("ProfilerStep#"):
        return Kind.STEP
    if kind is Kind.PYTHON:
        return Kind.PROFILER if RECORDER_FRAME.search(name) else kind
    if kind is Kind.KERNEL and _STREAM_WAIT.fullmatch(name):
        return Kind.SYNC
    if kind is Kind.KERNEL and (transfer := _TRANSFER.match(name)):
        return Kind.MEMSET if "set" in transfer[0].lower() else Kind.COPY
    if kind is Kind.KERNEL and classify_communication(name) is not None:
        return Kind.COLLECTIVE
    return kind
