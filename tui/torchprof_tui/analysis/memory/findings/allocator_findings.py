"""Find what the caching allocator costs: reserved memory that nothing can use, and calls of the driver to get more."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.memory.device_memory import UNKNOWN_BYTES, DeviceMemory
from torchprof_tui.analysis.memory.findings.memory_finding import MemoryFinding, format_number, format_size
from torchprof_tui.analysis.memory.memory_history import DeviceHistory
from torchprof_tui.analysis.memory.snapshots.device_snapshot import DeviceSnapshot
from torchprof_tui.analysis.memory.snapshots.snapshot_file import Action
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.trace.core.arrays import I64, is_in, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

MIN_FRAGMENTED = 256 << 20  # bytes below which the allocator's steps of 2 and 20 MiB explain what is not used
MIN_FRAGMENTED_SHARE = 0.2  # share of what is reserved

SMALL_REQUEST = 1 << 20
"""Bytes up to which torch's allocator takes a block from segments for small requests, which larger ones cannot use."""


EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


@record
class Growth:
    """When a device's reserved memory grew although more than the allocation was reserved and free.

    `time`: ns, of the first such record. `grown`: bytes that were got from the driver in all. `unused`: bytes reserved
    and not allocated before the record at which they were most. `count`: such records.
    """

    time: int
    grown: int
    unused: int
    count: int


def find_scattered_growth(memory: DeviceMemory) -> Growth | None:
    """Find memory that was got from the driver while enough was reserved and free, but in no block large enough.

    Requests up to 1 MiB have segments of their own, which prove nothing about larger blocks. None where there are none.
    """
    grown, asked = np.diff(memory.reserved), np.diff(memory.allocated)
    unused = (memory.reserved - memory.allocated)[:-1]
    known = memory.reserved[:-1] != UNKNOWN_BYTES
    limit = np.maximum(MIN_FRAGMENTED, MIN_FRAGMENTED_SHARE * memory.reserved[:-1])
    rows = np.flatnonzero(known & (grown > 0) & (asked > SMALL_REQUEST) & (unused >= asked) & (unused >= limit))
    if not len(rows):
        return None
    return Growth(int(memory.time[rows[0] + 1]), int(grown[rows].sum()), int(unused[rows].max()), len(rows))


def measure_unused(memory: DeviceMemory) -> tuple[int, int] | None:
    """Return (bytes not in use, bytes reserved) at the peak where much is not in use, else None."""
    allocated, reserved = int(memory.allocated[memory.peak]), int(memory.reserved[memory.peak])
    unused = reserved - allocated
    if reserved == UNKNOWN_BYTES or unused < max(MIN_FRAGMENTED, MIN_FRAGMENTED_SHARE * reserved):
        return None
    return unused, reserved


def find_fragmentation(device: DeviceHistory) -> list[MemoryFinding]:
    """Find free memory that could not be used: the allocator asked the driver for more beside it.

    Memory that is reserved and not in use proves nothing by itself: the recording may begin after a higher peak.
    """
    memory = device.memory
    growth = None if memory.is_cpu else find_scattered_growth(memory)
    if growth is None:
        return []
    return [
        MemoryFinding(
            "fragmentation",
            f"{format_number(growth.count, 'allocation')} got {format_size(growth.grown)} more from the driver while "
            f"up to {format_size(growth.unused)} reserved were free, in no block large enough",
            min(growth.grown, growth.unused),
            "let segments grow, so that free blocks of different sizes do not lie between blocks in use",
            EXPANDABLE,
        )
    ]


@record
class RetryCalls:
    """Ops in which the driver was asked for memory, got some back, and was asked again.

    `ops` int64[r]: rows of the trace. `calls` int64[c]: the calls from the first free on.
    """

    ops: I64
    calls: I64


def find_retry_calls(trace: Trace) -> RetryCalls:
    """Find the ops that call the driver as a retry of the allocator does: malloc (which fails), free, malloc.

    Convolutions do so as well while a library tries its algorithms, and are left out.
    """
    frees, mallocs = (
        np.flatnonzero((trace.kind == Kind.RUNTIME) & match_names(trace, {f"cuda{call}", f"hip{call}"}.__contains__))
        for call in ("Free", "Malloc")
    )
    parents = sorted_unique(trace.parent[frees][is_in(trace.parent[frees], trace.parent[mallocs])])
    ops, calls = [], [np.zeros(0, np.int64)]
    for parent in parents[parents >= 0].tolist():
        if trace.kind[parent] != Kind.OP or "conv" in trace.names[trace.name[parent]]:
            continue
        freed, got = frees[trace.parent[frees] == parent], mallocs[trace.parent[mallocs] == parent]
        first = trace.start[freed].min()
        later = got[trace.start[got] > first]
        if len(later) and (trace.start[got] < first).any():
            ops.append(parent)
            calls.append(np.sort(np.concatenate([freed, later])))
    return RetryCalls(np.array(ops, np.int64), np.concatenate(calls))


def confirm_retries(trace: Trace, found: RetryCalls, memory: DeviceMemory) -> RetryCalls:
    """Keep the retries that gave back memory of torch's allocator: less is reserved after the op than before it.

    Without that the calls may be those of a library, which loads its code or allocates a buffer of its own.
    """
    if not len(found.ops):
        return found
    start = trace.start[found.ops]
    times = np.concatenate([start, start + trace.duration[found.ops]])
    _, reserved = memory.read_curve(times)
    before, after = np.split(reserved, 2)
    ops = found.ops[(before != UNKNOWN_BYTES) & (after < before)]
    return RetryCalls(ops, found.calls[is_in(trace.parent[found.calls], ops)])


def find_retries(device: DeviceHistory) -> list[MemoryFinding]:
    """Find allocations for which the allocator gave its cache back to the driver to get a larger block."""
    trace = device.producers.trace
    if device.memory.is_cpu:
        return []
    retries = confirm_retries(trace, find_retry_calls(trace), device.memory)
    if not len(retries.ops):
        return []
    taken = int(trace.duration[retries.calls].sum())
    return [
        MemoryFinding(
            "allocator-retries",
            f"{format_number(len(retries.ops), 'time')} the memory was full, and the cache was given back and asked "
            f"for again: {format_duration(taken)} in cudaFree and cudaMalloc, first in "
            f"{trace.names[trace.name[retries.ops[0]]]}",
            0,
            "use less memory, or fragment it less: the program is at the limit of the device",
            EXPANDABLE,
            taken,
        )
    ]


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
    rows = np.flatnonzero(is_in(action, (Action.SEGMENT_FREE, Action.SEGMENT_ALLOC, Action.ALLOC)))
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
