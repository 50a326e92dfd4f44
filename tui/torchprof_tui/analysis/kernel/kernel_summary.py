"""Summary of one GPU event for the kernel panel: its footprint or transfer, and all instances of its name."""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.analysis.kernel.duration_distribution import KernelInstances, find_instances
from torchprof_tui.analysis.kernel.footprint import Footprint, compute_footprint
from torchprof_tui.analysis.kernel.memory_transfer import Transfer, measure_transfer
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.trace import Trace


@dataclass(frozen=True, slots=True)
class KernelSummary:
    """`footprint` for a kernel or collective, `transfer` for a copy or fill; the other is None."""

    event: int
    footprint: Footprint | None
    transfer: Transfer | None
    instances: KernelInstances


def summarize_kernel(trace: Trace, event: int) -> KernelSummary | None:
    """Summarize a GPU event; None for any other event. Reads the event's args from the file."""
    if event < 0 or trace.event(event).kind not in GPU_WORK:
        return None
    return KernelSummary(
        event, compute_footprint(trace, event), measure_transfer(trace, event), find_instances(trace, event)
    )
