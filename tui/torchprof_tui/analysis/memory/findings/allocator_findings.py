"""Find what the caching allocator costs: reserved memory that nothing can use, and calls of the driver to get more."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.memory.device_memory import UNKNOWN_BYTES
from torchprof_tui.analysis.memory.findings.memory_finding import MemoryFinding, format_number, format_size
from torchprof_tui.analysis.memory.memory_history import DeviceHistory
from torchprof_tui.analysis.memory.snapshots.device_snapshot import DeviceSnapshot
from torchprof_tui.analysis.memory.snapshots.snapshot import Action
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

MIN_FRAGMENTED = 256 << 20
"""Bytes below which the allocator's steps of 2 and 20 MiB explain what is not used."""

MIN_FRAGMENTED_SHARE = 0.2
"""Share of what is reserved."""

EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


def find_fragmentation(device: DeviceHistory) -> list[MemoryFinding]:
    """Find memory that was reserved at the peak, but not allocated."""
    memory = device.memory
    allocated, reserved = int(memory.allocated[memory.peak]), int(memory.reserved[memory.peak])
    if reserved == UNKNOWN_BYTES or memory.is_cpu:
        return []
    unused = reserved - allocated
    if unused < max(MIN_FRAGMENTED, MIN_FRAGMENTED_SHARE * reserved):
        return []
    return [
        MemoryFinding(
            "fragmentation",
            f"at the peak {format_size(reserved)} are reserved for {format_size(allocated)} allocated",
            unused,
            "let segments grow, so that free blocks of different sizes do not lie between blocks in use",
            EXPANDABLE,
        )
    ]


def find_retries(device: DeviceHistory) -> list[MemoryFinding]:
    """Find calls in which the allocator gave its cache back to the driver to get a larger block: free, then malloc."""
    trace = device.producers.trace
    if device.memory.is_cpu:
        return []
    frees, mallocs = (
        _find_calls(device, tuple(prefix + call for prefix in ("cuda", "hip"))) for call in ("Free", "Malloc")
    )
    if not len(frees) or not len(mallocs):
        return []
    parents = np.intersect1d(trace.parent[frees], trace.parent[mallocs])
    retries = []
    taken = 0
    for parent in parents[parents >= 0].tolist():
        if trace.kind[parent] != Kind.OP:
            continue
        freed, got = frees[trace.parent[frees] == parent], mallocs[trace.parent[mallocs] == parent]
        later = got[trace.start[got] > trace.start[freed].min()]
        if len(later):
            retries.append(parent)
            calls = np.concatenate([freed, later])
            taken += int(trace.duration[calls].sum())
    if not retries:
        return []
    return [
        MemoryFinding(
            "allocator-retries",
            f"{format_number(len(retries), 'time')} the memory was full, and the cache was given back and asked for "
            f"again: "
            f"{format_duration(taken)} in cudaFree and cudaMalloc, first in {trace.names[trace.name[retries[0]]]}",
            0,
            "use less memory, or fragment it less: the program is at the limit of the device",
            EXPANDABLE,
            taken,
        )
    ]


def _find_calls(device: DeviceHistory, names: tuple[str, ...]) -> I64:
    trace = device.producers.trace
    named = np.fromiter((name in names for name in trace.names), np.bool_, len(trace.names))
    return np.flatnonzero((trace.kind == Kind.RUNTIME) & named[trace.name]).astype(np.int64)


def find_snapshot_findings(device: DeviceSnapshot) -> list[MemoryFinding]:
    """List the findings of a snapshot: fragmentation, retries, failed allocations."""
    return [*_find_scattered_blocks(device), *_find_snapshot_retries(device), *_find_failures(device)]


def _find_scattered_blocks(device: DeviceSnapshot) -> list[MemoryFinding]:
    totals = device.totals
    stuck = totals.free - totals.unused  # free blocks of segments in use, which the driver does not get back
    if stuck < max(MIN_FRAGMENTED, MIN_FRAGMENTED_SHARE * totals.reserved):
        return []
    is_expandable = bool(device.snapshot.segments.is_expandable[device.segments].all())
    return [
        MemoryFinding(
            "fragmentation",
            f"{format_size(stuck)} of {format_size(totals.reserved)} reserved are free blocks between blocks in use; "
            f"the largest free block has {format_size(totals.largest_free)}",
            stuck,
            "use fewer different shapes: segments are expandable already"
            if is_expandable
            else "let segments grow, so that free blocks of different sizes do not lie between blocks in use",
            "" if is_expandable else EXPANDABLE,
        )
    ]


def _find_snapshot_retries(device: DeviceSnapshot) -> list[MemoryFinding]:
    """A retry: segments given back, and one got directly after, with no allocation between them."""
    if device.history is None:
        return []
    action = device.history.action
    rows = np.flatnonzero(np.isin(action, (Action.SEGMENT_FREE, Action.SEGMENT_ALLOC, Action.ALLOC)))
    kinds = action[rows]
    retries = np.flatnonzero((kinds[:-1] == Action.SEGMENT_FREE) & (kinds[1:] == Action.SEGMENT_ALLOC))
    if not len(retries):
        return []
    time = int(device.history.time[rows[retries[0]]] - device.history.time[0])
    return [
        MemoryFinding(
            "allocator-retries",
            f"{format_number(len(retries), 'time')} segments were given back to get another one, "
            f"first at {format_duration(time)}",
            0,
            "use less memory, or fragment it less: the program is at the limit of the device",
            EXPANDABLE,
        )
    ]


def _find_failures(device: DeviceSnapshot) -> list[MemoryFinding]:
    findings = []
    for failure in device.list_failures()[-1:]:
        free = failure.reserved - failure.requested
        fits = free >= failure.size
        findings.append(
            MemoryFinding(
                "out-of-memory",
                f"{format_size(failure.size)} asked for, with {format_size(free)} of {format_size(failure.reserved)} "
                f"reserved not in use: {'fragmented' if fits else 'too little'}",
                0,
                "free memory of this size is there, but in pieces: let segments grow"
                if fits
                else "hold less at this point: see what is alive at the peak, by line",
                EXPANDABLE if fits else "",
            )
        )
    return findings
