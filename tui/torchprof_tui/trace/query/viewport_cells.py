"""Compute the cells of a viewport, section by section where a part of the time axis is folded."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import F64, I32
from torchprof_tui.trace.model.row_index import RowIndex
from torchprof_tui.trace.model.trace import Counter
from torchprof_tui.trace.query.level_of_detail import Cells, compute_cells, compute_counter_cells
from torchprof_tui.trace.query.viewport import Viewport


def compute_viewport_cells(index: RowIndex, rows: I32, viewport: Viewport) -> Cells:
    """Compute what the cells of a viewport show of these rows, in the order of `rows`; nothing in its seams."""
    if viewport.fold is None:
        return compute_cells(index, rows, viewport.t0, viewport.t1, viewport.width)
    shape = (len(rows), viewport.width)
    cells = Cells(np.full(shape, -1, np.int32), np.zeros(shape, np.float32), np.zeros(shape, np.int32))
    for first, end, t0, t1, seam in viewport.list_sections():
        if seam < 0:
            part = compute_cells(index, rows, t0, t1, end - first)
            columns = slice(first, end)
            cells.event[:, columns], cells.busy[:, columns] = part.event, part.busy
            cells.count[:, columns] = part.count
    return cells


def compute_highest_values(counter: Counter, viewport: Viewport) -> F64:
    """Compute the highest value of a counter in each cell: float64[width], nan where it has none and in seams."""
    if viewport.fold is None:
        return compute_counter_cells(counter, viewport.t0, viewport.t1, viewport.width).high
    high = np.full(viewport.width, np.nan)
    for first, end, t0, t1, seam in viewport.list_sections():
        if seam < 0:
            high[first:end] = compute_counter_cells(counter, t0, t1, end - first).high
    return high
