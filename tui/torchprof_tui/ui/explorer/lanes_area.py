"""The part of the explorer that shows the trace itself: the lanes, and the title, overview, ruler and labels around
them. What is said about it stands below: `inspection.py`."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.time.gpu_time import busy_of_ranks
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.name_display import Names
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.explorer.lanes.lane_gutter import BETWEEN_NOTES, Gutter
from torchprof_tui.ui.explorer.lanes.overview import Overview
from torchprof_tui.ui.explorer.lanes.time_ruler import Ruler
from torchprof_tui.ui.explorer.lanes.timeline import Timeline
from torchprof_tui.ui.explorer.layout import Layout, layout, lines_of_lanes
from torchprof_tui.ui.explorer.title_line import MOST_DEVICES, Title
from torchprof_tui.ui.explorer.view_state import Walk

FIRST_LANE_SHARE = 0.5
"""Of the trace's time: a first lane from whose first event to its last there is less says little of the trace."""


class TraceView:
    """Owns the widgets. `show` after every move hands them where one is, which is cheap: each compares, and repaints in
    the next frame what differs."""

    def __init__(self, walk: Walk, busy: dict[int, Intervals]) -> None:
        trace = walk.trace
        self._walk = walk
        worked = list(busy.values())
        self.timeline = Timeline(trace, Names(trace.names), id="timeline")
        self.gutter = Gutter(trace, rank_notes(trace, busy), id="gutter")
        self.title = Title(trace, worked, id="title")
        shown, kind = (worked[:MOST_DEVICES], Kind.KERNEL) if worked else ([cpu_time(trace)], Kind.OP)
        self.overview = Overview(trace.steps, shown, kind, id="overview")
        self.ruler = Ruler(trace.steps, id="ruler")
        self._left = self.gutter.width_wanted(80)

    def fit(self, width: int, height: int) -> Layout:
        """Give each widget its lines on a screen of this size; what is left to share out is returned."""
        lanes = lines_of_lanes(self._walk.trace, self._walk.own_trace())
        shared = layout(width, height, self.overview.lines_wanted, self.ruler.lines_wanted, lanes)
        self._left = self.gutter.width_wanted(width)
        self.gutter.styles.width = self._left
        self.overview.styles.height = shared.overview
        self.ruler.styles.height = shared.ruler
        return shared

    def show(self) -> None:
        walk = self._walk
        marked = (walk.mark.start, walk.mark.end) if walk.mark is not None else None
        found = walk.search.found
        self.timeline.show(walk.viewport, walk.lanes.lines, walk.lanes.top)
        self.timeline.select(walk.selected)
        self.timeline.mark(marked)
        self.timeline.show_found(found.names if found is not None else None)
        self.gutter.show(walk.lanes.lines, walk.lanes.top)
        self.gutter.point_at(walk.current_lane() if walk.lane >= 0 else -1)
        self.ruler.show_steps(walk.steps())
        self.overview.show_steps(walk.steps())
        self.ruler.show(walk.viewport, self._left, walk.cursor(), marked)
        self.overview.show(walk.viewport, self._left)
        self.title.show(walk.viewport)


def rank_notes(trace: Trace, busy: dict[int, Intervals]) -> dict[int, str]:
    """By the line of each rank: that it was cut, and how busy its GPUs were."""
    shares = busy_of_ranks(trace, busy)
    notes: dict[int, list[str]] = {}
    for rank in trace.ranks.all if trace.ranks is not None else ():
        notes[rank.own_lane] = ["cut"] if rank.partial else []
        if rank.own_lane in shares:
            notes[rank.own_lane].append(format_share(shares[rank.own_lane]))
    return {lane: BETWEEN_NOTES.join(said) for lane, said in notes.items() if said}


def cpu_time(trace: Trace) -> Intervals:
    """When the first lane was busy: the overview of a trace without GPU work. Where that lane is over while others are
    not, when any thread was."""
    if not trace.lanes:
        return union(trace.start, trace.start)
    own = slice(trace.lanes[0].first, trace.lanes[0].last)
    start, end = trace.start[own], trace.start[own] + trace.duration[own]
    reach = int(end.max() - start.min()) if len(start) else 0
    if reach < FIRST_LANE_SHARE * (trace.span[1] - trace.span[0]):
        threads = np.array([lane.role is Role.THREAD for lane in trace.lanes], np.bool_)
        outermost = np.flatnonzero((trace.parent < 0) & threads[trace.lane])
        if len(outermost):
            start = trace.start[outermost]
            end = start + trace.duration[outermost]
    return union(start, end)
