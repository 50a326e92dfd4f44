"""Find the long stretches of host code that a GPU waits for, and between which ops they lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.gpu_idle_causes import Gaps, IdleCause
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace


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
    pauses = gaps.select(is_pause)
    host_time = host_time[is_pause]
    longest = np.argsort(-host_time, kind="stable")[:_MAX_PAUSES]
    pauses, host_time = pauses.select(longest), host_time[longest]
    places = [_describe_place(view, event) for event in pauses.next_event.tolist()]
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

_NAME_CELLS = 40
_OP_KINDS = (int(Kind.OP), int(Kind.RUNTIME))


def _describe_place(view: ScopeView, next_event: int) -> str:
    """Describe between which ops the launching thread ran host code: the outermost before and after it."""
    tables, trace = view.tables, view.trace
    launch = int(trace.links.launch_of[next_event]) if next_event >= 0 else -1
    if launch < 0:
        return "after the last launch"
    after = _find_outermost(trace, launch)
    after_name = tables.short_name(after, _NAME_CELLS)
    activity, lane = tables.ops_and_calls, trace.lanes[int(trace.lane[launch])]
    first, last = activity.row.searchsorted([lane.first, lane.last]).tolist()
    before = first + int(activity.start[first:last].searchsorted(int(trace.start[after]))) - 1
    if before < first:
        return f"before {after_name}"
    before_name = tables.short_name(_find_outermost(trace, int(activity.row[before])), _NAME_CELLS)
    return f"between {before_name} and {after_name}"


def _find_outermost(trace: Trace, row: int) -> int:
    """Return the outermost op or call that contains an op or call."""
    outermost = ancestor = row
    while ancestor >= 0:
        if int(trace.kind[ancestor]) in _OP_KINDS:
            outermost = ancestor
        ancestor = int(trace.parent[ancestor])
    return outermost
