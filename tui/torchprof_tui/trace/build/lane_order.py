"""Name the lanes, put them into the order of the screen, and lay out their events and their rows."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np

from torchprof_tui.trace.build.counters import CounterSeries
from torchprof_tui.trace.build.event_order import EventColumns
from torchprof_tui.trace.build.lane_assignment import DEVICE_WIDE, PendingLane
from torchprof_tui.trace.build.track_metadata import TrackMetadata
from torchprof_tui.trace.core.arrays import I32, I64, bincount_chunked
from torchprof_tui.trace.core.column_file import ColumnAllocator
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.thread_tasks import MIN_SLICE_SIZE, map_blocks, run_tasks
from torchprof_tui.trace.model.lanes import SPANS, Lane, Role
from torchprof_tui.trace.model.trace import Counter
from torchprof_tui.trace.model.trace_metadata import TraceMetadata, read_device_names

_MERGED_LANE_NOUNS = {
    Role.THREAD: "threads",
    Role.STREAM: "streams",
    Role.SYNC: "sync lanes",
    Role.GPU_ANNOTATIONS: "annotation lanes",
    Role.ASYNC: "async lanes",
    Role.PROFILER: "overhead lanes",
}
_STREAM_SUFFIXES = {Role.STREAM: "", Role.SYNC: " sync", Role.GPU_ANNOTATIONS: " annotations"}


def format_merged_label(lane: PendingLane) -> str:
    """Format the label of a lane on which several are merged: how many."""
    device = "" if lane.device is None else f" of GPU {lane.device}"
    return f"{lane.merged_count:,} more {_MERGED_LANE_NOUNS[lane.role]}{device}"


@record
class LaneNamer:
    """Format labels and group headings. `several_processes`: there are threads of more than one process."""

    track_metadata: TrackMetadata
    is_kineto: bool
    several_processes: bool
    device_names: dict[int, str]

    def format_label_and_group(self, lane: PendingLane) -> tuple[str, str]:
        if lane.merged_count:
            return format_merged_label(lane), "further lanes"
        if lane.role in STREAM_ROLES:
            return self._format_stream(lane)
        if lane.role is Role.PROFILER:
            overhead = "overhead" if lane.pid.startswith("-") else f"overhead {lane.tid}"
            return lane.tid if lane.pid == "profiler" else overhead, "profiler"
        if lane.role is Role.ASYNC:
            group = f"async {self._format_process(lane.pid)}" if self.several_processes else "async"
            return lane.tid or "async", group
        name, process = self._thread_name(lane), self._format_process(lane.pid)
        if not self.is_kineto:
            if name:
                return (name if lane.tid in name else f"{name} {lane.tid}"), process
            return (f"thread {lane.tid}" if lane.tid else "thread"), process
        # A Python frame of a thread that Kineto does not know has pid 0 and tid 0: not a thread of "GPU 0".
        names_process = self.several_processes and not self.track_metadata.is_gpu(lane.pid)
        return " ".join(filter(None, ["CPU", lane.tid, name])), f"CPU {process}" if names_process else "CPU"

    def _format_stream(self, lane: PendingLane) -> tuple[str, str]:
        suffix = _STREAM_SUFFIXES[lane.role]
        if lane.device is None:
            stream = f"stream {lane.tid}" if lane.tid.isdecimal() else lane.tid or "stream"
            return (self._thread_name(lane) or stream) + suffix, self._format_process(lane.pid)
        group = " ".join(filter(None, ["GPU", str(lane.device), self.device_names.get(lane.device, "")]))
        if lane.stream == DEVICE_WIDE:
            return "device" + suffix, group
        stream = f"stream {lane.stream}"
        name = self.track_metadata.thread_names.get((str(lane.device), str(lane.stream)), "").strip()
        return (stream if not name or name.startswith("stream") else f"{name} ({stream})") + suffix, group

    def _format_process(self, pid: str) -> str:
        return " ".join(filter(None, [self.track_metadata.process_names.get(pid) or "process", pid]))

    def _thread_name(self, lane: PendingLane) -> str:
        return self.track_metadata.thread_names.get((lane.pid, lane.tid), "")


STREAM_ROLES = {Role.GPU_ANNOTATIONS: 0, Role.STREAM: 1, Role.SYNC: 2}
"""Roles of lanes on GPUs, in the order in which the lanes of one stream appear."""


def section_of_role(role: Role) -> int:
    """Return the section: 0 threads, 1 streams with annotations and syncs, 2 async events, 3 the profiler's own."""
    if role is Role.THREAD:
        return 0
    return 1 if role in STREAM_ROLES else 2 if role is Role.ASYNC else 3


def sort_lanes(pending_lanes: list[PendingLane], track_metadata: TrackMetadata) -> list[PendingLane]:
    """Sort the lanes: the launching thread, other threads by process, streams by device, async, the profiler last.

    The launching thread is one that launches GPU work and runs the steps: in training, the autograd thread launches
    more. Else the one with most launches, else one with steps, else with most events.
    """
    threads = [lane for lane in pending_lanes if lane.role is Role.THREAD]
    lead = max(
        threads,
        key=lambda lane: (lane.has_step and lane.launches > 0, lane.launches, lane.has_step, lane.events),
        default=None,
    )

    def key(lane: PendingLane) -> tuple[Any, ...]:
        if lane.role is Role.THREAD:
            track = (lane.pid, lane.tid)
            return (
                0,
                lane is not lead,
                lead is not None and lane.pid != lead.pid,
                track_metadata.process_sort_index.get(lane.pid, 0.0),
                _natural_sort_key(lane.pid),
                -lane.launches,
                track_metadata.thread_sort_index.get(track, 0.0),
                _natural_sort_key(lane.tid),
            )
        if lane.role in STREAM_ROLES:
            return (
                1,
                lane.device is None,
                _natural_sort_key(lane.pid),
                lane.stream == DEVICE_WIDE,
                _natural_sort_key(lane.tid),
                STREAM_ROLES[lane.role],
            )
        if lane.role is Role.ASYNC:
            return (2, lane.pid != (lead.pid if lead else ""), _natural_sort_key(lane.pid), lane.tid)
        return (3, lane.tid == SPANS, lane.pid == "profiler", _natural_sort_key(lane.pid), _natural_sort_key(lane.tid))

    return sorted(pending_lanes, key=key)


def _natural_sort_key(text: str) -> tuple[int, int, str]:
    """Sort numbers by value and before words."""
    return (0, int(text), "") if re.fullmatch(r"-?[0-9]{1,30}", text) else (1, 0, text)


def find_first_profiler_lane(pending_lanes: list[PendingLane]) -> int:
    """Find the index of the first of the profiler's own lanes, which are last."""
    return sum(lane.role is not Role.PROFILER for lane in pending_lanes)


@record
class LaneLayout:
    """The lanes of the trace in display order. `row_order`, `row_first`, `span`: as in `Trace`."""

    lanes: list[Lane]
    counters: list[Counter]
    row_order: I32
    row_first: I64
    span: tuple[int, int]


def lay_out_lanes(
    file_format: str,
    trace_metadata: TraceMetadata,
    pending_lanes: list[PendingLane],
    track_metadata: TrackMetadata,
    first: I64,
    columns: EventColumns,
    series: list[CounterSeries],
    allocate: ColumnAllocator,
) -> LaneLayout:
    """Lay out the lanes with their rows, under the names that the file declares, counters before the profiler's lanes.

    `first` int64[pending lanes + 1]: the bounds of each lane's events. Renumbers `columns.lane` to insert the
    counters.
    """
    # Threads of more than one process, devices and merged lanes left out.
    pids = {lane.pid for lane in pending_lanes if lane.role is Role.THREAD and not lane.merged_count}
    namer = LaneNamer(
        track_metadata,
        is_kineto=file_format != "chrome",
        several_processes=sum(not track_metadata.is_gpu(pid) for pid in pids) > 1,
        device_names=read_device_names(trace_metadata.devices),
    )
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
    for counter in series:
        name = counter.name
        counters.append(Counter(len(lanes), name, counter.unit, counter.times, counter.values))
        lanes.append(
            Lane(Role.COUNTER, counter.pid, counter.tid, name, counter.group, event, event, 1, next_row_base())
        )
    for index in range(first_profiler_lane, len(pending_lanes)):
        append_lane(index)
    return lanes, counters


def sort_by_row(lanes: list[Lane], row: I32, allocate: ColumnAllocator) -> tuple[I32, I64]:
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
