"""Lay out the lanes: their events, their rows, and the order of all rows of the trace.

Above MAX_LANES, the least important lanes are merged for drawing, and this is reported. A screen shows a hundred lanes;
a file may declare a million. Each lane costs a label, a heading and rows on the screen, so above MAX_LANES the
remaining lanes of one role (and one device) share a lane. Only drawing is bounded: parents and self times are computed
on the lanes of the file, before `merge_lanes` reorders the events.

A *slot* is a lane of the file; a *lane* is a lane of the trace, which has one slot unless slots were merged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from torchprof_tui.trace.build.counters import CounterSeries
from torchprof_tui.trace.build.event_order import EventColumns
from torchprof_tui.trace.build.lane_assignment import DEVICE_WIDE, ROLES, SPANS, PendingLane, PendingLanes
from torchprof_tui.trace.build.nesting import Nesting, allocate_rows
from torchprof_tui.trace.build.track_metadata import TrackMetadata
from torchprof_tui.trace.core.arrays import I32, I64, Bool, bincount_chunked
from torchprof_tui.trace.core.column_file import ColumnAllocator, allocate_in_memory
from torchprof_tui.trace.core.thread_tasks import MIN_SLICE_SIZE, map_blocks, run_tasks, take_parallel
from torchprof_tui.trace.model.lanes import Lane, Role
from torchprof_tui.trace.model.trace import Counter

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


@dataclass(frozen=True, slots=True)
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
            return _format_profiler_label(lane), "profiler"
        if lane.role is Role.ASYNC:
            group = f"async {self._format_process(lane.pid)}" if self.several_processes else "async"
            return lane.tid or "async", group
        return self._format_kineto_thread(lane) if self.is_kineto else self._format_thread(lane)

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

    def _format_kineto_thread(self, lane: PendingLane) -> tuple[str, str]:
        label = " ".join(filter(None, ["CPU", lane.tid, self._thread_name(lane)]))
        # A Python frame of a thread that Kineto does not know has pid 0 and tid 0: not a thread of "GPU 0".
        if self.several_processes and not self.track_metadata.is_gpu(lane.pid):
            return label, f"CPU {self._format_process(lane.pid)}"
        return label, "CPU"

    def _format_thread(self, lane: PendingLane) -> tuple[str, str]:
        process = self._format_process(lane.pid)
        name = self._thread_name(lane)
        if name:
            return (name if lane.tid in name else f"{name} {lane.tid}"), process
        return (f"thread {lane.tid}" if lane.tid else "thread"), process

    def _format_process(self, pid: str) -> str:
        return " ".join(filter(None, [self.track_metadata.process_names.get(pid) or "process", pid]))

    def _thread_name(self, lane: PendingLane) -> str:
        return self.track_metadata.thread_names.get((lane.pid, lane.tid), "")


def _format_profiler_label(lane: PendingLane) -> str:
    if lane.pid == "profiler":
        return lane.tid
    return "overhead" if lane.pid.startswith("-") else f"overhead {lane.tid}"


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


MAX_LANES = 10_000
"""Lanes of their own, plus a few that have no other lane to merge with. A host with 200 cores and 8 GPUs has some
thousand."""

_MAX_DEVICES = 256
"""Devices whose further lanes are kept apart, so that the busy time of each is known; the others are merged without a
device."""

MERGED_TID = "further"
"""The tid of merged lanes; no thread has this one."""


@dataclass(frozen=True, slots=True)
class LaneOrder:
    """The lanes in display order. Slots are renumbered so that lane k has slots `first[k]:first[k + 1]`."""

    pending_lanes: list[PendingLane]
    first: I64

    @property
    def slot_count(self) -> int:
        return int(self.first[-1])

    @property
    def merged_indexes(self) -> list[int]:
        """Indexes of the lanes that have several slots."""
        return [index for index, lane in enumerate(self.pending_lanes) if lane.merged_count]


def order_lanes(
    slot: I32, pending_lanes: PendingLanes, launches: I64, has_step: Bool, track_metadata: TrackMetadata
) -> tuple[LaneOrder, I32]:
    """Put the lanes in display order, above MAX_LANES with the least important ones merged.

    Returns the order and the renumbered slot of each drawn event, int32[d].

    `slot` int32[d]: the slot of each drawn event; `launches` int64[slots]: calls that launched GPU work; `has_step`
    bool[slots]: whether steps ran there.
    """
    is_separate = _select_separate_lanes(pending_lanes, launches, has_step)
    merged = []
    for lane, slots in _group_other_lanes(pending_lanes, ~is_separate):
        if len(slots) == 1:
            is_separate[slots] = True  # the only one of its group
        else:
            merged.append((lane, slots))
    separate_slots = np.flatnonzero(is_separate)
    separate = [pending_lanes.create_lane(k) for k in separate_slots.tolist()]
    columns = (launches[separate_slots].tolist(), has_step[separate_slots].tolist())
    for lane, launch_count, steps in zip(separate, *columns, strict=True):
        lane.launches, lane.has_step = launch_count, steps
    slot_of = {id(lane): k for lane, k in zip(separate, separate_slots.tolist(), strict=True)}
    ordered = sort_lanes(separate, track_metadata)
    members = [np.array([slot_of[id(lane)]]) for lane in ordered]
    for lane, slots in merged:
        index = sum(section_of_role(other.role) <= section_of_role(lane.role) for other in ordered)
        ordered.insert(index, lane)
        members.insert(index, slots)
    first = np.zeros(len(ordered) + 1, np.int64)
    np.cumsum([len(slots) for slots in members], out=first[1:])
    new_slot = np.empty(len(pending_lanes), np.int32)
    new_slot[np.concatenate(members) if members else []] = np.arange(len(pending_lanes), dtype=np.int32)
    return LaneOrder(ordered, first), take_parallel(new_slot, slot)


def _select_separate_lanes(pending_lanes: PendingLanes, launches: I64, has_step: Bool) -> Bool:
    """Select the MAX_LANES most important: those with steps, with launches, with most events: bool[slots]."""
    if len(pending_lanes) <= MAX_LANES:
        return np.ones(len(pending_lanes), np.bool_)
    order = np.lexsort((-pending_lanes.events, -launches, ~has_step))
    is_separate = np.zeros(len(pending_lanes), np.bool_)
    is_separate[order[:MAX_LANES]] = True
    return is_separate


def _group_other_lanes(pending_lanes: PendingLanes, others: Bool) -> Iterator[tuple[PendingLane, I64]]:
    """Group the slots to be merged by role and by device, except beyond _MAX_DEVICES: (merged lane, its slots)."""
    remaining = np.flatnonzero(others)
    for role in np.unique(pending_lanes.role[remaining]).tolist():
        slots = remaining[pending_lanes.role[remaining] == role]
        devices, code = np.unique(pending_lanes.device[slots], return_inverse=True)
        order = np.argsort(-np.bincount(code, weights=pending_lanes.events[slots]), kind="stable")
        kept = devices[order[:_MAX_DEVICES]]
        device_of_slot = np.where(np.isin(pending_lanes.device[slots], kept), pending_lanes.device[slots], -1)
        for number in np.unique(device_of_slot).tolist():
            members = slots[device_of_slot == number]
            device = None if number < 0 else number
            pid = "" if device is None else str(device)
            lane = PendingLane(ROLES[role], pid, MERGED_TID, device=device, merged_count=len(members))
            lane.events = int(pending_lanes.events[members].sum())
            yield lane, members


def describe_merged_lanes(lane_order: LaneOrder) -> tuple[str, int]:
    """Describe the merged lanes for the problem that reports them: an example, and how many slots are merged."""
    lanes = [lane_order.pending_lanes[index] for index in lane_order.merged_indexes]
    words = ", ".join(format_merged_label(lane) for lane in lanes[:3])
    return f"{words}{', …' if len(lanes) > 3 else ''}", sum(lane.merged_count for lane in lanes)


def merge_lanes(lane_order: LaneOrder, slot: I32, start: I64, duration: I64, row: I32) -> tuple[I64, I32, I32]:
    """Reorder events sorted by slot so that they are sorted by lane; all arrays are [n], by slot.

    Returns `order` int64[n] (new event k is old event `order[k]`), and the lane and the row of the new events: where
    slots are merged, the lowest free row. Parents still precede their children.
    """
    bounds = np.searchsorted(slot, lane_order.first)
    lane = np.repeat(np.arange(len(lane_order.pending_lanes), dtype=np.int32), np.diff(bounds))
    order = np.arange(len(slot))
    row = row.copy()
    for index in lane_order.merged_indexes:
        low, high = int(bounds[index]), int(bounds[index + 1])
        members = low + np.lexsort((-duration[low:high], start[low:high]))
        order[low:high] = members
        row[low:high] = allocate_rows(start[members], start[members] + np.maximum(duration[members], 1))
    return order, lane, row


def reorder_nesting(nested: Nesting, order: I64, row: I32) -> Nesting:
    """Renumber the nesting when new event k is old event `order[k]`; `row`: the rows of the new events."""
    new_index = np.empty(len(order), np.int32)
    new_index[order] = np.arange(len(order), dtype=np.int32)
    parent = nested.parent[order]
    parent = np.where(parent >= 0, new_index[parent], np.int32(-1))
    return Nesting(row, parent, new_index[nested.crossed], new_index[nested.crossing])


@dataclass(frozen=True, slots=True)
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


def has_several_processes(pending_lanes: list[PendingLane], track_metadata: TrackMetadata) -> bool:
    """Tell whether there are threads of more than one process, devices and merged lanes left out."""
    pids = {lane.pid for lane in pending_lanes if lane.role is Role.THREAD and not lane.merged_count}
    return sum(not track_metadata.is_gpu(pid) for pid in pids) > 1


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


def find_first_profiler_lane(pending_lanes: list[PendingLane]) -> int:
    """Find the index of the first of the profiler's own lanes, which are last."""
    return sum(lane.role is not Role.PROFILER for lane in pending_lanes)


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
