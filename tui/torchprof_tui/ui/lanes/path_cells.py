"""The cells of a frame of the lanes in which a critical path has any time; what lies in the others is dimmed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.level_of_detail import cell_edges
from torchprof_tui.ui.lanes.lane_frame import LaneFrame, list_rows


class RowTimes(Protocol):
    """Where a path lies on the rows of a trace: `analysis.critical_path.path_rows.PathRows`."""

    def select_cells(self, rows: Sequence[int], left: I64, right: I64) -> Bool:
        """Select the cells in which the path has any time on one of these rows: bool[W]."""


@dataclass(frozen=True, slots=True)
class PathCells:
    """The cells of R lines, bool[R, W]: `touched` where the path has any time, `own` where it has some in the event
    that the cell shows.
    """

    touched: Bool
    own: Bool

    def select_lines(self, rows: I64) -> PathCells:
        """Return the cells of some of the lines."""
        return PathCells(self.touched[rows], self.own[rows])


def select_path_cells(trace: Trace, frame: LaneFrame, path: RowTimes) -> PathCells:
    """Select the cells of the lines with events that are on the path; a line of several rows shows that of all."""
    viewport = frame.viewport
    edges = cell_edges(viewport.t0, viewport.t1, viewport.width)
    left, right = edges[:-1], np.maximum(edges[1:], edges[:-1] + 1)
    event = np.maximum(frame.cells.event, 0)
    start = trace.start[event]
    end = start + trace.duration[event]
    touched, own = np.zeros(event.shape, np.bool_), np.zeros(event.shape, np.bool_)
    for y, row in frame.row_by_line.items():
        rows = list_rows(trace, frame.lines[y])
        touched[row] = path.select_cells(rows, left, right)
        if touched[row].any():
            first, last = np.maximum(left, start[row]), np.minimum(right, end[row])
            own[row] = path.select_cells(rows, first, last) & (last > first)
    return PathCells(touched, own & (frame.cells.event >= 0))
