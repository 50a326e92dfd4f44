"""Divide long lanes into parts that can be nested independently of each other.

A part may end where every event before has ended: nothing that begins there has a parent, or crosses an event, or finds
a row held, before that point. In a recording with Python frames the outer frames are open all the time; an event
that comes first and ends last contains all others and crosses none, so the events after it are nested as a lane of
their own, one row below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.core.thread_tasks import accumulate_max_parallel, find_indexes, run_blocks

_MAX_DEPTH = 12
"""Levels of enclosing events that are looked through; each reads the times of the lane once."""


@dataclass(frozen=True, slots=True)
class LaneParts:
    """k parts of lanes, in the order of the events.

    `first` int64[k + 1]: their bounds; `flat` bool[k]; `row` int64[k]: the row of a part's outermost events; `parent`
    int64[k]: their parent, -1 for none.
    """

    first: I64
    flat: Bool
    row: I64
    parent: I64


def divide_lanes(first: I64, flat: Bool, start: I64, duration: I64, size: int) -> LaneParts:
    """Divide lanes into parts of about `size` events where that is possible. Arguments as of `nest_lanes`."""
    parts: list[tuple[int, bool, int, int]] = []
    for begin, end, is_flat in zip(first[:-1].tolist(), first[1:].tolist(), flat.tolist(), strict=True):
        todo = [(begin, end, 0, -1, 0)]
        while todo:
            begin, end, row, parent, depth = todo.pop()
            if end - begin <= 2 * size or depth == _MAX_DEPTH:
                parts.append((begin, is_flat, row, parent))
                continue
            enclosing = 0 if is_flat else _count_enclosing(start[begin:end], duration[begin:end])
            cuts = _find_cuts(start[begin + enclosing : end], duration[begin + enclosing : end], size)
            if enclosing:
                parts.append((begin, is_flat, row, parent))
                row, parent = row + enclosing, begin + enclosing - 1
            bounds = [begin + enclosing, *(begin + enclosing + cut for cut in cuts), end]
            next_depth = depth + 1 if enclosing or cuts else _MAX_DEPTH
            inner = [(low, high, row, parent, next_depth) for low, high in pairwise(bounds)]
            todo += [part for part in reversed(inner) if part[1] > part[0]]
    columns = list(zip(*parts, strict=True)) or [(), (), (), ()]
    bounds_column = np.array([*columns[0], int(first[-1])], np.int64)
    return LaneParts(
        bounds_column, np.array(columns[1], np.bool_), np.array(columns[2], np.int64), np.array(columns[3], np.int64)
    )


def _count_enclosing(start: I64, duration: I64) -> int:
    """Count the events at the beginning of a lane that each end no earlier than all events after them."""
    head = min(len(start), 1 << 12)
    end = start[:head] + np.maximum(duration[:head], 1)
    ends = [int(end[-1])]

    def find_latest(block: slice) -> None:
        ends.append(int((start[head:][block] + np.maximum(duration[head:][block], 1)).max()))

    run_blocks(find_latest, len(start) - head)
    latest = np.maximum.accumulate(np.append(end[1:], max(ends))[::-1])[::-1]  # end of all events after it
    shorter = np.flatnonzero(end < latest)
    count = int(shorter[0]) if len(shorter) else head
    return min(count, len(start) - 1)


def _find_cuts(start: I64, duration: I64, size: int) -> list[int]:
    """Find where parts of at least `size` events can end: indexes of events before which all others have ended."""
    open_until = np.empty_like(start)

    def compute_end(block: slice) -> None:
        np.add(start[block], np.maximum(duration[block], 1), out=open_until[block])

    run_blocks(compute_end, len(start))
    accumulate_max_parallel(open_until)
    fresh = find_indexes(lambda block: start[1:][block] >= open_until[:-1][block], len(start) - 1) + 1
    cuts: list[int] = []
    last = 0
    while True:
        index = int(np.searchsorted(fresh, last + size))
        if index == len(fresh):
            return cuts
        last = int(fresh[index])
        cuts.append(last)
