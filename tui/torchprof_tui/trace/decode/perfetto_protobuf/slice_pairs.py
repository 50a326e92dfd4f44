"""Pair the begins and ends of slices in the files that torch writes: all begins of a group of slices, then all ends.

Perfetto itself pairs them by time, as a stack, and so torch shortens what overlaps on one stream. But its own order
says which end belongs to which begin, at equal times too: the k-th end of a run is that of the run's k-th begin.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, U8
from torchprof_tui.trace.model.raw_events import NO_TIME


def pair_by_order(phase: U8, time: I64, track: I32) -> tuple[I64, I64] | None:
    """Return the ordinals of begins and of their ends; None for a file that was not written in this order.

    A file in order of time never was: there the innermost slice ends first.
    """
    is_begin = phase == ord("B")
    marks = np.flatnonzero(is_begin | (phase == ord("E")))
    if not len(marks) or len(marks) % 2:
        return None
    opens = is_begin[marks]
    begin, end = marks[opens], marks[~opens]
    bounds = np.append(np.flatnonzero(np.diff(opens, prepend=not opens[0])), len(marks))
    sizes = np.diff(bounds)
    if not opens[0] or len(sizes) % 2 or not np.array_equal(sizes[::2], sizes[1::2]):
        return None
    if (
        not np.array_equal(track[begin], track[end])
        or (time[end] < time[begin]).any()
        or (time[marks] == NO_TIME).any()
    ):
        return None
    return (begin, end) if _goes_back(time[marks], track[marks]) else None


def _goes_back(time: I64, track: I32) -> bool:
    """Tell whether time goes back on any track."""
    if ((np.diff(time) < 0) & (track[1:] == track[:-1])).any():  # where a run of ends begins, without sorting
        return True
    order = np.argsort(track, kind="stable")
    time, track = time[order], track[order]
    return bool(((np.diff(time) < 0) & (track[1:] == track[:-1])).any())
