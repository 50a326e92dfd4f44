"""Choose the lanes of one side of a comparison: streams that stay on screen, then threads, busiest first."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.compare.side import Side
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.lanes.screen_lines import LaneArrangement, LaneLines

MAX_STREAM_SHARE = 0.5
"""Share of the lines of a side that streams take: the busiest thread needs the rest."""


def order_lanes(trace: Trace) -> list[int]:
    """Order the lanes: streams by busy time, threads by busy time, counters. Lanes without events are left out."""
    busy = np.zeros(len(trace.lanes) + 1, np.int64)
    outermost = np.flatnonzero(trace.parent < 0)
    np.add.at(busy, trace.lane[outermost], np.maximum(trace.duration[outermost], 1))
    rank = {Role.STREAM: 0, Role.THREAD: 1, Role.COUNTER: 3}
    lanes = [
        number
        for number, lane in enumerate(trace.lanes)
        if lane.role is not Role.RANK and (len(lane) or lane.role is Role.COUNTER)
    ]
    return sorted(lanes, key=lambda number: (rank.get(trace.lanes[number].role, 2), -int(busy[number]), number))


def arrange_lanes(trace: Trace, order: list[int], height: int, folded: frozenset[int]) -> LaneLines:
    """Arrange the lanes for `height` lines: the busiest streams stay, by number, the other lanes scroll below them."""
    room = max(int(height * MAX_STREAM_SHARE) - 1, 1)
    pinned: list[int] = []
    for number in order:
        lane = trace.lanes[number]
        rows = 1 if number in folded else lane.rows
        if lane.role is Role.STREAM and (rows <= room or not pinned) and room > 0:
            pinned.append(number)
            room -= rows
    threads = [number for number in order if trace.lanes[number].role is Role.THREAD]
    others = [number for number in order if number not in pinned]
    body = sorted(others, key=lambda number: number not in threads[:1])  # the busiest thread first; stable
    if not threads:
        body, pinned = order, []
    return LaneLines.build_plain(trace, body, LaneArrangement(folded=folded, pinned=tuple(sorted(pinned))))


def find_first_top(side: Side, lines: LaneLines) -> int:
    """Find the scroll offset that shows the outermost ops of the busiest thread, below Python frames around them."""
    trace = side.trace
    first, last = side.window
    inside = (trace.start >= first) & (trace.start < last) & (trace.kind == Kind.OP)
    lanes = [number for number in lines.lanes() if trace.lanes[number].role is Role.THREAD]
    if not lanes:
        return 0
    rows = trace.row[inside & (trace.lane == lanes[0])]
    index = lines.line_index(lanes[0], int(rows.min())) if len(rows) else None
    return max(index or 0, 0)
