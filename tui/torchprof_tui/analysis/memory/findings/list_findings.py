"""List the findings about the memory of one device of a trace."""

from __future__ import annotations

from torchprof_tui.analysis.memory.findings.allocator_findings import find_fragmentation, find_retries
from torchprof_tui.analysis.memory.findings.lifetime_findings import (
    find_checkpointing,
    find_duplicates,
    find_growth,
    find_kept_graph,
    find_kv_cache,
    find_optimizer_states,
    find_peak_phase,
    find_spikes,
)
from torchprof_tui.analysis.memory.findings.memory_finding import MemoryFinding
from torchprof_tui.analysis.memory.memory_history import DeviceHistory

_OF_CURVE = (find_fragmentation, find_retries)
_OF_LIFETIMES = (
    *(find_growth, find_checkpointing, find_optimizer_states, find_spikes, find_duplicates),
    *(find_kept_graph, find_kv_cache, find_peak_phase),
)


def list_memory_findings(device: DeviceHistory) -> list[MemoryFinding]:
    """List what holds on one device, what saves most at the peak first; [] where nothing does.

    Where no addresses were recorded, only findings about the curve and the driver's calls are made.
    """
    rules = _OF_CURVE if device.memory.lifetimes is None else (*_OF_CURVE, *_OF_LIFETIMES)
    findings = [finding for rule in rules for finding in rule(device)]
    return sorted(findings, key=lambda finding: -finding.saved)
