"""The place of the greatest value in any range of a large array, in a few vector operations for many ranges at once.

A screen asks for the longest event in each of ten thousand cells, and a cell holds from three to a hundred
thousand events. Blocks of 16 values: for each value a 16-bit mask says which values of its block, up to and
with it, exceed everything between them and it. The lowest bit at or above a range's start is then the place
of the range's first maximum -- one shift and one table look-up. Ranges over several blocks take the two
partial blocks so, and what lies between from the same structure over the blocks' maxima, 16 times smaller.

(The masks are the stack of the classical linear-time range-minimum structure, written down at each step:
J. Fischer, V. Heun, "Theoretical and practical improvements on the RMQ-problem", 2006, after Alstrup et al.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, U8, U16

ValueLookup = Callable[[I64], I64]

_BLOCK_BITS = 4
_BLOCK_SIZE = 1 << _BLOCK_BITS
_BUILD_CHUNK_BLOCKS = 4096  # blocks worked on at once while building: 512 KB of values stay in the processor's cache


def _build_lowest_bit_table() -> U8:
    """uint8[65536]: the place of each number's lowest set bit (0 for 0, which no mask is)."""
    table = np.zeros(1 << _BLOCK_SIZE, dtype=np.uint8)
    for bit in range(_BLOCK_SIZE):
        table[1 << bit :: 2 << bit] = bit
    return table


_LOWEST_BIT = _build_lowest_bit_table()


@dataclass(frozen=True, slots=True)
class RangeArgmax:
    """Built once over `values`, which it does not keep: 2.4 bytes a value.

    `masks` uint16: the masks of the values, then of the blocks' maxima, then of those blocks' …;
    `best` int32: the places (in the values) of the blocks' maxima, all levels but the first, in the same order.
    """

    masks: U16
    best: I32

    @classmethod
    def build(cls, values: I64) -> RangeArgmax:
        """`values` int64[n], n < 2**31."""
        masks: list[U16] = []
        bests: list[I32] = []
        level = values
        places: I32 | None = None
        while True:
            masks.append(_build_masks(level))
            blocks = _count_blocks(len(level))
            if blocks <= 1:
                break
            starts = np.arange(blocks, dtype=np.int64) << _BLOCK_BITS
            lasts = np.minimum(starts + (_BLOCK_SIZE - 1), len(level) - 1)
            best = starts + _LOWEST_BIT[masks[-1][lasts]]
            places = best.astype(np.int32) if places is None else places[best]
            bests.append(places)
            level = level[best]
        return cls(np.concatenate(masks), np.concatenate(bests) if bests else np.empty(0, dtype=np.int32))

    def query(self, value: ValueLookup, size: int, first: I64, last: I64) -> I64:
        """The place of the first maximum among places `first[i]:last[i]` for each i: int64[k]. No range may be empty.

        `value(places)` gives the values that this was built over, `size` says how many there were.
        """
        return self._query(value, first, last - 1, size, 0, -1)

    def _query(self, value: ValueLookup, left: I64, right: I64, size: int, masks_at: int, best_at: int) -> I64:
        """Ranges left..right (both inside) over one level of `size` entries.

        `masks_at`, `best_at`: where this level lies in `masks` and `best` (-1: the values themselves).
        """
        split = (left >> _BLOCK_BITS) != (right >> _BLOCK_BITS)
        start = np.where(split, (right >> _BLOCK_BITS) << _BLOCK_BITS, left)
        place = self._query_within_block(start, right, masks_at, best_at)
        where = np.flatnonzero(split)
        if not len(where):
            return place
        left, right = left[where], right[where]
        found = _choose_first_max(
            value, self._query_within_block(left, left | (_BLOCK_SIZE - 1), masks_at, best_at), place[where]
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
            found[inner] = _choose_first_max(value, found[inner], deeper)
        place[where] = found
        return place

    def _query_within_block(self, left: I64, right: I64, masks_at: int, best_at: int) -> I64:
        """Ranges that lie in one block each."""
        mask = self.masks[right + masks_at] >> (left & (_BLOCK_SIZE - 1)).astype(np.uint16)
        entry: I64 = left + _LOWEST_BIT[mask]
        return entry if best_at < 0 else self.best[entry + best_at].astype(np.int64)


def _count_blocks(size: int) -> int:
    return (size + _BLOCK_SIZE - 1) >> _BLOCK_BITS


def _choose_first_max(value: ValueLookup, one: I64, other: I64) -> I64:
    """Of two places each, the one of the greater value; of equals the earlier place."""
    a, b = value(one), value(other)
    place: I64 = np.where((b > a) | ((b == a) & (other < one)), other, one)
    return place


def _build_masks(values: I64) -> U16:
    """uint16[n], see the module: bit j of the mask of r is set where value j >= every value after it up to r."""
    size = len(values)
    out = np.empty(_count_blocks(size) << _BLOCK_BITS, dtype=np.uint16)
    for first in range(0, len(out), _BUILD_CHUNK_BLOCKS << _BLOCK_BITS):
        part = values[first : first + (_BUILD_CHUNK_BLOCKS << _BLOCK_BITS)]
        short = -len(part) % _BLOCK_SIZE
        if short:
            part = np.concatenate([part, np.full(short, np.iinfo(np.int64).min)])
        columns = np.ascontiguousarray(part.reshape(-1, _BLOCK_SIZE).T)
        masks = np.zeros((_BLOCK_SIZE, columns.shape[1]), dtype=np.uint16)
        for place in range(_BLOCK_SIZE):
            kept = masks[place]
            for earlier in range(place):
                kept |= (columns[earlier] >= columns[place]).astype(np.uint16) << np.uint16(earlier)
            if place:
                kept &= masks[place - 1]
            kept |= np.uint16(1 << place)
        out[first : first + masks.size] = masks.T.ravel()
    return out[:size]
