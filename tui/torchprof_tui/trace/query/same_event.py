"""Find an event or a lane of one trace in another trace of the same recording, which holds more of it."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.model.lanes import Lane, Role
from torchprof_tui.trace.model.trace import Trace


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
