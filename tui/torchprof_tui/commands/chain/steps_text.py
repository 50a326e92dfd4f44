"""Print an event and its chain over the steps: `torchprof-tui chain --all-steps`."""

from __future__ import annotations

from rich.text import Text

from torchprof_tui.analysis.dispatch.step_rows import StepRows
from torchprof_tui.commands.common.tables import ConsoleTable, create_console
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.step_table import build_step_table

NAME_CELLS = 60


def print_step_rows(trace: Trace, found: StepRows, nth: int, of: int) -> None:
    """Print the distribution of each time, then one row per step, on stdout."""
    console = create_console(pipe_width=160)
    name = truncate(clean(trace.event(found.rows[found.selected].event).name), NAME_CELLS)
    console.print(Text(f"{name}  --nth {nth} of {of:,}: {len(found.rows):,} steps", style="bold"))
    table = build_step_table(found)
    for line in table.notes:
        console.print(Text(line))
    printed = ConsoleTable("", *(f">{title}" if number else title for title, number in table.columns))
    for row in table.rows:
        printed.add_cells(*row)
    console.print(printed)
