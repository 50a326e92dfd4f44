"""Index for drawing: the events of every row by time, with sums and maxima of their durations.

Built once per trace, in the loader process, and stored beside the columns.

Drawing needs the longest event in each of ten thousand cells, and a cell holds from three to a hundred thousand events.
The values are split into blocks of 16. For each value, a 16-bit mask marks the values of its block, up to and including
itself, that are not exceeded by any value between them and it. The lowest set bit at or above a range's start is then
the position of the range's first maximum: one shift and one table look-up. For a range over several blocks, the two
partial blocks are handled so, and the whole blocks between them by the same structure over the blocks' maxima, which is
16 times smaller.

(The masks are the stack of the classical linear-time range-minimum structure, recorded at each step:
J. Fischer, V. Heun, "Theoretical and practical improvements on the RMQ-problem", 2006, after Alstrup et al.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, U8, U16
from torchprof_tui.trace.core.column_file import ColumnAllocator, allocate_in_memory
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.thread_tasks import (
    MIN_SLICE_SIZE,
    accumulate_parallel,
    run_blocks,
    run_tasks,
    take_parallel,
)

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Trace

ValueLookup = Callable[[I64], I64]

_BLOCK_BITS = 4
_BLOCK_SIZE = 1 << _BLOCK_BITS
_BUILD_CHUNK_BLOCKS = 8192  # blocks per step of the build: 1 MB of values


_BITS = (1 << np.arange(_BLOCK_SIZE)).astype(np.uint16)[:, None]

_LOWEST_BIT: U8 = np.zeros(1 << _BLOCK_SIZE, np.uint8)  # of each number; 0 for 0, which no mask equals
for _bit in range(_BLOCK_SIZE):
    _LOWEST_BIT[1 << _bit :: 2 << _bit] = _bit


@record
class RangeArgmax:
    """Index over an array of values, without the values: 2.4 bytes per value.

    `masks` uint16: the masks of the values, then those of each level of block maxima. `best` int32: position (in the
    values) of the block maxima, for all levels but the first, in the same order.
    """

    masks: U16
    best: I32

    @classmethod
    def build(cls, values: I64) -> RangeArgmax:
        """Build the index. `values`: int64[n], n < 2**31."""
        masks: list[U16] = []
        bests: list[I32] = []
        level = values
        positions: I32 | None = None
        while True:
            masks.append(_build_masks(level))
            blocks = _count_blocks(len(level))
            if blocks <= 1:
                break
            starts = np.arange(blocks, dtype=np.int64) << _BLOCK_BITS
            lasts = np.minimum(starts + (_BLOCK_SIZE - 1), len(level) - 1)
            best = starts + _LOWEST_BIT[masks[-1][lasts]]
            positions = best.astype(np.int32) if positions is None else positions[best]
            bests.append(positions)
            level = level[best]
        return cls(np.concatenate(masks), np.concatenate(bests) if bests else np.empty(0, dtype=np.int32))

    def query(self, value: ValueLookup, size: int, first: I64, last: I64) -> I64:
        """Return the position of the first maximum in `first[i]:last[i]` for each i: int64[k]. No range may be empty.

        `value(positions)` returns the values that the index was built over; `size`: their number.
        """
        return self._query(value, first, last - 1, size, 0, -1)

    def _query(self, value: ValueLookup, left: I64, right: I64, size: int, masks_at: int, best_at: int) -> I64:
        """Query ranges left..right (both inclusive) on one level of `size` entries.

        `masks_at`, `best_at`: offset of this level in `masks` and `best` (-1: the level of the values themselves).
        """
        split = (left >> _BLOCK_BITS) != (right >> _BLOCK_BITS)
        start = np.where(split, (right >> _BLOCK_BITS) << _BLOCK_BITS, left)
        position = self._query_within_block(start, right, masks_at, best_at)
        spanning = np.flatnonzero(split)  # ranges over more than one block
        if not len(spanning):
            return position
        left, right = left[spanning], right[spanning]
        best = _choose_first_max(
            value, self._query_within_block(left, left | (_BLOCK_SIZE - 1), masks_at, best_at), position[spanning]
        )
        between_left, between_right = (left >> _BLOCK_BITS) + 1, (right >> _BLOCK_BITS) - 1
        inner = np.flatnonzero(between_left <= between_right)
        if len(inner):
            deeper = self._query(
                value,
                between_left[inner],
                between_right[inner],
                _count_blocks(size),
                masks_at + size,
                0 if best_at < 0 else best_at + size,
            )
            best[inner] = _choose_first_max(value, best[inner], deeper)
        position[spanning] = best
        return position

    def _query_within_block(self, left: I64, right: I64, masks_at: int, best_at: int) -> I64:
        """Query ranges that each lie within one block."""
        mask = self.masks[right + masks_at] >> (left & (_BLOCK_SIZE - 1)).astype(np.uint16)
        entry: I64 = left + _LOWEST_BIT[mask]
        return entry if best_at < 0 else self.best[entry + best_at].astype(np.int64)


def _count_blocks(size: int) -> int:
    return (size + _BLOCK_SIZE - 1) >> _BLOCK_BITS


def _choose_first_max(value: ValueLookup, one: I64, other: I64) -> I64:
    """Return, for each pair of positions, that of the greater value; of equal values the lower position."""
    a, b = value(one), value(other)
    position: I64 = np.where((b > a) | ((b == a) & (other < one)), other, one)
    return position


def _build_masks(values: I64) -> U16:
    """Build uint16[n] (see the module): bit j of the mask of r is set if value j >= every value after it up to r."""
    size = len(values)
    out = np.empty(_count_blocks(size) << _BLOCK_BITS, dtype=np.uint16)

    def build_chunk(first: int) -> None:
        part = values[first : first + (_BUILD_CHUNK_BLOCKS << _BLOCK_BITS)]
        padding = -len(part) % _BLOCK_SIZE
        if padding:
            part = np.concatenate([part, np.full(padding, np.iinfo(np.int64).min)])
        columns = np.ascontiguousarray(part.reshape(-1, _BLOCK_SIZE).T)
        masks = np.zeros((_BLOCK_SIZE, columns.shape[1]), dtype=np.uint16)
        masks[0] = 1
        for index in range(1, _BLOCK_SIZE):
            # All earlier values at once: with several threads, each call of numpy costs a wait for the GIL.
            bits = np.multiply(columns[:index] >= columns[index], _BITS[:index], dtype=np.uint16)
            np.bitwise_or.reduce(bits, axis=0, out=masks[index])
            masks[index] &= masks[index - 1]
            masks[index] |= _BITS[index]
        out[first : first + masks.size] = masks.T.ravel()

    chunks = range(0, len(out), _BUILD_CHUNK_BLOCKS << _BLOCK_BITS)
    run_tasks([partial(build_chunk, first) for first in chunks], 1 if size < MIN_SLICE_SIZE else None)
    return out[:size]


@record
class RowIndex:
    """n events by (row of the whole trace, start): 18.4 bytes per event in addition to `order`, a column of the trace.

    A *position* is an index in this order; the events of row r are positions `first[r]:first[r + 1]`. Within a row no
    two events overlap; an event of zero duration counts as 1 ns, here and wherever events are drawn.
    """

    order: I32  # [n] position -> event: `trace.row_order`
    first: I64  # [rows + 1]: `trace.row_first`
    starts: I64  # [n] ns, ascending within each row
    sums: I64  # [n + 1] ns: cumulative durations of all positions before, over all rows
    masks: U16  # RangeArgmax over the durations
    best: I32

    @classmethod
    def build(cls, trace: Trace, allocate: ColumnAllocator = allocate_in_memory) -> RowIndex:
        """Build the index of all rows: about 20 ms for a million events. `allocate`: for the long columns."""
        order = trace.row_order
        sums = allocate("index.sums", len(order) + 1, np.int64)
        sums[0] = 0
        lengths = take_parallel(trace.duration, order, sums[1:])
        run_blocks(lambda block: np.maximum(lengths[block], 1, out=lengths[block]), len(lengths))
        longest = RangeArgmax.build(lengths)
        # The sum over all rows may overflow int64; differences within a row are right nevertheless.
        accumulate_parallel(np.add, lengths)
        starts = take_parallel(trace.start, order, allocate("index.starts", len(order), np.int64))
        return cls(order, trace.row_first, starts, sums, longest.masks, longest.best)

    @property
    def rows(self) -> int:
        return len(self.first) - 1

    def find_longest(self, first: I64, last: I64) -> I64:
        """Return the position of the longest event (the first of equals) in each range; no range may be empty."""
        return RangeArgmax(self.masks, self.best).query(self.durations_at, len(self.order), first, last)

    def durations_at(self, positions: I64) -> I64:
        """Return durations in ns, at least 1."""
        return self.sums[positions + 1] - self.sums[positions]
