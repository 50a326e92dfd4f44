"""Find the long stretches of host code that a GPU waits for, and between which ops they lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.gpu_idle_causes import Gaps
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.launch_owners import describe_launch_place
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.trace.core.arrays import I64, find_largest


@dataclass(frozen=True, slots=True)
class HostPause:
    """Host code of one place that the GPU waits for: `time` ns over all devices, in `count` gaps.

    `place`: the ops around it ("between aten::to and aten::linear"). `typical`: median ns of host code in a gap.
    `events`: the work that waited for it. `longest`: the lane and the times (ns) of the longest: (lane, start, end).
    """

    time: int
    count: int
    typical: float
    place: str
    events: I64
    longest: tuple[int, int, int]


def find_largest_pause(view: ScopeView) -> HostPause | None:
    """Find the place with the largest host code pauses; None without a gap with enough of it."""
    gaps = view.gaps
    host_time = gaps.time[:, IdleCause.HOST]
    is_pause = host_time >= thresholds.HOST_PAUSE_MIN.value
    if not is_pause.any():
        return None
    candidates = np.flatnonzero(is_pause)
    longest = candidates[find_largest(host_time[candidates], _MAX_PAUSES)]
    pauses, host_time = gaps.select(longest), host_time[longest]
    places = [describe_launch_place(view.tables, event) for event in pauses.next_event.tolist()]
    distinct, number = np.unique(np.array(places), return_inverse=True)
    worst = int(np.bincount(number.reshape(-1), weights=host_time).argmax())
    chosen = np.flatnonzero(number.reshape(-1) == worst)
    events = pauses.next_event[chosen]
    return HostPause(
        int(host_time[chosen].sum()),
        len(chosen),
        float(np.median(host_time[chosen])),
        str(distinct[worst]),
        events[events >= 0],
        _locate_pause(view, pauses.select(chosen[:1])),
    )


def _locate_pause(view: ScopeView, gap: Gaps) -> tuple[int, int, int]:
    """Locate the host code in one gap: (lane of the launching thread, start, end), ns."""
    event, start, end = int(gap.next_event[0]), int(gap.start[0]), int(gap.end[0])
    launch = int(view.trace.links.launch_of[event]) if event >= 0 else -1
    if launch < 0:
        return int(view.gap_finder.host.busiest_lane), start, end
    return int(view.trace.lane[launch]), start, max(min(end, int(gap.call_start[0])), start + 1)


_MAX_PAUSES = 200
"""Pauses that are told apart by place; a trace with more has no pauses but slow code everywhere."""
