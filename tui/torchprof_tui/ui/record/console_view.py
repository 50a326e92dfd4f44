"""A program's output as a terminal shows it, painted at its end until somebody scrolls back."""

from __future__ import annotations

from rich.segment import Segment
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from torchprof_tui.ui.record.terminal_emulation import TerminalEmulator


class ConsoleView(ScrollView):
    """`feed` it what was printed; it repaints once for each time that it is fed."""

    can_focus = False

    class Resized(Message):
        """Its cells, for the program's terminal."""

        def __init__(self, columns: int, lines: int) -> None:
            super().__init__()
            self.columns, self.lines = columns, lines

    def __init__(self, *, id: str) -> None:  # noqa: A002  (textual's own word)
        super().__init__(id=id)
        self.terminal = TerminalEmulator()
        self._auto_scroll = True  # what is printed, until somebody scrolls back

    def on_resize(self, event: events.Resize) -> None:
        columns, lines = self.columns, self.size.height
        if columns > 0 and lines > 0:
            self.terminal.width, self.terminal.height = columns, lines
            self.post_message(self.Resized(columns, lines))
            self._scroll_to_end()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._auto_scroll = new_value >= self.max_scroll_y

    def _scroll_to_end(self) -> None:
        if self._auto_scroll:
            # Forced, as before its first layout with so many lines it does not know that it can be scrolled.
            self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True, force=True)

    @property
    def columns(self) -> int:
        """The last column is the scrollbar's, which must not come and go under the program's lines."""
        return self.container_size.width - 1

    def feed(self, data: bytes, dropped_lines: int = 0) -> None:
        follows, cut = self._auto_scroll, self.terminal.discarded_lines
        if dropped_lines:
            self.terminal.skip_lines(dropped_lines)
        self.terminal.feed(data)
        self.virtual_size = Size(self.columns, len(self.terminal.lines))
        if follows:
            self._auto_scroll = True  # a list that was cut is shorter, not scrolled
            self._scroll_to_end()
        elif gone := self.terminal.discarded_lines - cut - dropped_lines:
            self.scroll_to(y=self.scroll_y - gone, animate=False, immediate=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        place = y + self.scroll_offset.y
        width = self.size.width
        if place >= len(self.terminal.lines):
            return Strip.blank(width, self.rich_style)
        segments = [Segment(text, style) for text, style in self.terminal.lines[place].runs()]
        return Strip(segments).adjust_cell_length(width).apply_style(self.rich_style)
