"""Names for the array types that the columns are made of, and how to go through long ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
U16 = npt.NDArray[np.uint16]
U8 = npt.NDArray[np.uint8]
F64 = npt.NDArray[np.float64]
F32 = npt.NDArray[np.float32]
Bool = npt.NDArray[np.bool_]
Array = npt.NDArray[np.generic]

_BLOCK_SIZE = 1 << 16


def take_chunked(
    column: npt.NDArray[Any], indices: npt.NDArray[np.integer[Any]], out: npt.NDArray[Any] | None = None
) -> npt.NDArray[Any]:
    """`column[which]`, one-dimensional: numpy makes 64 bits of each index first, here of a few at a time. `into`: where
    the answer is to lie; it may be `which` itself, where that has 32 bits."""
    out = np.empty(len(indices), column.dtype) if out is None else out
    for block in block_slices(len(indices)):
        # All are inside, and other modes take a copy.
        column.take(indices[block], out=out[block], mode="clip")
    return out


def flatnonzero_int32(mask: Bool, out: I32 | None = None) -> I32:
    """Where it is true: np.flatnonzero in half of the memory. `into`: where the answer is to lie."""
    found = np.empty(int(np.count_nonzero(mask)), np.int32) if out is None else out
    at = 0
    for block in block_slices(len(mask)):
        some = np.flatnonzero(mask[block])
        np.add(some, block.start, out=found[at : at + len(some)], casting="unsafe")
        at += len(some)
    return found


def sorted_unique(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Each value once, ascending: np.unique, which hashes them first. Of many values that takes longer than to sort
    them, and the interpreter's lock is held meanwhile: 45 ms of a million, for which no frame is drawn."""
    ordered = np.sort(values, axis=None)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def block_slices(size: int) -> Iterator[slice]:
    """A column of this size, piece by piece: what is made of a piece lies in memory that the one before has used. To
    write to fresh memory costs more than most arithmetic."""
    for begin in range(0, size, _BLOCK_SIZE):
        yield slice(begin, min(begin + _BLOCK_SIZE, size))
