"""A list of any number of rows with a cursor, which builds only the rows on screen."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun, build_strip

ROWS_PER_WHEEL_STEP = 3


class RowPicked(Message):
    """A click on a row; `opened` if the row was under the cursor already."""

    def __init__(self, row: int, opened: bool) -> None:
        super().__init__()
        self.row = row
        self.opened = opened


class RowList(PaintedWidget):
    """A scrolling list below a header line.

    `build_row(index, width, selected)` returns the runs of one row, `build_header(width)` those of the header. Call
    `set_row_count` when the rows change; move the cursor with `move_to` and `move_by`.
    """

    DEFAULT_CSS = "RowList { height: 1fr; }"

    def __init__(
        self,
        build_row: Callable[[int, int, bool], list[TextRun]],
        build_header: Callable[[int], list[TextRun]],
        *,
        id: str | None = None,  # noqa: A002
    ) -> None:
        super().__init__(id=id)
        self._build_row = build_row
        self._build_header = build_header
        self._count = 0
        self._top = 0
        self.cursor = 0

    @property
    def page_size(self) -> int:
        """Number of rows that fit on the screen."""
        return max(self.size.height - 1, 1)

    @property
    def count(self) -> int:
        """Number of rows."""
        return self._count

    def set_row_count(self, count: int, cursor: int = 0) -> None:
        """Set the number of rows and the cursor after the rows changed."""
        self._count = count
        self.cursor = min(max(cursor, 0), max(count - 1, 0))
        self._scroll_to_cursor()
        self.repaint()

    def move_to(self, row: int) -> None:
        """Move the cursor to a row, or to the nearest one that exists."""
        self.set_row_count(self._count, row)

    def move_by(self, rows: int) -> None:
        self.move_to(self.cursor + rows)

    def _scroll_to_cursor(self) -> None:
        if self.cursor < self._top:
            self._top = self.cursor
        elif self.cursor >= self._top + self.page_size:
            self._top = self.cursor - self.page_size + 1
        self._top = min(self._top, max(0, self._count - self.page_size))

    def prepare(self, size: Size) -> None:
        self._scroll_to_cursor()

    def paint(self, y: int, width: int) -> Strip:
        blank = self.palette.text
        if y == 0:
            return build_strip(self._build_header(width), width, self.palette.muted)
        index = self._top + y - 1
        if index >= self._count:
            return build_strip([], width, blank)
        return build_strip(self._build_row(index, width, index == self.cursor), width, blank)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        index = self._top + event.y - 1
        if event.y >= 1 and index < self._count:
            was_selected = index == self.cursor
            self.move_to(index)
            self.post_message(RowPicked(index, was_selected))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.move_by(ROWS_PER_WHEEL_STEP)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.move_by(-ROWS_PER_WHEEL_STEP)
