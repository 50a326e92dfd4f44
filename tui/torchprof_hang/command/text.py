"""Print the cause of a hang as text."""

from __future__ import annotations

from torchprof_hang.analysis.alignment import format_ranks
from torchprof_hang.answers import Hang, HangCollective, list_facts
from torchprof_tui.commands.common.tables import create_console
from torchprof_tui.ui.common.name_display import clean

MAX_LISTED = 12  # files that are named


def print_hang(hang: Hang) -> None:
    """Print the verdict, what to do, the collectives by process group, and the stack of the rank at fault."""
    console = create_console()
    console.print(clean(hang.sentence), style="bold", soft_wrap=True)
    for line in list_facts(hang):
        console.print(f"  {line}", style="dim", soft_wrap=True)
    for group in hang.groups:
        console.print()
        console.print(f"{clean(group.label)}: {group.ranks:,} ranks", style="bold")
        for each in group.collectives:
            console.print(f"  {describe_collective(each)}", style="" if each.agrees else "yellow", soft_wrap=True)
    if hang.stack:
        console.print()
        who = f" of rank {hang.ranks[0]}" if hang.ranks else ""
        console.print(f"stack{who}, innermost first", style="bold")
        for frame in hang.stack:
            console.print(f"  {clean(frame.function)} {clean(frame.file)}:{frame.line}", soft_wrap=True)
    if hang.missing_ranks or hang.failed:
        console.print()
    if hang.missing_ranks:
        console.print(f"nothing was found of {format_ranks(hang.missing_ranks)}", style="yellow")
    for failed in hang.failed[:MAX_LISTED]:
        console.print(f"not used: {clean(failed.source)}: {clean(failed.reason)}", style="yellow", soft_wrap=True)
    if len(hang.failed) > MAX_LISTED:
        console.print(f"not used: {len(hang.failed) - MAX_LISTED:,} more (--json lists all)", style="yellow")


def describe_collective(collective: HangCollective) -> str:
    """Describe a collective in one line: its number, operation, line, and the ranks in each state."""
    states = "; ".join(f"{format_ranks(each.ranks)} {each.state}" for each in collective.states)
    place = f" at {clean(collective.place)}" if collective.place else ""
    return f"#{collective.number} {clean(collective.operation)}{place}: {states}"
