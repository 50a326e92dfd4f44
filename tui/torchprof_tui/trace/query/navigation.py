"""From one event to another, and from a time to what lies there. Events and steps are numbers; -1: there is none.

Inside a row everything is a binary search; questions about children are one pass over the part of the columns
that they concern.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.row_index import RowIndex
from torchprof_tui.trace.model.trace import Trace


def extent(trace: Trace, event: int) -> tuple[int, int]:
    """Start and end of an event, ns, at least 1 apart."""
    start = int(trace.start[event])
    return start, start + max(int(trace.duration[event]), 1)


def row_of(trace: Trace, event: int) -> int:
    """The row of the whole trace that the event lies in."""
    return trace.lanes[int(trace.lane[event])].row_base + int(trace.row[event])


def find_row_neighbour(trace: Trace, index: RowIndex, event: int, offset: int) -> int:
    """The event `distance` places later (negative: earlier) in the same row; -1 beyond its ends."""
    row = row_of(trace, event)
    first, last = int(index.first[row]), int(index.first[row + 1])
    # Events of one row never start at the same time, so the start tells the place.
    place = first + int(index.starts[first:last].searchsorted(trace.start[event])) + offset
    return int(index.order[place]) if first <= place < last else -1


def nearest_on_lane(trace: Trace, lane: int, time: int) -> int:
    """The outermost event of a lane at a time, or nearest to it; -1 where the lane has no events.

    Of several at that time the one that started last.
    """
    first, last = trace.lanes[lane].first, trace.lanes[lane].last
    outermost = np.flatnonzero(trace.parent[first:last] < 0) + first
    return _nearest(trace, outermost, time)


def children(trace: Trace, event: int) -> I64:
    """int64[k]: the events right below, in time order."""
    # An event's children start after it (in the order of the columns) and before it ends.
    _, end = extent(trace, event)
    first = event + 1
    last = first + int(trace.start[first : trace.lanes[int(trace.lane[event])].last].searchsorted(end))
    return np.flatnonzero(trace.parent[first:last] == event) + first


def nearest_child(trace: Trace, event: int, time: int) -> int:
    """The child at a time, or nearest to it; -1 where there is none."""
    return _nearest(trace, children(trace, event), time)


def innermost_at(trace: Trace, event: int, time: int) -> int:
    """The innermost event at a time, from this one down; the event itself where no child has that time.

    It is the last to start of those beneath that are there: what overlaps a later event has no children after it.
    """
    last = trace.lanes[int(trace.lane[event])].last
    last = event + 1 + int(trace.start[event + 1 : last].searchsorted(time, side="right"))
    own = slice(event + 1, last)
    there = np.flatnonzero(trace.start[own] + np.maximum(trace.duration[own], 1) > time) + event + 1
    elsewhere: set[int] = set()
    for found in there[::-1].tolist():
        above, way = int(found), []
        while above > event and above not in elsewhere:
            way.append(above)
            above = int(trace.parent[above])
        if above == event:
            return int(found)
        elsewhere.update(way)
    return event


def step_at(trace: Trace, time: int) -> int:
    """The number (in `trace.steps`) of the step that a time lies in; of several the one that started last."""
    holding = [
        (step.start, number)
        for number, step in enumerate(trace.steps)
        if step.start <= time < step.start + max(step.duration, 1)
    ]
    return max(holding)[1] if holding else -1


def find_adjacent_step(trace: Trace, time: int, later: bool) -> int:
    """The step after (or before) the one at a time; between steps, the next one that starts (or has started).

    -1 at the ends.
    """
    here = step_at(trace, time)
    key = (trace.steps[here].start, here) if here >= 0 else (time, -1)
    order = [(step.start, number) for number, step in enumerate(trace.steps)]
    if later:
        return min((other for other in order if other > key), default=(0, -1))[1]
    return max((other for other in order if other < key), default=(0, -1))[1]


def _nearest(trace: Trace, events: I64, time: int) -> int:
    """The one of `events` (ascending, of one lane) whose extent is nearest to a time; of equals the last to start."""
    if not len(events):
        return -1
    starts = trace.start[events]
    last_ns = starts + np.maximum(trace.duration[events], 1) - 1
    away = np.maximum(np.maximum(starts - time, time - last_ns), 0)
    return int(events[len(away) - 1 - int(np.argmin(away[::-1]))])
