"""In which order lanes stand, and what they are called: from what the file's `M` entries declare."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torchprof_tui.trace.build.lane_assignment import DEVICE_WIDE, SPANS, PendingLane
from torchprof_tui.trace.model.lanes import Role

_KINETO_THREAD = re.compile(r"thread \S+ \((.*)\)", re.DOTALL)
_STREAM_ROLES = {Role.GPU_ANNOTATIONS: 0, Role.STREAM: 1, Role.SYNC: 2}

_MERGED_LANE_NOUNS = {
    Role.THREAD: "threads",
    Role.STREAM: "streams",
    Role.SYNC: "sync lanes",
    Role.GPU_ANNOTATIONS: "annotation lanes",
    Role.ASYNC: "async lanes",
    Role.PROFILER: "overhead lanes",
}


@dataclass(slots=True)
class TrackMetadata:
    """What the file says about processes (by pid) and threads (by pid and tid). Later entries replace earlier ones:
    Kineto names a thread twice, first by its process, then by itself."""

    process_names: dict[str, str] = field(default_factory=dict)
    process_labels: dict[str, str] = field(default_factory=dict)
    process_sort_index: dict[str, float] = field(default_factory=dict)
    thread_names: dict[tuple[str, str], str] = field(default_factory=dict)
    thread_sort_index: dict[tuple[str, str], float] = field(default_factory=dict)

    @classmethod
    def from_entries(cls, metadata: Iterable[tuple[str, str, str, Any]]) -> TrackMetadata:
        found = cls()
        for name, pid, tid, value in metadata:
            if value is None:
                continue
            if name == "process_name":
                found.process_names[pid] = str(value).strip()
            elif name == "process_labels":
                found.process_labels[pid] = str(value).strip()
            elif name == "process_sort_index":
                found.process_sort_index[pid] = _parse_number(value)
            elif name == "thread_name":
                text = str(value).strip()
                match = _KINETO_THREAD.fullmatch(text)
                found.thread_names[pid, tid] = match[1] if match else text
            elif name == "thread_sort_index":
                found.thread_sort_index[pid, tid] = _parse_number(value)
        return found

    def is_accelerator(self, pid: str) -> bool:
        """Ascend puts what its NPU did under a process of this name, without categories."""
        return self.process_names.get(pid) == "Ascend Hardware"

    def is_gpu(self, pid: str) -> bool:
        """Kineto labels the processes that stand for devices "GPU 0", "XPU 0", … and the others "CPU"."""
        return re.fullmatch(r"[A-Z]PU [0-9]+", self.process_labels.get(pid, "")) is not None


def section_of_role(role: Role) -> int:
    """Lanes stand in four sections: threads, streams and what is around them, async events, the profiler's own."""
    if role is Role.THREAD:
        return 0
    return 1 if role in _STREAM_ROLES else 2 if role is Role.ASYNC else 3


def sort_lanes(pending_lanes: list[PendingLane], track_metadata: TrackMetadata) -> list[PendingLane]:
    """The launching thread first, other threads by process, streams by device, async, the profiler last.

    The launching thread is one that launches GPU work and runs the steps: in training, the autograd thread launches
    more. Else the one with most launches, else one with steps, else with most events.
    """
    threads = [place for place in pending_lanes if place.role is Role.THREAD]
    lead = max(threads, key=_launching_thread_key, default=None)

    def key(place: PendingLane) -> tuple[Any, ...]:
        if place.role is Role.THREAD:
            track = (place.pid, place.tid)
            return (
                0,
                place is not lead,
                lead is not None and place.pid != lead.pid,
                track_metadata.process_sort_index.get(place.pid, 0.0),
                _natural_sort_key(place.pid),
                -place.launches,
                track_metadata.thread_sort_index.get(track, 0.0),
                _natural_sort_key(place.tid),
            )
        if place.role in _STREAM_ROLES:
            return (
                1,
                place.device is None,
                _natural_sort_key(place.pid),
                place.stream == DEVICE_WIDE,
                _natural_sort_key(place.tid),
                _STREAM_ROLES[place.role],
            )
        if place.role is Role.ASYNC:
            return (2, place.pid != (lead.pid if lead else ""), _natural_sort_key(place.pid), place.tid)
        return (
            3,
            place.tid == SPANS,
            place.pid == "profiler",
            _natural_sort_key(place.pid),
            _natural_sort_key(place.tid),
        )

    return sorted(pending_lanes, key=key)


def _launching_thread_key(place: PendingLane) -> tuple[bool, int, bool, int]:
    return (place.has_step and place.launches > 0, place.launches, place.has_step, place.events)


def format_merged_label(lane: PendingLane) -> str:
    """What a lane is called on which several are drawn: how many."""
    of = "" if lane.device is None else f" of GPU {lane.device}"
    return f"{lane.merged_count:,} further {_MERGED_LANE_NOUNS[lane.role]}{of}"


def format_label_and_group(
    lane: PendingLane,
    track_metadata: TrackMetadata,
    is_kineto: bool,
    several_processes: bool,
    device_names: dict[int, str],
) -> tuple[str, str]:
    """Label and group heading. `several`: there are threads of more than one process."""
    pid, tid = lane.pid, lane.tid
    process = track_metadata.process_names.get(pid, "")
    thread = track_metadata.thread_names.get((pid, tid), "")
    if lane.merged_count:
        return format_merged_label(lane), "further lanes"
    whose = " ".join(filter(None, [process or "process", pid]))
    if lane.role in _STREAM_ROLES:
        suffix = {Role.STREAM: "", Role.SYNC: " sync", Role.GPU_ANNOTATIONS: " annotations"}[lane.role]
        if lane.device is None:
            return (thread or (f"stream {tid}" if tid.isdecimal() else tid or "stream")) + suffix, whose
        group = " ".join(filter(None, ["GPU", str(lane.device), device_names.get(lane.device, "")]))
        return ("device" if lane.stream == DEVICE_WIDE else f"stream {lane.stream}") + suffix, group
    if lane.role is Role.PROFILER:
        return (tid if pid == "profiler" else "overhead" if pid.startswith("-") else f"overhead {tid}"), "profiler"
    if lane.role is Role.ASYNC:
        return tid or "async", f"async {whose}" if several_processes else "async"
    if is_kineto:
        # A Python frame of a thread that Kineto does not know has pid 0 and tid 0: not a thread of "GPU 0".
        label = " ".join(filter(None, ["CPU", tid, thread]))
        return label, f"CPU {whose}" if several_processes and not track_metadata.is_gpu(pid) else "CPU"
    if thread:
        return (thread if tid in thread else f"{thread} {tid}"), whose
    return (f"thread {tid}" if tid else "thread"), whose


def _parse_number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


def _natural_sort_key(text: str) -> tuple[int, int, str]:
    """Numbers by value and before words."""
    return (0, int(text), "") if re.fullmatch(r"-?[0-9]{1,30}", text) else (1, 0, text)
