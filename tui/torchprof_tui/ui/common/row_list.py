"""A list of any number of rows with a cursor, which builds only the rows on screen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from torchprof_tui.ui.common.painted_widget import Lines, PaintedWidget, TextRun, build_strip, wrap_text


@dataclass
class RowPicked(Message):
    """A click on a row, or the wheel moved the cursor there; `opened`: a click on the row under the cursor."""

    row: int
    opened: bool


@dataclass
class HeaderPicked(Message):
    """A click on the header line, at cell `x`."""

    x: int


class RowList(PaintedWidget):
    """A scrolling list below a header line.

    `build_row(index, width, selected)` returns the runs of one row, `build_header(width)` those of the header. Call
    `set_row_count` when the rows change; move the cursor with `move_to` and `move_by`. `empty_text`: what an empty list
    says instead of rows.
    """

    DEFAULT_CSS = "RowList { height: 1fr; }"
    WHEEL_LINES = 3

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
        self._empty_lines: Lines = []
        self.cursor = 0
        self.empty_text = ""

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

    def visible_text(self, width: int) -> str:
        """Return the header and the rows on screen as plain text, for copying: at most `width` cells wide."""
        rows = range(self._top, min(self._top + self.page_size, self._count))
        lines = [self._build_header(width), *(self._build_row(index, width, False) for index in rows)]
        return "\n".join("".join(text for text, _ in runs).rstrip() for runs in lines)

    def prepare(self, size: Size) -> None:
        self._scroll_to_cursor()
        self._empty_lines = wrap_text(self.empty_text, size.width - 4, self.palette.text) if self.empty_text else []

    def paint(self, y: int, width: int) -> Strip:
        blank = self.palette.text
        if y == 0:
            return build_strip(self._build_header(width), width, self.palette.muted)
        index = self._top + y - 1
        if index >= self._count:
            line = y - 2  # a blank line below the header
            has_text = not self._count and 0 <= line < len(self._empty_lines)
            return build_strip([("  ", blank), *self._empty_lines[line]] if has_text else [], width, blank)
        return build_strip(self._build_row(index, width, index == self.cursor), width, blank)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        index = self._top + event.y - 1
        if event.y == 0:
            self.post_message(HeaderPicked(event.x))
        elif index < self._count:
            was_selected = index == self.cursor
            self.move_to(index)
            self.post_message(RowPicked(index, was_selected))

    def scroll_lines(self, count: int) -> None:
        """Scroll the rows without the cursor, which moves only where it would leave the screen."""
        self._top = min(max(self._top + count, 0), max(0, self._count - self.page_size))
        cursor = min(max(self.cursor, self._top), self._top + self.page_size - 1, max(self._count - 1, 0))
        if cursor != self.cursor:
            self.cursor = cursor
            self.post_message(RowPicked(cursor, False))
        self.repaint()
