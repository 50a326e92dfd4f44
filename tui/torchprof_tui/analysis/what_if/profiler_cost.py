"""Estimate a step without what the profiler adds to it: time on the CPU for each op that it records and each launch.

The costs differ between machines and programs, and a trace does not tell them. So this is the other end of a range: a
forecast that holds for the step as recorded and for the step without these costs holds for those in between.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.critical_path.segments import SegmentKind
from torchprof_tui.analysis.what_if.step_model import RankModel
from torchprof_tui.trace.core.arrays import F64, I64, is_in, sorted_unique
from torchprof_tui.trace.model.event_kind import Kind

OP_COST = 1_700  # ns for each op with its shapes, measured around ops that launch nothing (benchmarks/fault_bench.md)
LAUNCH_COST = 6_000
"""ns for each launch that is followed to its kernel, measured likewise: 6.6 to 8.7 µs, and less in whole steps."""

_BEFORE = 0.7  # share of an op's cost that comes before its recorded start; the rest comes after its end
LEAST_LEFT = 0.2  # of any time on the CPU at least this is the program's


def find_unprofiled_share(rank: RankModel) -> F64:
    """Find which part of each piece of CPU time would be left without the profiler: float64[p], 0..1."""
    pieces, trace, window = rank.pieces, rank.trace, rank.window
    cost = np.zeros(len(pieces))
    for lane in sorted_unique(pieces.lane).tolist():
        own = np.flatnonzero(pieces.lane == lane)
        own = own[np.argsort(pieces.start[own], kind="stable")]
        rows = slice(trace.lanes[lane].first, trace.lanes[lane].last)
        start, kind = trace.start[rows], trace.kind[rows]
        ops = np.flatnonzero((kind == Kind.OP) & (start >= window.start) & (start < window.end))
        begin = start[ops]
        end = begin + trace.duration[rows][ops]
        for time, part in ((begin - 1, _BEFORE), (end, 1 - _BEFORE)):
            inside = _find_piece(pieces.start[own], pieces.time[own], time)
            cost += np.bincount(own[inside], minlength=len(cost)) * (part * OP_COST)
    calls = np.flatnonzero(is_in(pieces.event, window.work.launch[window.work.is_launched]))
    _, first = np.unique(pieces.event[calls], return_index=True)
    cost[calls[first]] += LAUNCH_COST
    left = np.maximum(pieces.time - cost, LEAST_LEFT * pieces.time)
    share: F64 = np.divide(left, pieces.time, out=np.ones(len(pieces)), where=pieces.time > 0)
    share[pieces.kind == SegmentKind.BLOCKING] = 1
    return share


def _find_piece(start: I64, length: I64, time: I64) -> I64:
    """Find the pieces, by start, in which these times are: indexes, without those that are in none."""
    index = np.searchsorted(start, time, side="right") - 1
    inside = index >= 0
    index, time = index[inside], time[inside]
    return index[time < start[index] + length[index]].astype(np.int64)
