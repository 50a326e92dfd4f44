"""The last line of a screen: a message or the state on the left, the most useful keys on the right."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.strip import Strip

from torchprof_tui.ui.common.bindings import list_bindings, rename_hints
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun, build_strip


def format_copy_message(label: str) -> str:
    """Return the message about a copy. A terminal never answers OSC 52, so nobody knows whether it took the text."""
    return f"sent to the terminal's clipboard: {label}"


KEPT_HINTS, KEPT_HINTS_MIN_WIDTH = 3, 60
"""Hints that a state leaves room for, and the width from which it does; a message is shown for a moment, so in full."""


class StatusLine(PaintedWidget):
    """One line with a message (`show_message`), else the state of the screen (`show_state`), and key hints."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._message = ""
        self._state = ""
        self._is_warning = False
        self._key_hints: tuple[tuple[str, str], ...] = ()

    def show_message(self, message: str, is_warning: bool = False) -> None:
        """Show one line, which is escaped here; it stays until the next message."""
        if (message, is_warning) != (self._message, self._is_warning):
            self._message, self._is_warning = message, is_warning
            self.repaint()

    def show_state(self, state: str) -> None:
        """Show the state of the screen, which is escaped here, in place of the last message and after later ones."""
        self._state = state
        self.show_message("")
        self.repaint()

    @property
    def message(self) -> str:
        """The last message, else the state."""
        return self._message or self._state

    def show_keys(self, keys: Sequence[tuple[str, str]]) -> None:
        """Show as many of these (key, description) hints as fit; the most useful come first."""
        keymap = getattr(self.app, "remapped_keys", None) if self.is_attached else None
        if keymap:
            keys = rename_hints(keys, [*list_bindings(type(self.screen)), *list_bindings(type(self.app))], keymap)
        if tuple(keys) != self._key_hints:
            self._key_hints = tuple(keys)
            self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        palette = self.palette
        kept = 0 if self._message or width < KEPT_HINTS_MIN_WIDTH else self._measure_hints(KEPT_HINTS)
        message = truncate(clean(self.message), max(width - 2 - kept, 0))
        style = palette.warning if self._is_warning and self._message else palette.text
        available = width - cell_len(message) - 4
        hints: list[TextRun] = []
        used = 0
        for key, description in self._key_hints:
            needed = _measure_hint(key, description) + (2 if hints else 0)
            if used + needed > available:
                continue  # a shorter one may fit
            if hints:
                hints.append(("  ", palette.text))
            hints += [(key, palette.key), (f" {description}", palette.muted)]
            used += needed
        gap = " " * (width - used - cell_len(message) - 2)
        runs: list[TextRun] = [(" ", palette.text), (message, style), (gap, palette.text), *hints]
        return build_strip(runs, width, palette.text)

    def _measure_hints(self, count: int) -> int:
        """Return the cells of the first hints with the space before each."""
        return sum(_measure_hint(key, description) + 2 for key, description in self._key_hints[:count])


def _measure_hint(key: str, description: str) -> int:
    return cell_len(key) + 1 + cell_len(description)
