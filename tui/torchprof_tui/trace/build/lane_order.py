"""Name the lanes, and put them into the order of the screen."""

from __future__ import annotations

import re
from typing import Any

from torchprof_tui.trace.build.lane_assignment import DEVICE_WIDE, PendingLane
from torchprof_tui.trace.build.track_metadata import TrackMetadata
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.lanes import SPANS, Role

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


def has_several_processes(pending_lanes: list[PendingLane], track_metadata: TrackMetadata) -> bool:
    """Tell whether there are threads of more than one process, devices and merged lanes left out."""
    pids = {lane.pid for lane in pending_lanes if lane.role is Role.THREAD and not lane.merged_count}
    return sum(not track_metadata.is_gpu(pid) for pid in pids) > 1


def find_first_profiler_lane(pending_lanes: list[PendingLane]) -> int:
    """Find the index of the first of the profiler's own lanes, which are last."""
    return sum(lane.role is not Role.PROFILER for lane in pending_lanes)
