"""Find the events that overlap a time range without a look at all of them."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import I64

_BLOCK_SIZE = 512
"""Events of a block. Larger blocks hold more events outside the range, smaller ones are more blocks to compare."""


class OverlapIndex:
    """The first start and the last end of each block of events, so that whole blocks outside a range are skipped.

    `start`, `end`: int64[n], ns, in any order; a range costs little where events of like times are near each other, as
    they are by lane and start. An event without duration counts as 1 ns.
    """

    def __init__(self, start: I64, end: I64) -> None:
        self._start, self._end = start, end
        blocks = np.arange(0, len(start), _BLOCK_SIZE)
        self._first = np.minimum.reduceat(start, blocks) if len(start) else start
        self._last = np.maximum(np.maximum.reduceat(end, blocks), self._last_start(blocks)) if len(start) else end

    def _last_start(self, blocks: I64) -> I64:
        last: I64 = np.maximum.reduceat(self._start, blocks) + 1
        return last

    def find(self, t0: int, t1: int) -> I64:
        """Find the events that overlap [t0, t1): their indexes, ascending, int64[k]."""
        blocks = np.flatnonzero((self._first < t1) & (self._last > t0))
        if not len(blocks):
            return blocks
        if 2 * len(blocks) > len(self._first):  # most blocks: fewer steps than block by block
            first, last = int(blocks[0]) * _BLOCK_SIZE, (int(blocks[-1]) + 1) * _BLOCK_SIZE
            start, end = self._start[first:last], self._end[first:last]
            found: I64 = np.flatnonzero((start < t1) & (np.maximum(end, start + 1) > t0))
            found += first
            return found
        indexes = (blocks[:, None] * _BLOCK_SIZE + np.arange(_BLOCK_SIZE)).ravel()
        if blocks[-1] == len(self._first) - 1:
            indexes = indexes[: len(indexes) - len(self._first) * _BLOCK_SIZE + len(self._start)]
        start, end = self._start[indexes], self._end[indexes]
        overlapping: I64 = indexes[(start < t1) & (np.maximum(end, start + 1) > t0)]
        return overlapping
