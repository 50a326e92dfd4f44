"""Context of one event: its position inside its parent, and among all events of the same name."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Trace


@record
class SiblingPosition:
    """Position of an event among its parent's children, or among the outermost events of its lane."""

    nth: int  # from 1
    sibling_count: int
    offset: int  # ns after the parent's start; after the trace's first event at the top
    share: float | None  # of the parent's duration; None at the top or where the parent has none


@record
class SameNameStatistics:
    """Position of an event among those of the same name and category, in time order; durations in ns."""

    nth: int  # from 1
    count: int
    shortest: int
    median: float
    longest: int
    total: int


def find_sibling_position(trace: Trace, event: int) -> SiblingPosition:
    """Find the position of an event among its siblings. Costs one pass over the parent's descendants, or the lane."""
    lane = trace.lanes[trace.lane[event]]
    parent = int(trace.parent[event])
    first, last = lane.first, lane.last
    if parent >= 0:
        end = int(trace.start[parent]) + max(int(trace.duration[parent]), 1)
        first = parent + 1
        last = first + int(np.searchsorted(trace.start[first:last], end))
    siblings = np.flatnonzero(trace.parent[first:last] == parent) + first
    nth = int(np.searchsorted(siblings, event)) + 1
    start = int(trace.start[event])
    if parent < 0:
        return SiblingPosition(nth, len(siblings), start, None)
    parent_duration = int(trace.duration[parent])
    share = int(trace.duration[event]) / parent_duration if parent_duration else None
    return SiblingPosition(nth, len(siblings), start - int(trace.start[parent]), share)


def compute_same_name_statistics(trace: Trace, event: int) -> SameNameStatistics:
    """Compute duration statistics over events of the same name and category. Costs one pass over all events."""
    same = np.flatnonzero((trace.name == trace.name[event]) & (trace.category == trace.category[event]))
    durations = trace.duration[same]
    starts = trace.start[same]
    start = trace.start[event]
    earlier = int(np.count_nonzero(starts < start)) + int(np.count_nonzero(starts[same < event] == start))
    return SameNameStatistics(
        nth=earlier + 1,
        count=len(same),
        shortest=int(durations.min()),
        median=float(np.median(durations)),
        longest=int(durations.max()),
        total=int(durations.sum()),
    )


@record
class EventContext:
    """Position, statistics and args of an event. `args`: as in the file, {} if `args_error` gives a reason."""

    position: SiblingPosition
    same_name: SameNameStatistics
    args: dict[str, Any]
    args_error: str = ""


def read_event_context(trace: Trace, event: int) -> EventContext:
    """Read the context of an event. Reads args from the file; a failure is reported in `args_error`, in one line."""
    args: dict[str, Any] = {}
    args_error = ""
    try:
        args = trace.event(event).read_args()
    except OSError as error:
        args_error = f"the trace file can no longer be read: {error.strerror or error}"
    except LookupError as error:
        args_error = str(error.args[0]) if error.args else "no longer in the trace file"
    return EventContext(
        find_sibling_position(trace, event), compute_same_name_statistics(trace, event), args, args_error
    )
