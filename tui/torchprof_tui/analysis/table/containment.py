"""Trees of calls as arrays of parents: who contains whom, what lies beneath, who is folded into whom. Vectorised.

`parent` arrays are int32[n], -1 at the top; a parent stands before its children.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import follow_to_fixpoint
from torchprof_tui.trace.build import nesting
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.model.trace import Trace


def find_parents(first: I64, start: I64, duration: I64) -> I32:
    """int32[n]: the innermost earlier call that contains each whole; one crossed by a later call is nobody's any more.

    `first` int64[threads + 1] bounds the threads; on each, calls are sorted by start, longest first. Nothing is inside
    a call without a duration, nor begins in one at its end.
    """
    above = nesting.find_parents(first, start, duration)
    while (
        True
    ):  # `nesting.find_parents` counts no duration as 1 ns, so two such calls at one time are parent and child there
        empty = np.flatnonzero((above >= 0) & (duration[above] == 0))
        if not len(empty):
            return above
        above[empty] = above[above[empty]]


def sort_by_thread(lane: I32, start: I64, duration: I64, ordinal: I32) -> tuple[I64, I64]:
    """(order int64[n], first int64[threads + 1]) that sorts calls by lane, start, longest first, then rank.

    Meant for calls that lie so already but for a few whose lane was changed: those are merged in.
    """
    order = np.argsort(lane, kind="stable")
    lane, begin = lane[order], start[order]
    first = np.append(np.flatnonzero(np.diff(lane, prepend=-1)), len(lane)).astype(np.int64)
    wrong = np.flatnonzero((lane[1:] == lane[:-1]) & (begin[1:] < begin[:-1]))
    for thread in np.unique(np.searchsorted(first, wrong, side="right") - 1).tolist():
        rows = slice(int(first[thread]), int(first[thread + 1]))
        order[rows] = order[rows][np.argsort(begin[rows], kind="stable")]
        begin[rows] = start[order[rows]]
    tied = (lane[1:] == lane[:-1]) & (begin[1:] == begin[:-1])
    before, after = order[:-1][tied], order[1:][tied]
    longer = duration[after] > duration[before]
    if (longer | ((duration[after] == duration[before]) & (ordinal[after] < ordinal[before]))).any():
        run = np.concatenate([[0], np.cumsum(~tied)])
        places = np.flatnonzero(np.concatenate([[False], tied]) | np.concatenate([tied, [False]]))
        listed = order[places]
        order[places] = listed[np.lexsort((ordinal[listed], -duration[listed], run[places]))]
    return order, first


def fold_only_children(parent: I32, name: I32, self_time: I64) -> tuple[Bool, I32, I64]:
    """Fold each call that is its parent's only child and has its name into it: (kept bool[n], parent, own).

    `parent` int32[k], `own` int64[k] are those of the kept, in order. A call that others were folded into has the
    children and the own time of the innermost of them.
    """
    above = np.maximum(parent, 0)
    children = np.bincount(parent[parent >= 0], minlength=len(parent))
    goes = (parent >= 0) & (name == name[above]) & (children[above] == 1)
    if not goes.any():
        return ~goes, parent, self_time
    head = follow_to_fixpoint(np.where(goes, parent, np.arange(len(parent), dtype=np.int32)))
    into_next = np.zeros(len(parent), np.bool_)
    into_next[parent[goes]] = True
    last = np.flatnonzero(goes & ~into_next)
    self_time = self_time.copy()
    self_time[head[last]] = self_time[last]
    kept = ~goes
    number = np.cumsum(kept, dtype=np.int32) - 1
    parent = np.where(parent >= 0, number[head[above]], -1).astype(np.int32)
    return kept, parent[kept], self_time[kept]


_BLOCK_SIZE = 1024
"""Events looked at in one go, backwards; an event that is under way is mostly among the last few dozen."""


def find_innermost_at(trace: Trace, rows: I32, times: I64) -> I32:
    """int32[k]: of events `rows` (ascending, one lane's) the last begun that is under way at each time; -1 for none.

    One look backwards for each of the few times, crossing events included.
    """
    found = np.full(len(times), -1, np.int32)
    begin = trace.start[rows]
    end = begin + trace.duration[rows]
    reach = np.maximum.accumulate(end)
    for place, time in enumerate(times.tolist()):
        last = int(np.searchsorted(begin, time, side="right"))
        while last > 0 and reach[last - 1] > time:
            first = max(last - _BLOCK_SIZE, 0)
            under_way = np.flatnonzero(end[first:last] > time)
            if len(under_way):
                found[place] = rows[first + int(under_way[-1])]
                break
            last = first
    return found
