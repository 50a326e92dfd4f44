"""Which of few numbers occur in a long column, and how often."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import I64, Array, block_slices

_MAX_CHUNKED_SIZE = 1 << 16


def factorize(values: I64) -> tuple[I64, I64]:
    """The place of each in what occurs, int64[n], and what occurs, ascending: through a table where that is no longer
    than the values are."""
    if not len(values):
        return values, values
    low = int(values.min())
    size = int(values.max()) - low + 1
    if size > 2 * len(values):
        known, places = np.unique(values, return_inverse=True)
        return places.astype(np.int64), known
    place = values - low
    occurs = np.zeros(size, np.int64)
    occurs[place] = 1
    known = np.flatnonzero(occurs) + low
    if len(known) == size:
        return place, known
    np.cumsum(occurs, out=occurs)
    occurs -= 1
    return occurs[place], known


def bincount_chunked(values: Array, size: int) -> I64:
    """int64[size]: how often each of the numbers below `size` occurs. (`np.bincount` makes 64 bits of each value.)"""
    if size > _MAX_CHUNKED_SIZE:
        return np.bincount(values, minlength=size)
    counts = np.zeros(size, np.int64)
    for block in block_slices(len(values)):
        counts += np.bincount(values[block], minlength=size)
    return counts
