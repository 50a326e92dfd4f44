"""How many lines each part of the explorer gets on a screen of some size. Pure: numbers in, numbers out."""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.trace.model.trace import Trace

LEAST_WIDTH, LEAST_HEIGHT = 40, 10
"""Below this there is no room for labels and lanes side by side."""

STEPS_FROM, OVERVIEW_FROM = 20, 30
"""Screen heights from which the steps, and their marks on the overview, get lines of their own."""

DOCK_SHARE, DOCK_LEAST, DOCK_MOST = 0.27, 6, 18
"""The panels' part of the screen's height, and its bounds in lines, where the lanes need all there is."""

LANES_LEAST = 3
"""Lines that the panels leave to the lanes, however low the screen."""

DOCK_ROOMY_SHARE = 0.5
"""Where lanes leave lines empty the panels take them, up to this part of the height."""

VERDICT_FROM = 20
"""Screen heights from which the verdict has a line."""

BRIEF_FROM = 170
"""Screen widths from which the cheatsheet stands beside the panels all the time."""

TITLE_AND_STATUS = 2


@dataclass(frozen=True, slots=True)
class Layout:
    """Lines of the parts that change with the screen; `dock`: of all panels. The lanes get the rest."""

    overview: int
    ruler: int
    dock: int
    verdict: bool  # whether there is a line for it
    brief: bool  # whether the cheatsheet stands beside the panels


def too_small(width: int, height: int) -> str:
    """What to say where there is no room for the lanes, else ""."""
    if width >= LEAST_WIDTH and height >= LEAST_HEIGHT:
        return ""
    return f"This terminal is {width}×{height}.\nThe lanes need {LEAST_WIDTH}×{LEAST_HEIGHT} or more."


def layout(width: int, height: int, overview: int, ruler: int, lanes: int) -> Layout:
    """`overview`, `ruler` and `lanes`: how many lines each would like to have."""
    overview = overview if height >= OVERVIEW_FROM else 1
    ruler = ruler if height >= STEPS_FROM else 1
    verdict = height >= VERDICT_FROM
    share = min(max(round(height * DOCK_SHARE), DOCK_LEAST), DOCK_MOST)
    room = height - TITLE_AND_STATUS - verdict - overview - ruler
    share = min(share, room - LANES_LEAST)
    dock = max(share, min(room - lanes, int(height * DOCK_ROOMY_SHARE)))
    return Layout(overview, ruler, dock, verdict, width >= BRIEF_FROM)


def lines_of_lanes(whole: Trace, own: Trace) -> int:
    """Lines that show all rows of a process, with their headings; of several ranks there is room to open one."""
    lines = sum(lane.rows for lane in own.lanes) + len({lane.group for lane in own.lanes}) + 1
    return lines if whole.ranks is None else lines + len(whole.ranks)
