"""The clocks of several ranks brought together: by the time that they share, else by the collectives they all end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchprof_tui.trace.core.arrays import F64, I64, Bool
from torchprof_tui.trace.model.ranks import AlignmentMethod, Clock, MatchedCollectives
from torchprof_tui.trace.model.trace import Trace

MAX_CLOCK_ERROR = 1_000_000
"""ns. A collective ends on all ranks within some µs; where clocks that should be one clock say otherwise by more than
this, they are those of several machines, and the collectives know better."""

_MIN_EPOCH_TIME = 10**18
"""ns. Times beyond this (2001) without a base count from the Unix epoch; below, from when the machine was started."""

_DAY = 86_400 * 10**9
"""Recordings further apart than this are not of one run by the clock on the wall."""

_ERROR_QUANTILE = 0.9
"""Of the collectives must end within the error that is told."""


def align_clocks(traces: Sequence[Trace], matched: MatchedCollectives) -> list[Clock]:
    """For each rank what to add to its times, so that the earliest of all begins at 0."""
    begin = np.array([_read_base_time(trace) + trace.origin for trace in traces], np.int64)
    some = np.array([len(trace) > 0 for trace in traces])
    if some.any():
        begin[~some] = begin[some].min()  # a rank that recorded nothing has no time to compare
    of_one_run = int(begin.max() - begin.min()) < _DAY
    by_epoch = int(begin.min()) > _MIN_EPOCH_TIME
    bases = {_read_base_time(trace) for trace, any_events in zip(traces, some.tolist(), strict=True) if any_events} or {
        0
    }
    # What remains are small numbers: floats of these are exact.
    wall = (begin - begin.min()).astype(np.float64)
    ends, known = _collect_end_times(traces, matched)
    nowhere = np.zeros(len(traces))
    if of_one_run and len(bases) == 1 and (bases != {0} or by_epoch):
        shift, how = wall, [AlignmentMethod.BASE] * len(traces)
        settled = _find_agreeing_ranks(ends + shift, known)
    elif known.any():
        shift, how = nowhere, [AlignmentMethod.NONE] * len(traces)
        settled = np.zeros(len(traces), np.bool_)
        settled[int(known.sum(axis=0).argmax())] = True
        how[int(settled.argmax())] = AlignmentMethod.COLLECTIVES
    else:
        shift, each = (wall, AlignmentMethod.WALL) if of_one_run and by_epoch else (nowhere, AlignmentMethod.NONE)
        return _build_clocks(shift, [each] * len(traces), ends, known)
    while not settled.all():
        rank = _select_next_rank(settled, known)
        both = known[:, rank] & known[:, settled].any(axis=1)
        if not both.any():
            break
        theirs = _row_medians((ends + shift)[both][:, settled], known[both][:, settled])
        shift[rank] = np.round(np.median(theirs - ends[both, rank]))
        settled[rank] = True
        how[rank] = AlignmentMethod.COLLECTIVES
    for rank in np.flatnonzero(~settled).tolist():
        if how[rank] is AlignmentMethod.NONE:  # it begins with the others
            shift[rank] = shift[settled].min()
    return _build_clocks(shift, how, ends, known)


def _read_base_time(trace: Trace) -> int:
    base = trace.header.get("baseTimeNanoseconds")
    return base if isinstance(base, int) and not isinstance(base, bool) and 0 <= base < 1 << 62 else 0


def _collect_end_times(traces: Sequence[Trace], meetings: MatchedCollectives) -> tuple[F64, Bool]:
    """(float64[m, r] ns on each rank's own clock, which of these there are), of what ends on all ranks at once."""
    events = meetings.events[meetings.is_synchronizing]
    known = events >= 0
    ends = np.zeros(events.shape, np.float64)
    for rank, trace in enumerate(traces):
        mine = events[known[:, rank], rank]
        ends[known[:, rank], rank] = trace.start[mine] + trace.duration[mine]
    return ends, known


def _find_agreeing_ranks(ends: F64, known: Bool) -> Bool:
    """bool[r]: ranks whose collectives end when those of most others do. One that has none cannot disagree."""
    agrees = np.ones(known.shape[1], np.bool_)
    consensus = _row_medians(ends, known)
    for rank in range(len(agrees)):
        mine = known[:, rank]
        if mine.any():
            agrees[rank] = abs(float(np.median(ends[mine, rank] - consensus[mine]))) <= MAX_CLOCK_ERROR
    return agrees


def _row_medians(values: F64, known: Bool) -> F64:
    """float64[k]: the median of each row's known values; a row without any is an error."""
    if not len(values):
        return np.zeros(0)
    found: F64 = np.nanmedian(np.where(known, values, np.nan), axis=1)
    return found


def _select_next_rank(settled: Bool, known: Bool) -> int:
    """The rank that has most collectives in common with those settled."""
    met = np.count_nonzero(known[:, settled], axis=1) > 0
    common: I64 = np.count_nonzero(known[met], axis=0)
    common[settled] = -1
    return int(common.argmax())


def _build_clocks(shift: F64, how: list[AlignmentMethod], ends: F64, known: Bool) -> list[Clock]:
    """The clocks with what is left of their error."""
    shifts: I64 = np.round(shift - shift.min()).astype(np.int64) if len(shift) else np.zeros(0, np.int64)
    several = known.sum(axis=1) > 1
    ends, known = (ends + shifts)[several], known[several]
    consensus = _row_medians(ends, known)
    clocks = []
    for rank, each in enumerate(how):
        mine = known[:, rank]
        off = np.abs(ends[mine, rank] - consensus[mine])
        error = int(np.quantile(off, _ERROR_QUANTILE, method="higher")) if len(off) else None
        clocks.append(Clock(int(shifts[rank]), each, None if each is AlignmentMethod.NONE else error, int(mine.sum())))
    return clocks
