"""The upper part of the explorer: the lanes, and the title, overview, ruler and gutter around them.

The panels below them belong to `panel_controller.py`.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from torchprof_tui.analysis.time.gpu_time import compute_busy_shares
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.name_display import DisplayNames, clean
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.explorer.title_line import MAX_DEVICES, TitleLine
from torchprof_tui.ui.lanes.lane_gutter import NOTE_SEPARATOR, Gutter
from torchprof_tui.ui.lanes.lane_view_state import find_recorder_lanes
from torchprof_tui.ui.lanes.overview import Overview
from torchprof_tui.ui.lanes.time_ruler import Ruler
from torchprof_tui.ui.lanes.timeline import Timeline
from torchprof_tui.ui.lanes.view_state import ViewState

MIN_WIDTH, MIN_HEIGHT = 40, 10  # minimum screen size: below it labels and lanes do not fit side by side

STEPS_MIN_HEIGHT, OVERVIEW_MIN_HEIGHT = 20, 30
"""Screen heights from which the steps have a line on the ruler, and one on the overview."""

DOCK_SHARE, DOCK_MIN_LINES, DOCK_MAX_LINES = 0.27, 6, 18
"""The panels' share of the screen height and its bounds in lines, where the lanes would fill the rest."""

DOCK_ASKED_LINES = 10  # lines of a panel that was asked for, with its title: on 24 lines the lanes keep seven
LANES_MIN_LINES = 3  # lines that the panels always leave to the lanes

DOCK_MAX_SHARE, RANKS_DOCK_MAX_SHARE = 0.65, 0.5
"""Lines that the lanes leave empty go to the panels, up to this share of the height; of ranks, which open, less."""

VERDICT_MIN_HEIGHT, TWO_VERDICT_LINES_MIN_HEIGHT = 20, 24
"""Screen heights from which the verdict has a line, and two lines where the screen is narrow."""

TWO_VERDICT_LINES_MAX_WIDTH = 259  # screen width up to which many verdicts need two lines: of 62 samples 13 at 240

TWO_PANELS_MIN_WIDTH, THREE_PANELS_MIN_WIDTH = 170, 300
"""Screen widths from which two and three panels are shown side by side: each has the width of a small terminal."""

ENLARGED_SHARE, ENLARGED_MIN_LINES = 0.6, 4
"""The panels' share of the screen height when they are enlarged, and the least that this adds to their lines."""

TITLE_AND_STATUS_LINES = 2


class PanelSize(Enum):
    """How much of the screen the panels get; `z` goes through the sizes."""

    NORMAL = "normal"
    ENLARGED = "enlarged"
    WHOLE = "whole screen"

    @property
    def next(self) -> PanelSize:
        sizes = list(PanelSize)
        return sizes[(sizes.index(self) + 1) % len(sizes)]


@record
class ExplorerLayout:
    """Lines of the parts that vary with the screen size; `dock`: those of the panels. The lanes get the rest."""

    overview: int
    ruler: int
    dock: int
    verdict: int  # 0 where there is no room
    panels: int  # shown side by side


def too_small_message(width: int, height: int) -> str:
    """Return a message where the screen is too small for the lanes, else ""."""
    if width >= MIN_WIDTH and height >= MIN_HEIGHT:
        return ""
    return f"This terminal is {width}×{height}.\nThe lanes need {MIN_WIDTH}×{MIN_HEIGHT} or more."


def compute_layout(
    width: int,
    height: int,
    overview: int,
    ruler: int,
    lanes: int,
    panel_size: PanelSize = PanelSize.NORMAL,
    is_asked: bool = False,
    has_ranks: bool = False,
) -> ExplorerLayout:
    """Share out the lines of a screen. `overview`, `ruler`, `lanes`: the lines that each would fill.

    `is_asked`: whether the panel was asked for, and is not the one that is there at first.
    """
    overview = overview if height >= OVERVIEW_MIN_HEIGHT else 1
    ruler = ruler if height >= STEPS_MIN_HEIGHT else 1
    is_narrow = width <= TWO_VERDICT_LINES_MAX_WIDTH
    verdict = 0 if height < VERDICT_MIN_HEIGHT else 1 + (is_narrow and height >= TWO_VERDICT_LINES_MIN_HEIGHT)
    least = DOCK_ASKED_LINES if is_asked else DOCK_MIN_LINES
    share = min(max(round(height * DOCK_SHARE), least), DOCK_MAX_LINES)
    available = height - TITLE_AND_STATUS_LINES - verdict - overview - ruler
    share = min(share, available - LANES_MIN_LINES)
    most = RANKS_DOCK_MAX_SHARE if has_ranks else DOCK_MAX_SHARE
    dock = max(share, min(available - lanes, int(height * most)))
    panels = 1 + (width >= TWO_PANELS_MIN_WIDTH) + (width >= THREE_PANELS_MIN_WIDTH)
    if panel_size is PanelSize.ENLARGED:
        larger = max(round(height * ENLARGED_SHARE), dock + ENLARGED_MIN_LINES)
        dock = max(dock, min(larger, available - LANES_MIN_LINES))
    elif panel_size is PanelSize.WHOLE:  # without lanes, overview and ruler
        dock, panels = height - TITLE_AND_STATUS_LINES - verdict, 1
    return ExplorerLayout(overview, ruler, dock, verdict, panels)


def count_lane_lines(trace: Trace, rank_trace: Trace) -> int:
    """Count the lines for all rows and headings of one rank and one to spare; several ranks add a line each."""
    recorder = find_recorder_lanes(rank_trace)
    lanes = [lane for number, lane in enumerate(rank_trace.lanes) if number not in recorder]
    lines = sum(lane.rows for lane in lanes) + len({lane.group for lane in lanes}) + 1
    return lines if trace.merged_ranks is None else lines + len(trace.merged_ranks)


MIN_FIRST_LANE_SHARE = 0.5
"""Share of the trace's time that the first lane must span for the overview to be drawn from it alone."""


class LanesArea:
    """Own the widgets. Call `update_widgets` after every move.

    It is cheap: each widget compares the state and repaints what differs in the next frame.
    """

    def __init__(self, view_state: ViewState, gpu_busy: dict[int, Intervals]) -> None:
        trace = view_state.trace
        self._view_state = view_state
        busy_by_gpu = list(gpu_busy.values())
        self.timeline = Timeline(trace, DisplayNames(trace.names), id="timeline")
        self.gutter = Gutter(trace, format_rank_notes(trace, gpu_busy), id="gutter")
        self.title = TitleLine(trace, busy_by_gpu, id="title")
        if busy_by_gpu:
            self.overview = Overview(trace.steps, busy_by_gpu[:MAX_DEVICES], Kind.KERNEL, id="overview")
        else:
            self.overview = Overview(trace.steps, [cpu_busy_intervals(trace)], Kind.OP, id="overview")
        self.ruler = Ruler(trace.steps, id="ruler")
        self._gutter_width = self.gutter.preferred_width(80)

    def apply_layout(self, width: int, height: int, panel_size: PanelSize, is_asked: bool) -> ExplorerLayout:
        """Set the size of each widget for this screen size; return the layout for the parts below."""
        lanes = count_lane_lines(self._view_state.trace, self._view_state.current_trace())
        lane_view = self._view_state.lane_view
        has_ranks = self._view_state.trace.merged_ranks is not None
        if self._view_state.is_arranged and has_ranks:
            lanes = len(lane_view.lane_lines.body) + 1  # the ranks that are open, all of them where they fit
        layout = compute_layout(
            width,
            height,
            self.overview.preferred_lines,
            self.ruler.preferred_lines,
            lanes,
            panel_size,
            is_asked,
            has_ranks,
        )
        self._gutter_width = self.gutter.preferred_width(width)
        self.gutter.styles.width = self._gutter_width
        self.overview.styles.height = layout.overview
        self.ruler.styles.height = layout.ruler
        return layout

    def update_widgets(self) -> None:
        state = self._view_state
        marked = (state.mark.start, state.mark.end) if state.mark is not None else None
        matches = state.search.matches
        self.timeline.show_lines(state.viewport, state.lane_view.lane_lines, state.lane_view.top)
        self.timeline.select_event(state.selected)
        self.timeline.show_marked_range(marked)
        self.timeline.show_matches(matches.name_mask if matches is not None else None)
        self.gutter.show_lines(state.lane_view.lane_lines, state.lane_view.top)
        self.gutter.set_cursor(state.cursor_time())
        self.gutter.set_current_lane(state.current_lane() if state.lane >= 0 else -1)
        self.ruler.show_steps(state.current_steps())
        self.ruler.show_rank(state.current_rank().label)
        self.ruler.show_seams(state.folding.seams)
        self.overview.show_steps(state.current_steps())
        self.ruler.show_viewport(state.viewport, self._gutter_width, state.cursor_time(), marked)
        self.overview.show_viewport(state.viewport, self._gutter_width)
        self.title.show_viewport(state.viewport)


def format_rank_notes(trace: Trace, gpu_busy: dict[int, Intervals]) -> dict[int, str]:
    """Format the notes in the ranks' labels, by lane: that a rank was cut, and how busy its GPUs were."""
    if not trace.lanes:  # a trace that was cut before its first event has a rank and no lane to note it at
        return {}
    shares = compute_busy_shares(trace, gpu_busy)
    notes: dict[int, list[str]] = {}
    for rank in trace.all_ranks:
        notes[rank.header_lane] = ["cut"] if rank.partial else []
        if rank.header_lane in shares:
            notes[rank.header_lane].append(format_share(shares[rank.header_lane]))
    return {lane: NOTE_SEPARATOR.join(parts) for lane, parts in notes.items() if parts}


def cpu_busy_intervals(trace: Trace) -> Intervals:
    """Return when the first lane was busy, for the overview of a trace without GPU work.

    Where that lane spans less than MIN_FIRST_LANE_SHARE of the trace, return when any thread was busy.
    """
    if not trace.lanes:
        return union(trace.start, trace.start)
    first_lane = slice(trace.lanes[0].first, trace.lanes[0].last)
    start, end = trace.start[first_lane], trace.start[first_lane] + trace.duration[first_lane]
    span = int(end.max() - start.min()) if len(start) else 0
    if span < MIN_FIRST_LANE_SHARE * (trace.span[1] - trace.span[0]):
        threads = np.array([lane.role is Role.THREAD for lane in trace.lanes], np.bool_)
        outermost = np.flatnonzero((trace.parent < 0) & threads[trace.lane])
        if len(outermost):
            start = trace.start[outermost]
            end = start + trace.duration[outermost]
    return union(start, end)


def no_events_text(trace: Trace) -> str:
    """Explain why a trace has nothing to draw, from the counts of its entries."""
    counts = trace.counts
    lines = ["This trace has nothing to draw.", ""]
    if not counts.events:
        lines.append("Its traceEvents list is empty.")
    else:
        lines.append(f"The file has {counts.events:,} entries:")
        if counts.metadata:
            lines.append(f"  {counts.metadata:,} name processes and threads")
        if counts.flows:
            lines.append(f"  {counts.flows:,} connect events")
        lines += [f"  {count:,} were left out: {clean(reason)}" for reason, count in counts.not_drawn.items()]
    lines += [
        "",
        "A profiler that was stopped before its active steps records nothing: with schedule(wait, warmup, active)",
        "call prof.step() at least wait + warmup + active times, and export from on_trace_ready.",
        "",
        "q quits.",
    ]
    return "\n".join(lines)
