"""Labels on the lanes for the class of a kernel."""

from __future__ import annotations

from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Trace


def kernel_class_label(trace: Trace, event: int) -> str:
    """Return the class of a piece of GPU work ("gemm", "elementwise", "memory"), "" for any other event."""
    if Kind(int(trace.kind[event])) not in GPU_WORK:
        return ""
    return decode_kernel_name(trace.names[int(trace.name[event])]).kernel_class.label
