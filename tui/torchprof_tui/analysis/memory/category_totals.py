"""Sum what is alive by category at many times at once, for the curve of a device."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.memory.categories import Category
from torchprof_tui.analysis.memory.device_memory import UNKNOWN_BYTES
from torchprof_tui.analysis.memory.memory_history import DeviceHistory
from torchprof_tui.trace.core.arrays import I64

BANDS = (*(category.label for category in Category), "not accounted for")
"""The bands of a stacked curve, from the bottom: the categories, then what the records do not explain."""

REST = len(BANDS) - 1


class CategoryTotals:
    """The bytes alive by category after any record of one device.

    Built once from running sums over the k lifetimes, so that a state costs two binary searches for each category.
    """

    def __init__(self, device: DeviceHistory) -> None:
        self.device = device
        lifetimes = device.lifetimes
        self._begins: list[tuple[I64, I64]] = []  # by category: (records ascending, bytes of all up to each)
        self._ends: list[tuple[I64, I64]] = []
        for category in Category:
            rows = np.flatnonzero(device.category == category)
            for out, at in ((self._begins, lifetimes.begin[rows]), (self._ends, lifetimes.end[rows])):
                order = np.argsort(at, kind="stable")
                total = np.concatenate([np.zeros(1, np.int64), np.cumsum(lifetimes.bytes[rows][order])])
                out.append((at[order], total))
        self._older = np.zeros(len(BANDS), np.int64)
        for part in device.older.parts:
            self._older[part.category] += part.bytes

    def sum_at(self, positions: I64) -> I64:
        """Sum what is alive after records: int64[p, bands] bytes, which sum to `allocated` in each row.

        `positions` int64[p]: indices into `DeviceMemory.records`, -1 before the first one. The last band is the rest,
        negative where the records explain more than was allocated.
        """
        memory = self.device.memory
        inside = positions >= 0
        record = np.where(inside, memory.records[np.maximum(positions, 0)], -1)
        allocated = np.where(inside, memory.allocated[np.maximum(positions, 0)], memory.base)
        sums = np.tile(self._older, (len(positions), 1))
        for category in Category:
            for sign, (at, total) in ((1, self._begins[category]), (-1, self._ends[category])):
                sums[:, category] += sign * total[np.searchsorted(at, record, side="right")]
        sums[:, REST] = allocated - sums.sum(axis=1)
        return sums


def find_highest_positions(device: DeviceHistory, edges: I64) -> I64:
    """Find the record after which most is allocated in each of w cells: int64[w], -1 before the first record.

    `edges` int64[w + 1]: ns, ascending. A cell without a record of its own has the state that it begins with, and so
    does a cell in which nothing higher follows: the peak of the trace is always the highest of its cell.
    """
    memory = device.memory
    first = np.searchsorted(memory.time, edges[:-1], side="left")
    last = np.searchsorted(memory.time, edges[1:], side="left")
    best = first.astype(np.int64) - 1
    has_records = np.flatnonzero(last > first)
    if not len(has_records):
        return best
    begin, end = int(first[has_records[0]]), int(last[has_records[-1]])
    starts = first[has_records] - begin
    values = memory.allocated[begin:end]
    highest = np.maximum.reduceat(values, starts)
    is_highest = np.flatnonzero(values == np.repeat(highest, np.diff(np.append(starts, end - begin))))
    found = begin + is_highest[np.searchsorted(is_highest, starts)]
    before = best[has_records]
    level_before = np.where(before >= 0, memory.allocated[np.maximum(before, 0)], memory.base)
    best[has_records] = np.where(highest >= level_before, found, before)
    return best


def read_reserved(device: DeviceHistory, positions: I64) -> I64:
    """Read the reserved bytes after records: int64[p], UNKNOWN_BYTES where they are not recorded."""
    known = positions >= 0
    return np.where(known, device.memory.reserved[np.maximum(positions, 0)], np.int64(UNKNOWN_BYTES))
