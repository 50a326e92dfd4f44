"""Match frees with the allocations that they end, by the addresses of the `[memory]` records.

The profiler records a free where it happens, which is rarely the operator that allocated: an activation is allocated in
the forward pass and freed in the backward pass. Only the address tells whose memory it was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.model.trace import MemoryEvents, Trace


@dataclass(frozen=True, slots=True)
class MemoryLifetimes:
    """Lifetimes of k records.

    `is_held` bool[k]: allocations that are not freed before the end of the trace. `has_address` bool[k]: the records
    of this device carry addresses; without them `is_held` is False and means nothing. `is_foreign` bool[k]: frees of
    memory that was allocated before the recording.
    """

    is_held: Bool
    has_address: Bool
    is_foreign: Bool


def match_frees(trace: Trace, memory: MemoryEvents) -> MemoryLifetimes:
    """Match each free with the latest allocation of its process, device and address.

    An address that is allocated again must have been free: its earlier allocation has ended, recorded or not.
    """
    count = len(memory.time)
    space = _find_address_spaces(trace, memory)
    has_address = np.bincount(space, weights=memory.address != 0)[space] > 0 if count else np.zeros(0, np.bool_)
    order = np.lexsort((np.arange(count), memory.address, space))  # records are sorted by time
    same = np.zeros(count, np.bool_)  # whether the next record has the same address
    if count:
        same[:-1] = (space[order][1:] == space[order][:-1]) & (memory.address[order][1:] == memory.address[order][:-1])
    is_allocation = memory.bytes[order] > 0
    held, foreign = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    held[order] = is_allocation & ~same
    after_allocation = np.zeros(count, np.bool_)
    after_allocation[1:] = same[:-1] & is_allocation[:-1]
    foreign[order] = (memory.bytes[order] < 0) & ~after_allocation
    known = has_address & (memory.address != 0)
    return MemoryLifetimes(held & known, has_address, foreign & known)


def _find_address_spaces(trace: Trace, memory: MemoryEvents) -> I64:
    """Number the address spaces, one for each process and device: int64[k]."""
    process_of_lane: dict[tuple[int | None, str], int] = {}
    processes = np.array(
        [process_of_lane.setdefault((lane.rank, lane.pid), len(process_of_lane)) for lane in trace.lanes] or [0],
        np.int64,
    )
    process = np.where(memory.lane >= 0, processes[np.maximum(memory.lane, 0)], -1)
    keys = np.stack([process, memory.device_type, memory.device_id])
    return np.unique(keys, axis=1, return_inverse=True)[1].ravel().astype(np.int64)
