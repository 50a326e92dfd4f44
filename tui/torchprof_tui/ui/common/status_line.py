"""The last line of a screen: a message on the left, the most useful keys on the right."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.strip import Strip

from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun, build_strip


def format_copy_message(label: str) -> str:
    """Return the message about a copy. A terminal never answers OSC 52, so nobody knows whether it took the text."""
    return f"sent to the terminal's clipboard: {label}"


class StatusLine(PaintedWidget):
    """One line with a message (`show_message`) and key hints (`show_keys`)."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._message = ""
        self._is_warning = False
        self._key_hints: tuple[tuple[str, str], ...] = ()

    def show_message(self, message: str, is_warning: bool = False) -> None:
        """Show one line, which is escaped here; it stays until the next message."""
        if (message, is_warning) != (self._message, self._is_warning):
            self._message, self._is_warning = message, is_warning
            self.repaint()

    @property
    def message(self) -> str:
        return self._message

    def show_keys(self, keys: Sequence[tuple[str, str]]) -> None:
        """Show as many of these (key, description) hints as fit; the most useful come first."""
        if tuple(keys) != self._key_hints:
            self._key_hints = tuple(keys)
            self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        palette = self.palette
        message = truncate(clean(self._message), width - 2)
        available = width - cell_len(message) - 4
        runs: list[TextRun] = [(" ", palette.text), (message, palette.warning if self._is_warning else palette.text)]
        hints: list[TextRun] = []
        used = 0
        for key, description in self._key_hints:
            needed = cell_len(key) + cell_len(description) + (3 if hints else 1)
            if used + needed > available:
                break
            if hints:
                hints.append(("  ", palette.text))
            hints += [(key, palette.key), (f" {description}", palette.muted)]
            used += needed
        return build_strip(
            [*runs, (" " * (width - used - cell_len(message) - 2), palette.text), *hints], width, palette.text
        )
