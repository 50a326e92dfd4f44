"""The marks of the time axis: round times, as many as have room."""

from __future__ import annotations

from typing import NamedTuple

from torchprof_tui.trace.core.time_format import format_time
from torchprof_tui.trace.query.viewport import Viewport

LABEL_GAP = 5
MIN_LABEL_WIDTH = len("0 s")
"""Cells between two labels of the ruler: a tick, a space on both sides, and two cells of the rule, so that labels stay
apart."""


class Tick(NamedTuple):
    """A labelled mark on the ruler, in the cell that contains its time."""

    cell: int
    time: int
    label: str


def compute_ticks(viewport: Viewport) -> list[Tick]:
    """Compute ticks at round times (1, 2 or 5 times a power of ten ns), as close as their labels allow, left to right.

    Times count from the trace's first event. No two labels are equal.
    """
    reach = max(abs(viewport.t0), abs(viewport.t1))
    least = (
        (MIN_LABEL_WIDTH + LABEL_GAP) * viewport.span // viewport.width
    )  # a smaller step leaves no cells for a label
    for power in range(len(str(least)) - 1, 20):
        for factor in (1, 2, 5):
            step = factor * 10**power
            longest = max(len(format_time(time, step, reach)) for time in (viewport.t0, viewport.t1))
            if step * viewport.width >= (longest + LABEL_GAP) * viewport.span:
                linear = (section for section in viewport.list_sections() if section.seam < 0)
                times = (t for part in linear for t in range(-(-part.t0 // step) * step, part.t1, step))
                return [Tick(viewport.cell(time), time, format_time(time, step, reach)) for time in times]
    return []
