"""Labels on the lanes for profiler overhead and for the class of a kernel."""

from __future__ import annotations

from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Trace

_OVERHEAD_DESCRIPTIONS = {
    "Activity Buffer Request": "the profiler allocates memory for its records",
    "Buffer Flush": "the profiler empties its buffers of records",
    "Instrumentation": "the profiler instruments a kernel",
    "Resource": "the profiler registers contexts and streams",
    "Driver Compiler": "the driver compiles a kernel for this GPU",
    "Runtime Triggered Module Loading": "a library's kernels are loaded at their first use",
    "Lazy Function Loading": "a kernel is loaded at its first launch",
    "Command Buffer Full": "the launch queue was full, so the CPU waited",
}


def describe_overhead(name: str) -> str:
    """Describe the overhead event of this name, "" for an unknown one."""
    return _OVERHEAD_DESCRIPTIONS.get(name, "")


def kernel_class_label(trace: Trace, event: int) -> str:
    """Return the class of a piece of GPU work ("gemm", "elementwise", "memory"), "" for any other event."""
    if Kind(int(trace.kind[event])) not in GPU_WORK:
        return ""
    return decode_kernel_name(trace.names[int(trace.name[event])]).kernel_class.label
