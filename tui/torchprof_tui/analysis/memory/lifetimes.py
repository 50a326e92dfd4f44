"""Pair the allocations and frees of the `[memory]` records into lifetimes, by address.

The profiler records a free where it happens, which is rarely the operator that allocated: an activation is allocated in
the forward pass and freed in the backward pass. Only the address tells whose memory it was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.model.trace import MemoryEvents, Trace

NOT_RECORDED = -1
"""For the record of an allocation or a free that is not in the trace."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """k lifetimes, in the order of their allocation; those older than the recording come first.

    `allocated_by`, `freed_by` int64[k]: records (rows of `Trace.memory`), NOT_RECORDED for memory that was allocated
    before the recording (or whose allocation is lost), and for memory that is never freed in it. `begin`, `end`
    int64[k]: the lifetime is alive after each record r with begin <= r < end. `bytes` int64[k].
    """

    allocated_by: I64
    freed_by: I64
    begin: I64
    end: I64
    bytes: I64

    def __len__(self) -> int:
        return len(self.bytes)

    @property
    def is_older(self) -> Bool:
        """bool[k]: allocated before the recording, and freed in it."""
        return self.allocated_by < 0

    @property
    def is_freed(self) -> Bool:
        """bool[k]: False for memory that is never freed in the trace."""
        return self.freed_by >= 0

    def find_alive(self, record: int) -> I64:
        """Find the lifetimes that are alive after a record, the largest first: int64[a]. -1: before the first one."""
        alive = np.flatnonzero((self.begin <= record) & (self.end > record))
        return alive[np.argsort(-self.bytes[alive], kind="stable")]


@dataclass(frozen=True, slots=True)
class MemoryLifetimes:
    """What the lifetimes say about each of k records.

    `is_held` bool[k]: allocations that are not freed before the end of the trace. `has_address` bool[k]: the records
    of this device carry addresses; without them `is_held` is False and means nothing. `is_foreign` bool[k]: frees of
    memory that was allocated before the recording.
    """

    is_held: Bool
    has_address: Bool
    is_foreign: Bool


def pair_records(address: I64, sizes: I64, numbers: I64, end: int) -> Lifetimes:
    """Pair the records of one device, in the order of time.

    `address`, `sizes` int64[m]: sizes are negative for frees. `numbers` int64[m]: the rows of the records, ascending.
    `end`: a row after the last record. A free ends the latest allocation of its address. An address that is allocated
    again must have been free: its earlier allocation has ended there, although its free is not recorded.
    """
    order = np.argsort(address, kind="stable")
    same = np.zeros(len(order) + 1, np.bool_)  # whether a record has the address of the one before it
    same[1:-1] = address[order][1:] == address[order][:-1]
    is_allocation = sizes[order] > 0
    number = numbers[order]
    has_next, has_previous = same[1:], same[:-1]
    next_number = np.full(len(order), end, np.int64)
    next_number[:-1][has_next[:-1]] = number[1:][has_next[:-1]]
    next_is_free = np.zeros(len(order), np.bool_)
    next_is_free[:-1] = has_next[:-1] & ~is_allocation[1:]
    after_allocation = np.zeros(len(order), np.bool_)
    after_allocation[1:] = has_previous[1:] & is_allocation[:-1]

    born = np.flatnonzero(is_allocation)
    lost = np.flatnonzero((sizes[order] < 0) & ~after_allocation)  # frees without an allocation
    previous = np.where(has_previous[lost], number[np.maximum(lost - 1, 0)], np.int64(-1))
    allocated_by = np.concatenate([np.full(len(lost), NOT_RECORDED, np.int64), number[born]])
    freed_by = np.concatenate([number[lost], np.where(next_is_free[born], next_number[born], NOT_RECORDED)])
    begin = np.concatenate([previous, number[born]])
    finish = np.concatenate([number[lost], next_number[born]])
    size = np.concatenate([-sizes[order][lost], sizes[order][born]])
    by_begin = np.lexsort((freed_by, begin))
    return Lifetimes(allocated_by[by_begin], freed_by[by_begin], begin[by_begin], finish[by_begin], size[by_begin])


def match_frees(trace: Trace, memory: MemoryEvents) -> MemoryLifetimes:
    """Find which records are never freed, or free what is older, for the records of all devices together."""
    count = len(memory.time)
    held, foreign, has_address = (np.zeros(count, np.bool_) for _ in range(3))
    for records in split_by_device(trace, memory):
        known = select_paired(memory, records)
        has_address[records] = len(known) > 0
        lifetimes = pair_records(memory.address[known], memory.bytes[known], known, count)
        held[lifetimes.allocated_by[lifetimes.end == count]] = True
        foreign[lifetimes.freed_by[lifetimes.is_older]] = True
    return MemoryLifetimes(held, has_address, foreign)


def select_paired(memory: MemoryEvents, records: I64) -> I64:
    """Select the records (rows) that can be paired: those with an address that change anything. int64[p]."""
    kept: I64 = records[(memory.address[records] != 0) & (memory.bytes[records] != 0)]
    return kept


def split_by_device(trace: Trace, memory: MemoryEvents) -> list[I64]:
    """Split the records by process and device, each in the order of time: one int64[m] for each address space."""
    count = len(memory.time)
    process_of_lane: dict[tuple[int | None, str], int] = {}
    processes = np.array(
        [process_of_lane.setdefault((lane.rank, lane.pid), len(process_of_lane)) for lane in trace.lanes] or [0],
        np.int64,
    )
    process = np.where(memory.lane >= 0, processes[np.maximum(memory.lane, 0)], -1)
    if len(process_of_lane) == 1:
        process[:] = 0  # a record of a thread without events is of the only process
    space = np.zeros(count, np.int64)
    for column in (process, memory.device_type, memory.device_id):
        values = np.unique(column)
        space = _number_values(space * len(values) + np.searchsorted(values, column))
    order = np.argsort(space, kind="stable")
    return [part.astype(np.int64) for part in np.split(order, np.cumsum(np.bincount(space))[:-1])] if count else []


def _number_values(keys: I64) -> I64:
    """Number the distinct keys in ascending order: int64[m]. Few are distinct, so that a search beats an argsort."""
    return np.searchsorted(np.unique(keys), keys).astype(np.int64)
