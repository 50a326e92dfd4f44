"""Write the listed rows of a table to a file, in the format of its suffix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torchprof_tui.analysis.table import export
from torchprof_tui.analysis.table.sheets import Sheet
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.atomic_file import OutputError, check_target, expand_path, write_atomically
from torchprof_tui.ui.common.name_display import clean


def format_markdown(sheet: Sheet, order: I64) -> str:
    """Format rows `order` int64[k] of a sheet as a Markdown table."""
    return export.to_markdown(sheet, order.tolist(), clean)


_FORMATTERS: dict[str, Callable[[Sheet, I64], str]] = {
    ".csv": lambda sheet, order: export.to_csv(sheet, order.tolist(), clean),
    ".json": lambda sheet, order: export.to_json(sheet, order.tolist()),
    ".md": format_markdown,
}


def write_sheet(sheet: Sheet, order: I64, name: str) -> tuple[str, bool]:
    """Write rows `order` of a sheet to a file that the user named.

    Returns (a line that reports the outcome, whether the file was written). Existing files are never overwritten.
    """
    formatter = _FORMATTERS.get(Path(name).suffix.lower())
    if formatter is None:
        return f"{Path(name).name}: the name must end in .csv, .json or .md", False
    try:
        path = expand_path(name)
        if check_target(path):
            return f"{path} exists already and was not overwritten; choose another name", False
        write_atomically(path, formatter(sheet, order))
    except OutputError as error:
        return str(error), False
    return f"wrote {len(order):,} rows to {path}", True
