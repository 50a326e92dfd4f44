"""Align the clocks of ranks by the wall clock of their recordings, or by the ends of collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import F64, I64, NONE, Bool
from torchprof_tui.trace.model.ranks import AlignmentMethod, Clock, MatchedCollectives
from torchprof_tui.trace.model.trace import Trace

MAX_CLOCK_ERROR = 1_000_000
"""ns. A collective ends on all ranks within some µs; clocks that should be equal and differ by more than this belong to
several machines, and the collectives are more accurate."""

_MIN_EPOCH_TIME = 10**18
"""ns. Times beyond this (2001) without a base count from the Unix epoch; below, from when the machine was started."""

_DAY = 86_400 * 10**9  # ns. By the wall clock, recordings further apart than this are not of one run.
_ERROR_QUANTILE = 0.9  # share of the collectives that end within the reported error


@dataclass(slots=True)
class _Alignment:
    """What is added to each rank's times, float64[r] ns, how it was determined, and whether it is final, bool[r]."""

    shift: F64
    methods: list[AlignmentMethod]
    is_aligned: Bool


def align_clocks(traces: Sequence[Trace], matched: MatchedCollectives) -> list[Clock]:
    """Compute for each rank what to add to its times, so that the earliest of all begins at 0."""
    ends, known = _collect_end_times(traces, matched)
    alignment = _align_by_wall_clock(traces, ends, known)
    _align_by_collectives(alignment, ends, known)
    for rank in np.flatnonzero(~alignment.is_aligned).tolist():
        if alignment.methods[rank] is AlignmentMethod.NONE:  # begins with the aligned ranks
            alignment.shift[rank] = alignment.shift[alignment.is_aligned].min()
    return _build_clocks(alignment, ends, known)


def _align_by_wall_clock(traces: Sequence[Trace], ends: F64, known: Bool) -> _Alignment:
    """Align the ranks whose clocks are the same one; final for all ranks where no collective can correct it."""
    begin = np.array([trace.metadata.base_time + trace.origin for trace in traces], np.int64)
    has_events = np.array([len(trace) > 0 for trace in traces])
    if has_events.any():
        begin[~has_events] = begin[has_events].min()  # a rank that recorded nothing has no time to compare
    is_one_run = int(begin.max() - begin.min()) < _DAY
    is_epoch = int(begin.min()) > _MIN_EPOCH_TIME
    bases = {trace.metadata.base_time for trace in traces if len(trace)} or {0}
    # Relative to the earliest these are small numbers, exact as floats.
    wall = (begin - begin.min()).astype(np.float64)
    unshifted = np.zeros(len(traces))
    if is_one_run and len(bases) == 1 and (bases != {0} or is_epoch):
        return _Alignment(wall, [AlignmentMethod.BASE] * len(traces), _find_agreeing_ranks(ends + wall, known))
    if known.any():
        # Align all ranks to the one that has most collectives.
        reference = int(known.sum(axis=0).argmax())
        methods = [AlignmentMethod.NONE] * len(traces)
        methods[reference] = AlignmentMethod.COLLECTIVES
        return _Alignment(unshifted, methods, np.arange(len(traces)) == reference)
    everything = np.ones(len(traces), np.bool_)
    if is_one_run and is_epoch:
        return _Alignment(wall, [AlignmentMethod.WALL] * len(traces), everything)
    return _Alignment(unshifted, [AlignmentMethod.NONE] * len(traces), everything)


def _align_by_collectives(alignment: _Alignment, ends: F64, known: Bool) -> None:
    """Align the remaining ranks one by one, as far as they share collectives with those that are aligned."""
    shift, is_aligned = alignment.shift, alignment.is_aligned
    while not is_aligned.all():
        is_shared = known[:, is_aligned].any(axis=1)
        counts: I64 = np.count_nonzero(known[is_shared], axis=0)
        counts[is_aligned] = NONE
        rank = int(counts.argmax())  # the one that shares most collectives with the aligned ones
        shared = known[:, rank] & is_shared
        if not shared.any():
            break
        aligned_ends = _row_medians((ends + shift)[shared][:, is_aligned], known[shared][:, is_aligned])
        shift[rank] = np.round(np.median(aligned_ends - ends[shared, rank]))
        is_aligned[rank] = True
        alignment.methods[rank] = AlignmentMethod.COLLECTIVES


def _collect_end_times(traces: Sequence[Trace], matched: MatchedCollectives) -> tuple[F64, Bool]:
    """Collect the end times of the collectives that end on all ranks at once.

    float64[m, r] ns on each rank's own clock, and bool[m, r]: which ranks have the collective.
    """
    events = matched.events[matched.is_synchronizing]
    known = events >= 0
    ends = np.zeros(events.shape, np.float64)
    for rank, trace in enumerate(traces):
        rank_events = events[known[:, rank], rank]
        ends[known[:, rank], rank] = trace.start[rank_events] + trace.duration[rank_events]
    return ends, known


def _find_agreeing_ranks(ends: F64, known: Bool) -> Bool:
    """Find ranks whose collectives end when those of most others do: bool[r]. A rank without any cannot disagree."""
    agrees = np.ones(known.shape[1], np.bool_)
    consensus = _row_medians(ends, known)
    for rank in range(len(agrees)):
        rows = known[:, rank]
        if rows.any():
            agrees[rank] = abs(float(np.median(ends[rows, rank] - consensus[rows]))) <= MAX_CLOCK_ERROR
    return agrees


def _row_medians(values: F64, known: Bool) -> F64:
    """Compute the median of each row's known values: float64[k]; every row must have one."""
    if not len(values):
        return np.zeros(0)
    medians: F64 = np.nanmedian(np.where(known, values, np.nan), axis=1)
    return medians


def _build_clocks(alignment: _Alignment, ends: F64, known: Bool) -> list[Clock]:
    """Build the clocks, with the error that remains after the alignment."""
    shift = alignment.shift
    shifts: I64 = np.round(shift - shift.min()).astype(np.int64) if len(shift) else np.zeros(0, np.int64)
    is_shared = known.sum(axis=1) > 1
    ends, known = (ends + shifts)[is_shared], known[is_shared]
    consensus = _row_medians(ends, known)
    clocks = []
    for rank, method in enumerate(alignment.methods):
        rows = known[:, rank]
        errors = np.abs(ends[rows, rank] - consensus[rows])
        error = int(np.quantile(errors, _ERROR_QUANTILE, method="higher")) if len(errors) else None
        clocks.append(
            Clock(int(shifts[rank]), method, None if method is AlignmentMethod.NONE else error, int(rows.sum()))
        )
    return clocks
