"""Find related events: the next or previous on a lane, linked ones, neighbours in a graph, the same in another trace.

Within a row everything is a binary search; children are found in one pass over the part of the columns that holds them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.lanes import Lane, Role
from torchprof_tui.trace.model.row_index import RowIndex
from torchprof_tui.trace.model.trace import Step, Trace


def extent(trace: Trace, event: int) -> tuple[int, int]:
    """Compute start and end of an event, ns, at least 1 apart."""
    start = int(trace.start[event])
    return start, start + max(int(trace.duration[event]), 1)


def row_of(trace: Trace, event: int) -> int:
    return trace.lanes[int(trace.lane[event])].row_base + int(trace.row[event])


def find_row_neighbour(trace: Trace, index: RowIndex, event: int, offset: int) -> int:
    """Find the event `offset` positions later (negative: earlier) in the same row; -1 beyond its ends."""
    row = row_of(trace, event)
    first, last = int(index.first[row]), int(index.first[row + 1])
    # Events of one row never start at the same time, so the start determines the position.
    position = first + int(index.starts[first:last].searchsorted(trace.start[event])) + offset
    return int(index.order[position]) if first <= position < last else -1


def find_counterpart(trace: Trace, index: RowIndex, event: int, start: int, other: tuple[int, int]) -> int:
    """Find the event of another repeat that is at the same place as `event` in a repeat from `start` on, ns.

    The place is counted in the events of its row. `other`: start and end of the other repeat. -1 where that repeat has
    fewer events in the row, or one of another name at this place.
    """
    row = row_of(trace, event)
    starts = index.starts[int(index.first[row]) : int(index.first[row + 1])]
    place = int(starts.searchsorted(trace.start[event]) - starts.searchsorted(start))
    position = int(starts.searchsorted(other[0])) + place
    if place < 0 or position >= len(starts) or starts[position] >= other[1]:
        return -1
    found = int(index.order[int(index.first[row]) + position])
    return found if trace.name[found] == trace.name[event] else -1


def nearest_on_lane(trace: Trace, lane: int, time: int) -> int:
    """Find the outermost event of a lane at a time, or nearest to it; -1 where the lane has no events.

    Of several at that time the one that started last.
    """
    first, last = trace.lanes[lane].first, trace.lanes[lane].last
    outermost = np.flatnonzero(trace.parent[first:last] < 0) + first
    return _nearest(trace, outermost, time)


def children(trace: Trace, event: int) -> I64:
    """Find the direct children, int64[k], in time order."""
    # An event's children start after it (in the order of the columns) and before it ends.
    _, end = extent(trace, event)
    first = event + 1
    last = first + int(trace.start[first : trace.lanes[int(trace.lane[event])].last].searchsorted(end))
    return np.flatnonzero(trace.parent[first:last] == event) + first


def nearest_child(trace: Trace, event: int, time: int) -> int:
    """Find the child at a time, or nearest to it; -1 where there is none."""
    return _nearest(trace, children(trace, event), time)


def innermost_at(trace: Trace, event: int, time: int) -> int:
    """Find the innermost descendant of an event at a time; the event itself where no child is open then.

    It is the last to start of the open descendants: an event that overlaps a later one has no children after it.
    """
    last = trace.lanes[int(trace.lane[event])].last
    last = event + 1 + int(trace.start[event + 1 : last].searchsorted(time, side="right"))
    later = slice(event + 1, last)
    open_events = np.flatnonzero(trace.start[later] + np.maximum(trace.duration[later], 1) > time) + event + 1
    not_below: set[int] = set()  # events that are known to be no descendants
    for candidate in open_events[::-1].tolist():
        ancestor, path = int(candidate), []
        while ancestor > event and ancestor not in not_below:
            path.append(ancestor)
            ancestor = int(trace.parent[ancestor])
        if ancestor == event:
            return int(candidate)
        not_below.update(path)
    return event


def step_at(steps: Sequence[Step], time: int) -> int:
    """Find the step that contains a time, as an index into `steps`; of several the one that started last."""
    containing = [
        (step.start, number)
        for number, step in enumerate(steps)
        if step.start <= time < step.start + max(step.duration, 1)
    ]
    return max(containing)[1] if containing else -1


def find_adjacent_step(steps: Sequence[Step], time: int, later: bool) -> int:
    """Find the step after (or before) the one at a time; between steps, the next one that starts (or has started).

    -1 at the ends.
    """
    current = step_at(steps, time)
    key = (steps[current].start, current) if current >= 0 else (time, -1)
    order = [(step.start, number) for number, step in enumerate(steps)]
    if later:
        return min((other for other in order if other > key), default=(0, -1))[1]
    return max((other for other in order if other < key), default=(0, -1))[1]


def _nearest(trace: Trace, events: I64, time: int) -> int:
    """Find which of `events` (ascending, of one lane) is nearest to a time; of equals the last to start."""
    if not len(events):
        return -1
    starts = trace.start[events]
    last_ns = starts + np.maximum(trace.duration[events], 1) - 1
    distance = np.maximum(np.maximum(starts - time, time - last_ns), 0)
    return int(events[len(distance) - 1 - int(np.argmin(distance[::-1]))])


def follow_link(trace: Trace, event: int) -> int:
    """Find the event that is next along the links.

    The first GPU work of a call; for GPU work the next of the same launch; the backward of a forward op; else the first
    GPU work that was launched below the event.
    """
    links = trace.links
    work = links.work_of(event)
    if len(work):
        return int(work[0])
    launch = int(links.launch_of[event])
    if launch >= 0:
        work = links.work_of(launch)
        index = int((work == event).argmax()) + 1
        return int(work[index]) if index < len(work) else -1
    backward = links.backward[links.forward == event]
    return int(backward[0]) if len(backward) else find_first_work_below(trace, event)


def follow_link_back(trace: Trace, event: int) -> int:
    """Find the call that launched GPU work, or the forward of a backward op."""
    links = trace.links
    launch = int(links.launch_of[event])
    if launch >= 0:
        return launch
    forward = links.forward[links.backward == event]
    return int(forward[0]) if len(forward) else -1


def find_first_work_below(trace: Trace, event: int) -> int:
    """Find the first GPU work that was launched by a descendant of an event."""
    links = trace.links
    # Descendants follow their ancestor in the columns, so the first launch below is one binary search.
    last = trace.lanes[int(trace.lane[event])].last
    beyond = event + 1 + int(trace.start[event + 1 : last].searchsorted(extent(trace, event)[1]))
    launch = _find_next_launch(trace, event + 1)
    while event < launch < beyond:
        ancestor = launch
        while ancestor > event:
            ancestor = int(trace.parent[ancestor])
        if ancestor == event:
            return int(links.work_of(launch)[0])
        launch = _find_next_launch(trace, launch + 1)
    return -1


def _find_next_launch(trace: Trace, event: int) -> int:
    """Find the first event, from this one on, that launched GPU work; the number of events where none did."""
    first = trace.links.work_first
    return int(first.searchsorted(first[event], side="right")) - 1


@record
class GraphNeighbours:
    """GPU work of the same replay that a piece waits for, and that waits for it: int32[...] each, ascending."""

    waits_for: I32
    waited_for_by: I32

    def __len__(self) -> int:
        return len(self.waits_for) + len(self.waited_for_by)

    @property
    def events(self) -> list[int]:
        """All of them."""
        return [*self.waits_for.tolist(), *self.waited_for_by.tolist()]


def find_graph_neighbours(trace: Trace, event: int) -> GraphNeighbours:
    """Find the recorded edges of an event; none for what is no replayed work, and where edges were not recorded."""
    links = trace.links
    return GraphNeighbours(
        links.graph_before[links.graph_after == event], links.graph_after[links.graph_before == event]
    )


def match_lanes(part: Trace, whole: Trace) -> list[int]:
    """Return the index in `whole` of each lane of `part`, -1 for one that it does not have."""
    numbers = {_lane_key(lane): number for number, lane in enumerate(whole.lanes)}
    return [numbers.get(_lane_key(lane), -1) for lane in part.lanes]


def shift_of(part: Trace, whole: Trace) -> int:
    """Return what to add to a time of `part`, ns, for the same time of `whole`."""
    return part.origin - whole.origin


def find_same_event(part: Trace, event: int, whole: Trace) -> int:
    """Return the event of `whole` that is `event` of `part`, -1 for none: the same lane, start and name.

    Of several the one at the nearest depth. The duration may differ, because `part` may end within the event.
    """
    lane_number = match_lanes(part, whole)[int(part.lane[event])]
    if lane_number < 0:
        return -1
    lane = whole.lanes[lane_number]
    starts = whole.start[lane.first : lane.last]
    start = int(part.start[event]) + shift_of(part, whole)
    first, last = (int(np.searchsorted(starts, start, side)) for side in ("left", "right"))
    name = part.names[part.name[event]]
    row = int(part.row[event])
    found = [k for k in range(lane.first + first, lane.first + last) if whole.names[whole.name[k]] == name]
    return min(found, key=lambda k: abs(int(whole.row[k]) - row), default=-1)


def _lane_key(lane: Lane) -> tuple[Role, str, str, str]:
    return lane.role, lane.pid, lane.tid, lane.label if lane.role is Role.COUNTER else ""
