"""Sort lanes: the launching thread, other threads, streams by device, async events, the profiler's own."""

from __future__ import annotations

import re
from typing import Any

from torchprof_tui.trace.build.lane_assignment import DEVICE_WIDE, SPANS, PendingLane
from torchprof_tui.trace.build.track_metadata import TrackMetadata
from torchprof_tui.trace.model.lanes import Role

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
    lead = max(threads, key=_launching_thread_key, default=None)

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
        return (
            3,
            lane.tid == SPANS,
            lane.pid == "profiler",
            _natural_sort_key(lane.pid),
            _natural_sort_key(lane.tid),
        )

    return sorted(pending_lanes, key=key)


def _launching_thread_key(lane: PendingLane) -> tuple[bool, int, bool, int]:
    return (lane.has_step and lane.launches > 0, lane.launches, lane.has_step, lane.events)


def _natural_sort_key(text: str) -> tuple[int, int, str]:
    """Sort numbers by value and before words."""
    return (0, int(text), "") if re.fullmatch(r"-?[0-9]{1,30}", text) else (1, 0, text)
