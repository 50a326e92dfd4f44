"""Find the distinct values of a long integer column and count them."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import I64, Array, block_slices

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
