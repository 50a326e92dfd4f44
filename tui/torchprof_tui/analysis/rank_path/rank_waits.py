"""Split the collectives on the path of one rank: the wait for the last rank to come, and the transfer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.critical_path.segments import SegmentKind, Segments
from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.model.ranks import Ranks


def split_rank_waits(segments: Segments, ranks: Ranks, index: int) -> Segments:
    """Let collectives on the path of a rank, an index of `ranks.all`, be waits until the last rank has come.

    Of a collective whose end contradicts the arrival of another rank (clocks that disagree) nothing is a wait.
    """
    event, arrived, late = _find_arrivals(ranks, index)
    chosen = np.flatnonzero((segments.kind == SegmentKind.COLLECTIVE) & np.isin(segments.event, event))
    if not len(chosen):
        return segments
    place = event.searchsorted(segments.event[chosen])
    trace = ranks.all[index].trace
    ends = trace.start[segments.event[chosen]] + trace.duration[segments.event[chosen]]
    until = np.minimum(arrived[place], segments.end[chosen])
    waits = (until > segments.start[chosen]) & (arrived[place] <= ends) & (late[place] != ranks.all[index].number)
    chosen, place, until = chosen[waits], place[waits], until[waits]
    begin = segments.start.copy()
    begin[chosen] = until
    count = len(chosen)
    first = replace(
        segments,
        start=np.concatenate([begin, segments.start[chosen]]),
        end=np.concatenate([segments.end, until]),
        kind=np.concatenate([segments.kind, np.full(count, SegmentKind.RANK, np.uint8)]),
        kernel_class=np.concatenate([segments.kernel_class, segments.kernel_class[chosen]]),
        event=np.concatenate([segments.event, segments.event[chosen]]),
        rank=np.concatenate([segments.rank, late[place].astype(np.int32)]),
    )
    return sort_segments(first)


def sort_segments(segments: Segments) -> Segments:
    """Sort segments by start, without empty ones."""
    order = np.argsort(segments.start, kind="stable")
    order = order[segments.end[order] > segments.start[order]]
    return Segments(
        segments.start[order],
        segments.end[order],
        segments.kind[order],
        segments.kernel_class[order],
        segments.event[order],
        segments.rank[order],
    )


def _find_arrivals(ranks: Ranks, index: int) -> tuple[I32, I64, I64]:
    """Find when the last rank had come to each collective of a rank: rows ascending, ns, and its number, [k] each."""
    collectives = ranks.matched_collectives
    rows = collectives.events[collectives.is_synchronizing & (collectives.events[:, index] >= 0)]
    starts = np.full(rows.shape, np.iinfo(np.int64).min, np.int64)
    for place, rank in enumerate(ranks.all):
        present = np.flatnonzero(rows[:, place] >= 0)
        starts[present, place] = rank.trace.start[rows[present, place]]
    numbers = np.array([rank.number for rank in ranks.all], np.int64)
    order = np.argsort(rows[:, index])
    rows, starts = rows[order], starts[order]
    if not len(rows):
        return rows[:, index], starts[:, index], starts[:, index]
    return rows[:, index], starts.max(axis=1), numbers[starts.argmax(axis=1)]
