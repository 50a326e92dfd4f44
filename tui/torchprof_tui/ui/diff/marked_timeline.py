"""Lanes of one side of a comparison: events that changed or are only on this side begin with a mark."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.compare.event_matches import EventStatus
from torchprof_tui.trace.core.arrays import U8
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.event_styles import KIND_COUNT, CellForm
from torchprof_tui.ui.common.name_display import DisplayNames
from torchprof_tui.ui.lanes.bar_painter import StyledCells
from torchprof_tui.ui.lanes.timeline import Timeline

CHANGED_MARK = "*"
ONE_SIDE_MARKS = ("-", "+")
"""Of events that are only in A, and only in B."""

LEGEND = "+ only in B  - only in A  * changed"

_STYLES_PER_EMPHASIS = len(CellForm) * KIND_COUNT


class MarkedTimeline(Timeline):
    """Paint the lanes of side 0 (A) or 1 (B). Each event with a difference has its mark in its first cell."""

    DEFAULT_CSS = "MarkedTimeline { height: 1fr; width: 1fr; }"

    def __init__(self, trace: Trace, side: int, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(trace, DisplayNames(trace.names), id=id)
        self._mark_by_status = np.zeros(len(EventStatus), np.uint32)
        self._mark_by_status[EventStatus.CHANGED] = ord(CHANGED_MARK)
        self._mark_by_status[EventStatus.ONE_SIDE] = ord(ONE_SIDE_MARKS[side])
        self._status: U8 | None = None

    def show_statuses(self, status: U8) -> None:
        """Set what became of each event on the other side: uint8[events] of `EventStatus`."""
        self._status = status
        self.repaint()

    def mark_cells(self, styled: StyledCells) -> None:
        """Write the mark into the first cell of each marked event; a bar's name begins one cell later."""
        if self._status is None:
            return
        event = styled.event
        marks = np.where(event >= 0, self._mark_by_status[self._status[np.maximum(event, 0)]], 0)
        is_first = np.ones(event.shape, np.bool_)
        is_first[:, 1:] = event[:, 1:] != event[:, :-1]
        rows, columns = np.nonzero(is_first & (marks > 0))
        if not len(rows):
            return
        styled.glyph[rows, columns] = marks[rows, columns]
        styled.style[rows, columns] = _emphasize(styled.style[rows, columns])
        in_bar = styled.in_named_bar[rows, columns]
        rows, columns = rows[in_bar], columns[in_bar]
        styled.in_named_bar[rows, columns] = False
        inside = columns + 1 < event.shape[1]
        rows, columns = rows[inside], columns[inside]
        same = event[rows, columns] == event[rows, columns + 1]
        styled.bar_starts[rows[same], columns[same] + 1] = True


def _emphasize(style: np.ndarray) -> np.ndarray:
    """Return the styles of a mark: those of a highlighted event, unless the event has an emphasis already."""
    return np.where(style < _STYLES_PER_EMPHASIS, style + _STYLES_PER_EMPHASIS, style)
