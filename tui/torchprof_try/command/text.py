"""Print the table of `try` as text and as Markdown."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from torchprof_try.answers import TrialRemedy, Tried
from torchprof_tui.commands.common.tables import create_console
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.common.number_format import format_value

TITLES = ("remedy", "predicted", "measured", "step", "memory", "loss", "patch")


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


def list_used(tried: Tried) -> list[TrialRemedy]:
    """List the remedies that the program has something for."""
    return [each for each in tried.remedies if each.state != "unused"]


def describe_best(tried: Tried) -> str:
    """Describe in one line what won most."""
    won = [each for each in tried.remedies if each.won]
    if not won:
        measured = sum(each.saved_share is not None for each in tried.remedies)
        return f"no remedy won more than its interval ({measured} measured)"
    best = won[0]
    changed = ", but its losses are different" if best.loss == "different" else ""
    what = best.says if best.parts else f"{best.name} ({best.says})"
    return f"{what}: a step is {best.saved_share:.0%} shorter{changed}"


def describe_program(tried: Tried) -> list[str]:
    """Describe the program as it is, and what check says of it."""
    step = "" if tried.baseline_us is None else f", a step takes {format_duration(tried.baseline_us * 1000)}"
    memory = (
        "" if tried.baseline_memory_bytes is None else f", peak {format_value(tried.baseline_memory_bytes, 'bytes')}"
    )
    return [
        f"{' '.join(tried.command)} on {tried.device or 'an unknown device'}{step}{memory}",
        *([f"check: {tried.verdict}"] if tried.verdict else []),
    ]


def format_cells(each: TrialRemedy) -> tuple[str, ...]:
    """Format the cells of a row, in the order of `TITLES`."""
    if each.saved_share is None or each.saved_low_share is None or each.saved_high_share is None:
        measured = f"{each.state}: {each.reason}" if each.reason else each.state
    else:
        half = (each.saved_high_share - each.saved_low_share) / 2
        measured = f"{each.saved_share:+.1%} ± {half:.1%}{'' if each.won else ' (not shown)' if half else ''}"
        if each.saved_high_share < 0:
            measured = f"{each.saved_share:+.1%} ± {half:.1%} (slower)"
    return (
        each.name,
        "" if each.predicted_share is None else f"≤ {each.predicted_share:.0%}",
        measured,
        "" if each.step_us is None else format_duration(each.step_us * 1000),
        "" if each.peak_memory_bytes is None else format_value(each.peak_memory_bytes, "bytes"),
        each.loss.upper() if each.loss == "different" else each.loss,
        each.patch.splitlines()[0] if each.patch and not each.parts else each.says,
    )


def _escape(text: str) -> str:
    return clean(text).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
