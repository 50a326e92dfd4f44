"""Build trees of calls as arrays of parents: containment on a thread, folding, the innermost call at a time.
Vectorised.

`parent` arrays are int32[n], -1 at the top; a parent precedes its children.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import follow_to_fixpoint
from torchprof_tui.trace.build import nesting
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.model.trace import Trace


def find_parents(first: I64, start: I64, duration: I64) -> I32:
    """Find the innermost earlier call that fully contains each: int32[n].

    A call that a later one crosses contains no calls after that. `first` int64[threads + 1] bounds the threads; on
    each, calls are sorted by start, longest first. A call without a duration contains none, and a call that begins at
    another's end is not inside it.
    """
    parents = nesting.find_parents(first, start, duration)
    # `nesting.find_parents` counts no duration as 1 ns, so two such calls at one time are parent and child there.
    while True:
        without_duration = np.flatnonzero((parents >= 0) & (duration[parents] == 0))
        if not len(without_duration):
            return parents
        parents[without_duration] = parents[parents[without_duration]]


def sort_by_thread(lane: I32, start: I64, duration: I64, ordinal: I32) -> tuple[I64, I64]:
    """Sort calls by lane, start, longest first, then ordinal; return (order int64[n], first int64[threads + 1]).

    Meant for calls that are sorted already except for a few whose lane was changed: those are merged in.
    """
    order = np.argsort(lane, kind="stable")
    lane, sorted_start = lane[order], start[order]
    first = np.append(np.flatnonzero(np.diff(lane, prepend=-1)), len(lane)).astype(np.int64)
    out_of_order = np.flatnonzero((lane[1:] == lane[:-1]) & (sorted_start[1:] < sorted_start[:-1]))
    for thread in np.unique(np.searchsorted(first, out_of_order, side="right") - 1).tolist():
        rows = slice(int(first[thread]), int(first[thread + 1]))
        order[rows] = order[rows][np.argsort(sorted_start[rows], kind="stable")]
        sorted_start[rows] = start[order[rows]]
    tied = (lane[1:] == lane[:-1]) & (sorted_start[1:] == sorted_start[:-1])
    previous, following = order[:-1][tied], order[1:][tied]
    is_longer = duration[following] > duration[previous]
    if (is_longer | ((duration[following] == duration[previous]) & (ordinal[following] < ordinal[previous]))).any():
        tie_group = np.concatenate([[0], np.cumsum(~tied)])
        tied_positions = np.flatnonzero(np.concatenate([[False], tied]) | np.concatenate([tied, [False]]))
        tied_calls = order[tied_positions]
        order[tied_positions] = tied_calls[
            np.lexsort((ordinal[tied_calls], -duration[tied_calls], tie_group[tied_positions]))
        ]
    return order, first


def fold_only_children(parent: I32, name: I32, self_time: I64) -> tuple[Bool, I32, I64]:
    """Fold each call that is its parent's only child and has its name into it: (kept bool[n], parent, self time).

    `parent` int32[k] and self time int64[k] are those of the kept calls, in order. A call that others were folded into
    gets the children and the self time of the innermost of them.
    """
    parent_or_zero = np.maximum(parent, 0)
    child_count = np.bincount(parent[parent >= 0], minlength=len(parent))
    is_folded = (parent >= 0) & (name == name[parent_or_zero]) & (child_count[parent_or_zero] == 1)
    if not is_folded.any():
        return ~is_folded, parent, self_time
    fold_root = follow_to_fixpoint(np.where(is_folded, parent, np.arange(len(parent), dtype=np.int32)))
    has_folded_child = np.zeros(len(parent), np.bool_)
    has_folded_child[parent[is_folded]] = True
    innermost = np.flatnonzero(is_folded & ~has_folded_child)
    self_time = self_time.copy()
    self_time[fold_root[innermost]] = self_time[innermost]
    kept = ~is_folded
    new_index = np.cumsum(kept, dtype=np.int32) - 1
    parent = np.where(parent >= 0, new_index[fold_root[parent_or_zero]], -1).astype(np.int32)
    return kept, parent[kept], self_time[kept]


_BLOCK_SIZE = 1024
"""Events checked per block, backwards: the running event is usually among the last few dozen."""


def find_innermost_at(trace: Trace, rows: I32, times: I64) -> I32:
    """Find the event among `rows` that is running at each time and started last: int32[k]; -1 for none.

    `rows` are ascending, of one lane. Searches backwards for each of the few times; crossing events are handled.
    """
    innermost = np.full(len(times), -1, np.int32)
    starts = trace.start[rows]
    ends = starts + trace.duration[rows]
    latest_end = np.maximum.accumulate(ends)
    for index, time in enumerate(times.tolist()):
        last = int(np.searchsorted(starts, time, side="right"))
        while last > 0 and latest_end[last - 1] > time:
            first = max(last - _BLOCK_SIZE, 0)
            running = np.flatnonzero(ends[first:last] > time)
            if len(running):
                innermost[index] = rows[first + int(running[-1])]
                break
            last = first
    return innermost
