"""Durations in time order as a line of blocks: the mean must not mislead."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.ui.explorer.lanes.bar_painter import LEVELS


def build_strip_chart(durations: I64, selected: int, cells: int) -> tuple[str, int]:
    """(one block a cell, as high as the longest of those it stands for; the cell of the selected one).

    At most `cells` cells, never more than there are durations. Raises ValueError for none.
    """
    count = len(durations)
    if not count:
        raise ValueError("no durations")
    cells = max(min(cells, count), 1)
    bins = np.minimum(np.arange(count) * cells // count, cells - 1)
    high = np.zeros(cells)
    np.maximum.at(high, bins, durations)
    most = max(float(high.max()), 1.0)
    return "".join(LEVELS[min(int(value / most * 8), 7)] for value in high.tolist()), int(bins[selected])
