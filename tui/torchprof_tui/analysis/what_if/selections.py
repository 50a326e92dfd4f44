"""Select what happens inside events of threads."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.analysis.what_if.step_model import RankModel
from torchprof_tui.trace.core.arrays import I64, Bool


def select_inside(rank: RankModel, rows: I64) -> tuple[Bool, Bool]:
    """Select what happens inside events of threads: pieces of CPU time bool[p], and the work launched there bool[m]."""
    trace, work = rank.trace, rank.window.work
    pieces, launched = np.zeros(len(rank.pieces), np.bool_), np.zeros(len(work), np.bool_)
    launch_lane = np.where(work.is_launched, trace.lane[work.launch], -1)
    for lane in np.unique(trace.lane[rows]).tolist():
        own = rows[trace.lane[rows] == lane]
        inside = union(trace.start[own], trace.start[own] + trace.duration[own])
        for chosen, lanes, times in (
            (pieces, rank.pieces.lane, rank.pieces.start),
            (launched, launch_lane, work.launch_start),
        ):
            index = np.searchsorted(inside.starts, times, side="right") - 1
            chosen |= (lanes == lane) & (index >= 0) & (times < inside.ends[np.maximum(index, 0)])
    return pieces, launched
