"""Arrays: type aliases, and operations on long columns in cache-sized blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
U32 = npt.NDArray[np.uint32]
U16 = npt.NDArray[np.uint16]
U8 = npt.NDArray[np.uint8]
I8 = npt.NDArray[np.int8]
F64 = npt.NDArray[np.float64]
F32 = npt.NDArray[np.float32]
Bool = npt.NDArray[np.bool_]
Array = npt.NDArray[np.generic]

NONE = -1  # in columns of indexes: no such row

_BLOCK_SIZE = 1 << 17

_MAX_TABLE_RATIO = 6  # range of integers up to which a table of flags pays, as a multiple of how many there are


def take_chunked(
    column: npt.NDArray[Any], indices: npt.NDArray[np.integer[Any]], out: npt.NDArray[Any] | None = None
) -> npt.NDArray[Any]:
    """Return `column[indices]` (one-dimensional), block by block, because numpy first converts all indices to int64.

    `out`: array to write to; may be `indices` itself if that is int32.
    """
    out = np.empty(len(indices), column.dtype) if out is None else out
    for block in block_slices(len(indices)):
        # All indices are in range; with an `out`, mode "raise" would buffer a copy.
        column.take(indices[block], out=out[block], mode="clip")
    return out


def flatnonzero_int32(mask: Bool, out: I32 | None = None) -> I32:
    """Return np.flatnonzero(mask) as int32, in half of its memory. `out`: array to write to."""
    out = np.empty(int(np.count_nonzero(mask)), np.int32) if out is None else out
    size = 0
    for block in block_slices(len(mask)):
        indices = np.flatnonzero(mask[block])
        np.add(indices, block.start, out=out[size : size + len(indices)], casting="unsafe")
        size += len(indices)
    return out


def sorted_unique(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the distinct values in ascending order, by sorting them unless they are in order.

    np.unique hashes the values first, which is slower for many of them and holds the GIL: 45 ms for a million, during
    which no frame is drawn. Its first call also imports numpy.ma, for 12 ms.
    """
    ordered = np.ravel(values)
    if not (ordered[1:] >= ordered[:-1]).all():
        ordered = np.sort(ordered)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def sum_by_index(index: npt.NDArray[np.integer[Any]], values: npt.NDArray[Any], size: int) -> I64:
    """Sum integers by index: int64[size]. Sums in float64 are exact up to 2**53: a hundred days of ns, 8 PiB."""
    return np.bincount(index, weights=values, minlength=size).astype(np.int64)


def argsort_stable(values: I64) -> I64:
    """Return the indexes that sort int64[n], equal values in their order.

    Where both fit into 63 bits, each value is packed with its index: numpy sorts plain numbers several times as fast as
    it finds their order. Of values in few sorted runs np.argsort is faster.
    """
    if len(values) < 2:
        return np.arange(len(values))
    first, last = int(values.min()), int(values.max())
    bits = len(values).bit_length()
    if (last - first).bit_length() + bits > 63:
        return np.argsort(values, kind="stable")
    packed: I64 = values - np.int64(first)
    packed <<= np.int64(bits)
    packed |= np.arange(len(values))
    packed.sort()
    packed &= np.int64((1 << bits) - 1)
    return packed


def is_in(values: npt.NDArray[np.integer[Any]], chosen: npt.NDArray[np.integer[Any]] | Sequence[int]) -> Bool:
    """Return whether each of these integers is one of `chosen`, both signed or of one byte: bool, as `values`.

    A table of flags where they are near each other, else a search among the sorted ones. np.isin sorts or hashes both,
    which takes longer and holds the GIL, and its np.unique imports numpy.ma for 8 ms.
    """
    chosen = np.asarray(chosen)
    if not len(values) or not len(chosen):
        return np.zeros(np.shape(values), np.bool_)
    if values.dtype.itemsize == 1:
        flags = np.zeros(256, np.bool_)
        flags[chosen.astype(np.uint8)] = True
        known: Bool = flags[values.view(np.uint8)]
        return known
    first, last = int(chosen.min()), int(chosen.max())
    if last - first <= _MAX_TABLE_RATIO * (len(values) + len(chosen)):
        flags = np.zeros(last - first + 3, np.bool_)  # the first and the last stand for the values before and after
        flags[chosen - np.int64(first - 1)] = True
        found: Bool = flags[np.clip(values, first - 1, last + 1) - np.int64(first - 1)]
        return found
    ordered = np.sort(chosen)
    nearest: Bool = ordered[np.minimum(ordered.searchsorted(values), len(ordered) - 1)] == values
    return nearest


def find_largest(values: npt.NDArray[Any], count: int) -> I64:
    """Find the indexes of the largest values, largest first, equal ones in their order: int64[min(count, n)]."""
    candidates = np.arange(len(values))
    if len(values) > count > 0:
        candidates = np.flatnonzero(values >= np.partition(values, len(values) - count)[len(values) - count])
    return candidates[np.argsort(-values[candidates], kind="stable")][:count]


def find_percentiles(values: npt.NDArray[Any], percents: Sequence[float]) -> F64:
    """Find percentiles along the last axis, between two values by interpolation: float64[len(percents), ...].

    As np.percentile, whose first call imports numpy.ma for 12 ms.
    """
    ordered = np.sort(values, axis=-1)
    found = np.empty((len(percents), *ordered.shape[:-1]))
    for number, percent in enumerate(percents):
        place = (ordered.shape[-1] - 1) * (percent / 100)
        before = int(place)
        weight = place - before
        low, high = ordered[..., before], ordered[..., min(before + 1, ordered.shape[-1] - 1)]
        found[number] = low + (high - low) * weight if weight < 0.5 else high - (high - low) * (1 - weight)
    return found


def find_median(values: npt.ArrayLike) -> float:
    """Find the median of values of any shape, NaN of none.

    As np.median, whose first call imports numpy.ma for 12 ms.
    """
    column = np.ravel(values)
    if not len(column):
        return float("nan")
    middle = ((len(column) - 1) // 2, len(column) // 2)
    low, high = np.partition(column, middle)[list(middle)].tolist()
    return float(low + high) / 2


def number_distinct(rows: npt.NDArray[np.integer[Any]], size: int) -> tuple[I64, I32]:
    """Number the distinct rows 0..size-1: (they, ascending; the number of each row, int32[k]).

    What `np.unique(rows, return_inverse=True)` returns, without a sort.
    """
    is_present = np.zeros(size, np.bool_)
    is_present[rows] = True
    distinct = np.flatnonzero(is_present)
    number = np.empty(size, np.int32)
    number[distinct] = np.arange(len(distinct), dtype=np.int32)
    return distinct, number[rows]


def keep_freed_memory() -> None:
    """Make the C library keep the memory of freed temporaries for the next ones, up to 60 MB.

    glibc returns blocks to the kernel that are as large as the largest one freed so far, of up to 32 MB, and twice as
    much at the end of its heap. What is taken anew costs a page fault for every 4 KiB: a tenth of a check's time.
    """
    np.empty(_LARGEST_KEPT, np.uint8)  # allocated and freed, never written to


_LARGEST_KEPT = 30 << 20


def block_slices(size: int) -> Iterator[slice]:
    """Yield slices that cover a column of this size.

    Temporaries of one block reuse the memory of the block before: the first write to fresh memory costs more than most
    arithmetic.
    """
    for begin in range(0, size, _BLOCK_SIZE):
        yield slice(begin, min(begin + _BLOCK_SIZE, size))


_MAX_CHUNKED_SIZE = 1 << 16


def factorize(values: I64) -> tuple[I64, I64]:
    """Return (codes, uniques): int64[n] index of each value in `uniques`, and the distinct values in ascending order.

    Uses a table over the range of the values if it is at most twice as long as they are, else np.unique.
    """
    if not len(values):
        return values, values
    low = int(values.min())
    size = int(values.max()) - low + 1
    if size > 2 * len(values):
        uniques, codes = np.unique(values, return_inverse=True)
        return codes.astype(np.int64), uniques
    shifted = values - low
    table = np.zeros(size, np.int64)
    table[shifted] = 1
    uniques = np.flatnonzero(table) + low
    if len(uniques) == size:
        return shifted, uniques
    np.cumsum(table, out=table)
    table -= 1
    return table[shifted], uniques


def bincount_chunked(values: Array, size: int) -> I64:
    """Count each of the values 0..size-1: int64[size]. Block by block, because np.bincount converts values to int64."""
    if size > _MAX_CHUNKED_SIZE:
        return np.bincount(values, minlength=size)
    counts = np.zeros(size, np.int64)
    for block in block_slices(len(values)):
        counts += np.bincount(values[block], minlength=size)
    return counts


ArrayFinisher = Callable[[npt.NDArray[Any]], object]  # changes a filled array in place

ArrayFiller = Callable[[Array, ArrayFinisher | None], None]
"""Notes an array to fill with the data of another process, and what to do with it then; arrays must be noted in the
order in which they are sent. They are filled later, so the columns that they are views of must not grow until then."""
