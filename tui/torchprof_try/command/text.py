"""Print the table of `try` as text and as Markdown."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from torchprof_try.answers import Tried
from torchprof_try.row_text import TITLES, describe_best, describe_program, format_cells, list_used
from torchprof_tui.commands.common.tables import create_console
from torchprof_tui.ui.common.name_display import clean


def print_tried(tried: Tried) -> None:
    """Print the answer: the verdict, the program as it is, and a row for each remedy."""
    console = create_console()
    console.print(Text(clean(describe_best(tried))), soft_wrap=True)
    for line in describe_program(tried):
        console.print(Text(f"  {clean(line)}", style="dim"))
    if not tried.remedies:
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in TITLES:
        table.add_column(title, justify="right" if title in ("predicted", "step", "memory") else "left")
    for each in list_used(tried):
        table.add_row(*(Text(clean(cell)) for cell in format_cells(each)))
    console.print(table)
    if unused := [each.name for each in tried.remedies if each.state == "unused"]:
        console.print(Text(f"nothing in the program uses: {', '.join(unused)}", style="dim"))
    if not tried.complete:
        console.print(Text("ended early: what is missing was not tried", style="dim"))


def print_markdown(tried: Tried) -> None:
    """Print the answer for a pull request."""
    print(f"**{_escape(describe_best(tried))}**\n")
    for line in describe_program(tried):
        print(f"{_escape(line)}  ")
    if tried.remedies:
        print(f"\n| {' | '.join(TITLES)} |\n|{'---|' * len(TITLES)}")
        for each in list_used(tried):
            print(f"| {' | '.join(_escape(cell) for cell in format_cells(each))} |")


def _escape(text: str) -> str:
    return clean(text).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
