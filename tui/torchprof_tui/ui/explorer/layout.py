"""Lines that each part of the explorer gets at a given screen size. Pure functions of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from torchprof_tui.trace.model.trace import Trace

MIN_WIDTH, MIN_HEIGHT = 40, 10
"""Minimum screen size: below it labels and lanes do not fit side by side."""

STEPS_MIN_HEIGHT, OVERVIEW_MIN_HEIGHT = 20, 30
"""Screen heights from which the steps have a line on the ruler, and one on the overview."""

DOCK_SHARE, DOCK_MIN_LINES, DOCK_MAX_LINES = 0.27, 6, 18
"""The panels' share of the screen height and its bounds in lines, where the lanes would fill the rest."""

LANES_MIN_LINES = 3
"""Lines that the panels always leave to the lanes."""

DOCK_MAX_SHARE = 0.5
"""Lines that the lanes leave empty go to the panels, up to this share of the height."""

VERDICT_MIN_HEIGHT, TWO_VERDICT_LINES_MIN_HEIGHT = 20, 24
"""Screen heights from which the verdict has a line, and two lines where the screen is narrow."""

TWO_VERDICT_LINES_MAX_WIDTH = 129
"""Screen width up to which most verdicts need two lines."""

TWO_PANELS_MIN_WIDTH, THREE_PANELS_MIN_WIDTH = 170, 300
"""Screen widths from which two and three panels are shown side by side: each has the width of a small terminal."""

ENLARGED_SHARE = 0.6
"""The panels' share of the screen height when they are enlarged."""

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


@dataclass(frozen=True, slots=True)
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
    width: int, height: int, overview: int, ruler: int, lanes: int, panel_size: PanelSize = PanelSize.NORMAL
) -> ExplorerLayout:
    """Share out the lines of a screen. `overview`, `ruler`, `lanes`: the lines that each would fill."""
    overview = overview if height >= OVERVIEW_MIN_HEIGHT else 1
    ruler = ruler if height >= STEPS_MIN_HEIGHT else 1
    is_narrow = width <= TWO_VERDICT_LINES_MAX_WIDTH
    verdict = 0 if height < VERDICT_MIN_HEIGHT else 1 + (is_narrow and height >= TWO_VERDICT_LINES_MIN_HEIGHT)
    share = min(max(round(height * DOCK_SHARE), DOCK_MIN_LINES), DOCK_MAX_LINES)
    available = height - TITLE_AND_STATUS_LINES - verdict - overview - ruler
    share = min(share, available - LANES_MIN_LINES)
    dock = max(share, min(available - lanes, int(height * DOCK_MAX_SHARE)))
    panels = 1 + (width >= TWO_PANELS_MIN_WIDTH) + (width >= THREE_PANELS_MIN_WIDTH)
    if panel_size is PanelSize.ENLARGED:
        dock = max(dock, min(round(height * ENLARGED_SHARE), available - LANES_MIN_LINES))
    elif panel_size is PanelSize.WHOLE:  # without lanes, overview and ruler
        dock, panels = height - TITLE_AND_STATUS_LINES - verdict, 1
    return ExplorerLayout(overview, ruler, dock, verdict, panels)


def count_lane_lines(trace: Trace, rank_trace: Trace) -> int:
    """Count the lines for all rows and headings of one rank and one to spare; several ranks add a line each."""
    lines = sum(lane.rows for lane in rank_trace.lanes) + len({lane.group for lane in rank_trace.lanes}) + 1
    return lines if trace.merged_ranks is None else lines + len(trace.merged_ranks)
