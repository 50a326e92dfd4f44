"""Print tables on stdout: fitted to a terminal, uncut into a pipe."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from torchprof_tui.ui.common.name_display import truncate

PIPE_WIDTH = 10_000
"""Wider than any table, so that each row is one line for grep and cut."""


class _OutputConsole(Console):
    def on_broken_pipe(self) -> None:
        """Let the command line end the program quietly, as for output without a console; rich exits with status 1."""
        raise  # rich calls this while it handles the BrokenPipeError


def create_console(pipe_width: int = PIPE_WIDTH) -> Console:
    """Create the console for text output: coloured and as wide as the terminal, or plain and unlimited in a pipe."""
    console = _OutputConsole(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = pipe_width
    return console


class ConsoleTable(Table):
    """A table that never cuts numbers: on a narrow terminal texts are cut, the longest first.

    `columns`: (heading, "right" for numbers or "left" for texts). `max_text_cells`: width limit of texts or None.
    """

    def __init__(self, title: str, *columns: tuple[str, str], max_text_cells: int | None = None) -> None:
        super().__init__(
            title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim"
        )
        self._max_text_cells = max_text_cells
        self._is_numeric = [side == "right" for _, side in columns]
        for name, side in columns:
            number = side == "right"
            self.add_column(Text(name, no_wrap=True), justify="right" if number else "left", no_wrap=number)

    def add_cells(self, *cells: str | Text) -> None:
        """Add a row of escaped texts."""
        shown = []
        for cell, number in zip(cells, self._is_numeric, strict=False):
            text = cell if isinstance(cell, Text) else Text(cell)
            if self._max_text_cells is not None and not number and not isinstance(cell, Text):
                text = Text(truncate(cell, self._max_text_cells))
            text.no_wrap, text.overflow = True, "ellipsis"
            shown.append(text)
        self.add_row(*shown)
