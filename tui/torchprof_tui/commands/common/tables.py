"""Print tables on stdout: fitted to a terminal, uncut into a pipe; and time trees as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchprof_tui.analysis.patterns.verdict.tree_model import MAX_LINES, TimeTree, select_tree_lines
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.number_format import format_share

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

PIPE_WIDTH = 10_000  # wider than any table, so that each row is one line for grep and cut


def create_console(pipe_width: int = PIPE_WIDTH) -> Console:
    """Create the console for text output: coloured and as wide as the terminal, or plain and unlimited in a pipe."""
    from rich.console import Console  # deferred: JSON needs no rich, whose import takes a tenth of the start

    class OutputConsole(Console):
        def on_broken_pipe(self) -> None:
            """Let the command line end the program quietly, as for other output; rich exits with status 1."""
            raise  # rich calls this while it handles the BrokenPipeError

    console = OutputConsole(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = pipe_width
    return console


class ConsoleTable:
    """A table that never cuts numbers: on a narrow terminal texts are cut, the longest first.

    `columns`: headings, those of numbers with ">" before them. `max_text_cells`: width limit of texts or None.
    """

    def __init__(self, title: str, *columns: str, max_text_cells: int | None = None) -> None:
        self.caption = ""
        self.rows: list[tuple[str | Text, ...]] = []
        self._title, self._columns, self._max_text_cells = title, columns, max_text_cells

    def add_cells(self, *cells: str | Text) -> None:
        """Add a row of escaped texts."""
        self.rows.append(cells)

    def __rich__(self) -> Table:
        """Build the table that rich prints."""
        from rich.table import Table  # deferred, as above
        from rich.text import Text

        from torchprof_tui.ui.common.cell_text import truncate  # imports rich, too

        table = Table(title=self._title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        table.header_style, table.caption, table.caption_justify = "dim", self.caption or None, "left"
        for name in self._columns:
            number = name.startswith(">")
            heading = Text(name.removeprefix(">"), no_wrap=True)
            table.add_column(heading, justify="right" if number else "left", no_wrap=number)
        for row in self.rows:
            shown = []
            for cell, name in zip(row, self._columns, strict=False):
                text = cell if isinstance(cell, Text) else Text(cell)
                if self._max_text_cells is not None and isinstance(cell, str) and not name.startswith(">"):
                    text = Text(truncate(cell, self._max_text_cells))
                text.no_wrap, text.overflow = True, "ellipsis"
                shown.append(text)
            table.add_row(*shown)
        return table


_INDENT = 2
_SHARE_CELLS, _TIME_CELLS = 6, 9


def format_time_tree(tree: TimeTree, max_lines: int = MAX_LINES) -> list[str]:
    """Format the largest parts of a tree, one line each: share, time, cause; what lies inside a part is indented."""
    lines = []
    for line in select_tree_lines(tree, max_lines):
        indent = " " * (_INDENT * line.depth)
        numbers = f"{format_share(line.share):>{_SHARE_CELLS}}  {format_duration(line.time):>{_TIME_CELLS}}"
        lines.append(f"{indent}{numbers}  {clean(line.label)}")
    return lines
