"""From places to lanes: their events, their rows, and the order of all rows of the trace."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.build.counters import CounterSeries
from torchprof_tui.trace.build.lane_assignment import PendingLane
from torchprof_tui.trace.build.lane_order import TrackMetadata, format_label_and_group
from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.core.column_file import ColumnAllocator, allocate_in_memory
from torchprof_tui.trace.core.factorize import bincount_chunked
from torchprof_tui.trace.model.lanes import Lane, Role
from torchprof_tui.trace.model.trace import Counter


def build_lanes(
    pending_lanes: list[PendingLane],
    track_metadata: TrackMetadata,
    is_kineto: bool,
    device_names: dict[int, str],
    first: I64,
    row: I32,
    series: list[CounterSeries],
) -> tuple[list[Lane], list[Counter]]:
    """The lanes in the order they stand: those of `places`, and before the profiler's one for each counter.

    `first` int64[places + 1]: the bounds of each place's events; `row` int32[n]: the rows of these.
    """
    threads = {place.pid for place in pending_lanes if place.role is Role.THREAD and not place.merged_count}
    several = sum(not track_metadata.is_gpu(pid) for pid in threads) > 1
    filled = np.flatnonzero(np.diff(first))
    rows = np.ones(len(pending_lanes), np.int64)
    if len(filled):
        rows[filled] = np.maximum.reduceat(row, first[filled]) + 1
    bounds, depths = first.tolist(), rows.tolist()
    lanes: list[Lane] = []
    counters: list[Counter] = []
    below = 0

    def stand(number: int) -> None:
        nonlocal below
        place = pending_lanes[number]
        label, group = format_label_and_group(place, track_metadata, is_kineto, several, device_names)
        where = (place.role, place.pid, place.tid, label, group, bounds[number], bounds[number + 1])
        lanes.append(Lane(*where, depths[number], below, device=place.device, merged_lanes=place.merged_count))
        below += depths[number]

    own = find_first_profiler_lane(pending_lanes)
    for number in range(own):
        stand(number)
    for one in series:
        counters.append(Counter(len(lanes), one.name, one.unit, one.times, one.values))
        lanes.append(Lane(Role.COUNTER, one.pid, one.tid, one.name, one.group, bounds[own], bounds[own], 1, below))
        below += 1
    for number in range(own, len(pending_lanes)):
        stand(number)
    return lanes, counters


def find_first_profiler_lane(pending_lanes: list[PendingLane]) -> int:
    """The number of the first of the profiler's own places, which stand last."""
    return sum(place.role is not Role.PROFILER for place in pending_lanes)


def sort_by_row(lanes: list[Lane], row: I32, allocate: ColumnAllocator = allocate_in_memory) -> tuple[I32, I64]:
    """Events by row of the whole trace, then start, int32[n]; and each row's bounds in that, int64[rows + 1]."""
    order = allocate("row_order", len(row), np.int32)
    first = np.zeros(lanes[-1].row_base + lanes[-1].rows + 1 if lanes else 1, np.int64)
    for lane in lanes:
        mine = row[lane.first : lane.last]
        narrow = mine.astype(np.uint16) if lane.rows < 1 << 16 else mine  # uint16 sorts by radix
        np.add(np.argsort(narrow, kind="stable"), lane.first, out=order[lane.first : lane.last], casting="unsafe")
        first[lane.row_base + 1 :][: lane.rows] = bincount_chunked(mine, lane.rows)
    np.cumsum(first, out=first)
    return order, first


def compute_span(start: I64, duration: I64, first_profiler_event: int, counters: list[Counter]) -> tuple[int, int]:
    """From the first to the last of what is drawn, without the profiler's own events, `own` and up.

    Those count where there is nothing else. (0, 0) where there is nothing at all.
    """
    lows = [int(one.times[0]) for one in counters if len(one.times)]
    highs = [int(one.times[-1]) for one in counters if len(one.times)]
    events = slice(0, first_profiler_event) if first_profiler_event or lows else slice(0, len(start))
    if len(start[events]):
        lows.append(int(start[events].min()))
        highs.append(int((start[events] + duration[events]).max()))
    return (min(lows), max(highs)) if lows else (0, 0)
