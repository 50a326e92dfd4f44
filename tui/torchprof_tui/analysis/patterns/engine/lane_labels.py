"""What events that nobody wrote say on the lanes: the profiler's own, and the class of each kernel."""

from __future__ import annotations

from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Trace

_OVERHEAD_DESCRIPTIONS = {
    "Activity Buffer Request": "the profiler asks for memory for its records",
    "Buffer Flush": "the profiler hands its records over",
    "Instrumentation": "the profiler instruments a kernel",
    "Resource": "the profiler keeps track of contexts and streams",
    "Driver Compiler": "the driver compiles a kernel for this GPU",
    "Runtime Triggered Module Loading": "a library's kernels are loaded at their first use",
    "Lazy Function Loading": "a kernel is loaded at its first launch",
    "Command Buffer Full": "the launch queue was full: the CPU waited for room in it",
}


def describe_overhead(name: str) -> str:
    """What an overhead event of this name is, "" for one that is not known."""
    return _OVERHEAD_DESCRIPTIONS.get(name, "")


def kernel_class_label(trace: Trace, event: int) -> str:
    """The class of a piece of GPU work in a word ("gemm", "elementwise", "memory"), "" for any other event."""
    if Kind(int(trace.kind[event])) not in GPU_WORK:
        return ""
    return decode_kernel_name(trace.names[int(trace.name[event])]).kernel_class.label
