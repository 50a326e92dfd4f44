"""View of a program's output as a terminal shows it, which follows the end until the user scrolls back."""

from __future__ import annotations

from rich.segment import Segment
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from torchprof_tui.ui.record.terminal_emulation import TerminalEmulator


class ConsoleView(ScrollView):
    """A scroll view over a `TerminalEmulator`. Each call of `feed` repaints it once."""

    can_focus = False

    class Resized(Message):
        """The view was resized; its size in cells, for the program's terminal."""

        def __init__(self, columns: int, lines: int) -> None:
            super().__init__()
            self.columns, self.lines = columns, lines

    def __init__(self, *, id: str) -> None:  # noqa: A002  (textual's own word)
        super().__init__(id=id)
        self.terminal = TerminalEmulator()
        self._auto_scroll = True  # follow the end, until the user scrolls back

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
            # force: before its next layout the widget would take itself for not scrollable.
            self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True, force=True)

    @property
    def columns(self) -> int:
        """Cells per line; the last column is kept for the scrollbar, so that the lines never change their width."""
        return self.container_size.width - 1

    def feed(self, data: bytes, dropped_lines: int = 0) -> None:
        """Show output of the program; `dropped_lines` lines before it were not kept."""
        auto_scroll, discarded_before = self._auto_scroll, self.terminal.discarded_lines
        if dropped_lines:
            self.terminal.skip_lines(dropped_lines)
        self.terminal.feed(data)
        self.virtual_size = Size(self.columns, len(self.terminal.lines))
        if auto_scroll:
            self._auto_scroll = True  # discarding lines changed the scroll position, but the user did not scroll
            self._scroll_to_end()
        elif discarded := self.terminal.discarded_lines - discarded_before - dropped_lines:
            self.scroll_to(y=self.scroll_y - discarded, animate=False, immediate=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        index = y + self.scroll_offset.y
        width = self.size.width
        if index >= len(self.terminal.lines):
            return Strip.blank(width, self.rich_style)
        segments = [Segment(text, style) for text, style in self.terminal.lines[index].runs()]
        return Strip(segments).adjust_cell_length(width).apply_style(self.rich_style)
