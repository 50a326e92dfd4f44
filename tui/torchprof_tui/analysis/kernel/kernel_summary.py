"""All that the kernel panel says about one piece of GPU work: its footprint or its transfer, and its other runs."""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.analysis.kernel.duration_distribution import KernelInstances, find_instances
from torchprof_tui.analysis.kernel.footprint import Footprint, compute_footprint
from torchprof_tui.analysis.kernel.memory_transfer import Transfer, measure_transfer
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.trace import Trace


@dataclass(frozen=True, slots=True)
class KernelSummary:
    """`footprint` of a kernel or collective, `transfer` of a copy or fill: one of them is there."""

    event: int
    footprint: Footprint | None
    transfer: Transfer | None
    instances: KernelInstances


def summarize_kernel(trace: Trace, event: int) -> KernelSummary | None:
    """Of GPU work; None for any other event. Reads the event's args from the file."""
    if event < 0 or trace.event(event).kind not in GPU_WORK:
        return None
    return KernelSummary(
        event, compute_footprint(trace, event), measure_transfer(trace, event), find_instances(trace, event)
    )
