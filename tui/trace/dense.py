"""Numbers that occur, renumbered from 0 on without gaps."""

from __future__ import annotations

import numpy as np

from tui.trace.arrays import I64


def dense(values: I64) -> tuple[I64, I64]:
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
