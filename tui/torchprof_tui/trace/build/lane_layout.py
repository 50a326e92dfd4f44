"""Lay out the lanes: their events, their rows, and the order of all rows of the trace."""

from __future__ import annotations

from functools import partial

import numpy as np

from torchprof_tui.trace.build.counters import CounterSeries
from torchprof_tui.trace.build.event_order import EventColumns
from torchprof_tui.trace.build.lane_assignment import PendingLane
from torchprof_tui.trace.build.lane_order import (
    LaneNamer,
    find_first_profiler_lane,
)
from torchprof_tui.trace.core.arrays import I32, I64, bincount_chunked
from torchprof_tui.trace.core.column_file import ColumnAllocator, allocate_in_memory
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.thread_tasks import MIN_SLICE_SIZE, map_blocks, run_tasks
from torchprof_tui.trace.model.lanes import Lane, Role
from torchprof_tui.trace.model.trace import Counter


@record
class LaneLayout:
    """The lanes of the trace in display order. `row_order`, `row_first`, `span`: as in `Trace`."""

    lanes: list[Lane]
    counters: list[Counter]
    row_order: I32
    row_first: I64
    span: tuple[int, int]


def lay_out_lanes(
    pending_lanes: list[PendingLane],
    first: I64,
    columns: EventColumns,
    series: list[CounterSeries],
    namer: LaneNamer,
    allocate: ColumnAllocator,
) -> LaneLayout:
    """Lay out the lanes with their rows, the counters before the profiler's lanes.

    `first` int64[pending lanes + 1]: the bounds of each lane's events. Renumbers `columns.lane` to insert the
    counters.
    """
    lanes, counters = build_lanes(pending_lanes, namer, first, columns.row, series)
    first_profiler_event = int(first[find_first_profiler_lane(pending_lanes)])
    columns.lane[first_profiler_event:] += len(series)
    row_order, row_first = sort_by_row(lanes, columns.row, allocate)
    span = compute_span(columns.start, columns.duration, first_profiler_event, counters)
    return LaneLayout(lanes, counters, row_order, row_first, span)


def build_lanes(
    pending_lanes: list[PendingLane], namer: LaneNamer, first: I64, row: I32, series: list[CounterSeries]
) -> tuple[list[Lane], list[Counter]]:
    """Build the lanes in display order, with one for each counter before the profiler's.

    `first` int64[pending lanes + 1]: the bounds of each lane's events; `row` int32[n]: the rows of these.
    """
    filled = np.flatnonzero(np.diff(first))
    row_counts = np.ones(len(pending_lanes), np.int64)
    if len(filled):
        row_counts[filled] = np.maximum.reduceat(row, first[filled]) + 1
    bounds, rows = first.tolist(), row_counts.tolist()
    lanes: list[Lane] = []
    counters: list[Counter] = []

    def next_row_base() -> int:
        return lanes[-1].row_base + lanes[-1].rows if lanes else 0

    def append_lane(index: int) -> None:
        lane = pending_lanes[index]
        label, group = namer.format_label_and_group(lane)
        position = (bounds[index], bounds[index + 1], rows[index], next_row_base())
        columns = (lane.role, lane.pid, lane.tid, label, group, *position)
        lanes.append(Lane(*columns, device=lane.device, merged_lanes=lane.merged_count))

    first_profiler_lane = find_first_profiler_lane(pending_lanes)
    for index in range(first_profiler_lane):
        append_lane(index)
    event = bounds[first_profiler_lane]
    for one in series:
        counters.append(Counter(len(lanes), one.name, one.unit, one.times, one.values))
        lanes.append(Lane(Role.COUNTER, one.pid, one.tid, one.name, one.group, event, event, 1, next_row_base()))
    for index in range(first_profiler_lane, len(pending_lanes)):
        append_lane(index)
    return lanes, counters


def sort_by_row(lanes: list[Lane], row: I32, allocate: ColumnAllocator = allocate_in_memory) -> tuple[I32, I64]:
    """Sort events by row of the whole trace, then start, int32[n]; and each row's bounds in that, int64[rows + 1]."""
    order = allocate("row_order", len(row), np.int32)
    first = np.zeros(lanes[-1].row_base + lanes[-1].rows + 1 if lanes else 1, np.int64)

    def sort_lane(lane: Lane) -> None:
        lane_rows = row[lane.first : lane.last]
        narrow = lane_rows.astype(np.uint16) if lane.rows < 1 << 16 else lane_rows  # uint16 sorts by radix
        np.add(np.argsort(narrow, kind="stable"), lane.first, out=order[lane.first : lane.last], casting="unsafe")
        first[lane.row_base + 1 :][: lane.rows] = bincount_chunked(lane_rows, lane.rows)

    # The longest first, so that no thread begins with it when the others have ended.
    longest_first = sorted(lanes, key=lambda lane: lane.first - lane.last)
    run_tasks([partial(sort_lane, lane) for lane in longest_first], 1 if len(row) < MIN_SLICE_SIZE else None)
    np.cumsum(first, out=first)
    return order, first


def compute_span(start: I64, duration: I64, first_profiler_event: int, counters: list[Counter]) -> tuple[int, int]:
    """Compute the range from the first to the last of what is drawn, without the profiler's own events.

    Those are `first_profiler_event` and up; they count where there is nothing else. (0, 0) for an empty trace.
    """
    lows = [int(counter.times[0]) for counter in counters if len(counter.times)]
    highs = [int(counter.times[-1]) for counter in counters if len(counter.times)]
    events = slice(0, first_profiler_event) if first_profiler_event or lows else slice(0, len(start))
    if len(start[events]):
        start, duration = start[events], duration[events]
        lows += map_blocks(lambda block: int(start[block].min()), len(start))
        highs += map_blocks(lambda block: int((start[block] + duration[block]).max()), len(start))
    return (min(lows), max(highs)) if lows else (0, 0)
