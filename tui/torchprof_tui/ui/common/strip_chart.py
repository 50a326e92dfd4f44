"""Draw durations in time order as one line of block characters, which shows what a mean would hide."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import I64

LEVELS = "▁▂▃▄▅▆▇█"
"""Block characters by height: eighths of a cell."""


def build_strip_chart(durations: I64, selected: int, cells: int) -> tuple[str, int]:
    """Build the chart and return (its text, the cell of the selected duration).

    Each cell is a block as high as the longest duration in it. The chart has at most `cells` cells, and no more than
    there are durations. Raises ValueError if there are none.
    """
    count = len(durations)
    if not count:
        raise ValueError("no durations")
    cells = max(min(cells, count), 1)
    bins = np.minimum(np.arange(count) * cells // count, cells - 1)
    heights = np.zeros(cells)
    np.maximum.at(heights, bins, durations)
    highest = max(float(heights.max()), 1.0)
    return "".join(LEVELS[min(int(height / highest * 8), 7)] for height in heights.tolist()), int(bins[selected])
