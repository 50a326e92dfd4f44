"""How many lines each part of the explorer gets on a screen of some size. Pure: numbers in, numbers out."""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.trace.model.trace import Trace

MIN_WIDTH, MIN_HEIGHT = 40, 10
"""Below this there is no room for labels and lanes side by side."""

STEPS_MIN_HEIGHT, OVERVIEW_MIN_HEIGHT = 20, 30
"""Screen heights from which the steps, and their marks on the overview, get lines of their own."""

DOCK_SHARE, DOCK_MIN_LINES, DOCK_MAX_LINES = 0.27, 6, 18
"""The panels' part of the screen's height, and its bounds in lines, where the lanes need all there is."""

LANES_MIN_LINES = 3
"""Lines that the panels leave to the lanes, however low the screen."""

DOCK_MAX_SHARE = 0.5
"""Where lanes leave lines empty the panels take them, up to this part of the height."""

VERDICT_MIN_HEIGHT = 20
"""Screen heights from which the verdict has a line."""

BRIEF_MIN_WIDTH = 170
"""Screen widths from which the cheatsheet stands beside the panels all the time."""

TITLE_AND_STATUS_LINES = 2


@dataclass(frozen=True, slots=True)
class ExplorerLayout:
    """Lines of the parts that change with the screen; `dock`: of all panels. The lanes get the rest."""

    overview: int
    ruler: int
    dock: int
    has_verdict: bool  # whether there is a line for it
    has_brief: bool  # whether the cheatsheet stands beside the panels


def too_small_message(width: int, height: int) -> str:
    """What to say where there is no room for the lanes, else ""."""
    if width >= MIN_WIDTH and height >= MIN_HEIGHT:
        return ""
    return f"This terminal is {width}×{height}.\nThe lanes need {MIN_WIDTH}×{MIN_HEIGHT} or more."


def compute_layout(width: int, height: int, overview: int, ruler: int, lanes: int) -> ExplorerLayout:
    """`overview`, `ruler` and `lanes`: how many lines each would like to have."""
    overview = overview if height >= OVERVIEW_MIN_HEIGHT else 1
    ruler = ruler if height >= STEPS_MIN_HEIGHT else 1
    verdict = height >= VERDICT_MIN_HEIGHT
    share = min(max(round(height * DOCK_SHARE), DOCK_MIN_LINES), DOCK_MAX_LINES)
    room = height - TITLE_AND_STATUS_LINES - verdict - overview - ruler
    share = min(share, room - LANES_MIN_LINES)
    dock = max(share, min(room - lanes, int(height * DOCK_MAX_SHARE)))
    return ExplorerLayout(overview, ruler, dock, verdict, width >= BRIEF_MIN_WIDTH)


def count_lane_lines(trace: Trace, rank_trace: Trace) -> int:
    """Lines that show all rows of a process, with their headings; of several ranks there is room to open one."""
    lines = sum(lane.rows for lane in rank_trace.lanes) + len({lane.group for lane in rank_trace.lanes}) + 1
    return lines if trace.ranks is None else lines + len(trace.ranks)
