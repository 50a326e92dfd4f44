"""The part of the explorer that shows the trace itself: the lanes, and the title, overview, ruler and labels around
them. What is said about it stands below: `inspection.py`."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.time.gpu_time import compute_busy_shares
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.name_display import DisplayNames
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.explorer.lanes.lane_gutter import NOTE_SEPARATOR, Gutter
from torchprof_tui.ui.explorer.lanes.overview import Overview
from torchprof_tui.ui.explorer.lanes.time_ruler import Ruler
from torchprof_tui.ui.explorer.lanes.timeline import Timeline
from torchprof_tui.ui.explorer.layout import ExplorerLayout, compute_layout, count_lane_lines
from torchprof_tui.ui.explorer.title_line import MAX_DEVICES, TitleLine
from torchprof_tui.ui.explorer.view_state import ViewState

MIN_FIRST_LANE_SHARE = 0.5
"""Of the trace's time: a first lane from whose first event to its last there is less says little of the trace."""


class LanesArea:
    """Owns the widgets. `show` after every move hands them where one is, which is cheap: each compares, and repaints in
    the next frame what differs."""

    def __init__(self, view_state: ViewState, gpu_busy: dict[int, Intervals]) -> None:
        trace = view_state.trace
        self._view_state = view_state
        worked = list(gpu_busy.values())
        self.timeline = Timeline(trace, DisplayNames(trace.names), id="timeline")
        self.gutter = Gutter(trace, format_rank_notes(trace, gpu_busy), id="gutter")
        self.title = TitleLine(trace, worked, id="title")
        shown, kind = (worked[:MAX_DEVICES], Kind.KERNEL) if worked else ([cpu_busy_intervals(trace)], Kind.OP)
        self.overview = Overview(trace.steps, shown, kind, id="overview")
        self.ruler = Ruler(trace.steps, id="ruler")
        self._gutter_width = self.gutter.preferred_width(80)

    def apply_layout(self, width: int, height: int) -> ExplorerLayout:
        """Give each widget its lines on a screen of this size; what is left to share out is returned."""
        lanes = count_lane_lines(self._view_state.trace, self._view_state.current_trace())
        shared = compute_layout(width, height, self.overview.preferred_lines, self.ruler.preferred_lines, lanes)
        self._gutter_width = self.gutter.preferred_width(width)
        self.gutter.styles.width = self._gutter_width
        self.overview.styles.height = shared.overview
        self.ruler.styles.height = shared.ruler
        return shared

    def update_widgets(self) -> None:
        walk = self._view_state
        marked = (walk.mark.start, walk.mark.end) if walk.mark is not None else None
        found = walk.search.matches
        self.timeline.show_lines(walk.viewport, walk.lane_view.lane_lines, walk.lane_view.top)
        self.timeline.select_event(walk.selected)
        self.timeline.show_marked_range(marked)
        self.timeline.show_matches(found.name_mask if found is not None else None)
        self.gutter.show_lines(walk.lane_view.lane_lines, walk.lane_view.top)
        self.gutter.set_current_lane(walk.current_lane() if walk.lane >= 0 else -1)
        self.ruler.show_steps(walk.current_steps())
        self.overview.show_steps(walk.current_steps())
        self.ruler.show_viewport(walk.viewport, self._gutter_width, walk.cursor_time(), marked)
        self.overview.show_viewport(walk.viewport, self._gutter_width)
        self.title.show_viewport(walk.viewport)


def format_rank_notes(trace: Trace, gpu_busy: dict[int, Intervals]) -> dict[int, str]:
    """By the line of each rank: that it was cut, and how busy its GPUs were."""
    shares = compute_busy_shares(trace, gpu_busy)
    notes: dict[int, list[str]] = {}
    for rank in trace.ranks.all if trace.ranks is not None else ():
        notes[rank.header_lane] = ["cut"] if rank.partial else []
        if rank.header_lane in shares:
            notes[rank.header_lane].append(format_share(shares[rank.header_lane]))
    return {lane: NOTE_SEPARATOR.join(said) for lane, said in notes.items() if said}


def cpu_busy_intervals(trace: Trace) -> Intervals:
    """When the first lane was busy: the overview of a trace without GPU work. Where that lane is over while others are
    not, when any thread was."""
    if not trace.lanes:
        return union(trace.start, trace.start)
    own = slice(trace.lanes[0].first, trace.lanes[0].last)
    start, end = trace.start[own], trace.start[own] + trace.duration[own]
    reach = int(end.max() - start.min()) if len(start) else 0
    if reach < MIN_FIRST_LANE_SHARE * (trace.span[1] - trace.span[0]):
        threads = np.array([lane.role is Role.THREAD for lane in trace.lanes], np.bool_)
        outermost = np.flatnonzero((trace.parent < 0) & threads[trace.lane])
        if len(outermost):
            start = trace.start[outermost]
            end = start + trace.duration[outermost]
    return union(start, end)
