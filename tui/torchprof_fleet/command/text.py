"""Print a compared fleet as text."""

from __future__ import annotations

from torchprof_fleet.answers import Fleet
from torchprof_fleet.ui.row_text import (
    HOST_TITLES,
    NOTHING_FOUND,
    RANK_TITLES,
    STEP_TITLES,
    format_host,
    format_rank,
    format_step,
)
from torchprof_tui.commands.common.tables import ConsoleTable, create_console
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.name_display import clean

MAX_LISTED = 12  # missing ranks and lost files that are named


def print_fleet(document: Fleet) -> None:
    """Print the findings, the what-ifs and the slowest ranks, hosts and steps."""
    console = create_console()
    is_part = document.world_size is not None and document.world_size >= document.ranks
    of = f" of {document.world_size:,}" if is_part else ""
    hosts = f", {document.hosts:,} hosts" if document.hosts else ""
    step = format_duration(document.step_us.p50 * 1000)
    matched = f"{document.matched_collectives:,} collectives matched"
    console.print(f"{document.ranks:,}{of} ranks{hosts}, {step} per step, {matched}", style="bold")
    if document.missing_ranks:
        shown = ", ".join(map(str, document.missing_ranks[:MAX_LISTED]))
        more = ", …" if len(document.missing_ranks) > MAX_LISTED else ""
        console.print(f"missing ranks ({len(document.missing_ranks):,}): {shown}{more}")
    for failed in document.failed[:MAX_LISTED]:
        console.print(f"left out: {clean(failed.source)}: {clean(failed.reason)}", style="yellow")
    if len(document.failed) > MAX_LISTED:
        console.print(f"left out: {len(document.failed) - MAX_LISTED:,} more (--json lists all)", style="yellow")
    console.print()
    if not document.faults:
        console.print(NOTHING_FOUND)
    for finding in document.faults:
        saved = "" if finding.share is None else f"; without it the job takes {finding.share:.1%} less"
        console.print(f"● {clean(finding.why)}{saved}", style="bold")
        console.print(f"  {finding.action}", style="dim")
    for each in document.what_if:
        saved = f"{format_duration(each.step_us * 1000)} per step ({each.saved_share:.1%} less)"
        console.print(f"without {clean(each.without)}: {saved}")
    rank_rows = [format_rank(row) for row in document.slowest_ranks]
    host_rows = [format_host(row) for row in document.slowest_hosts]
    step_rows = [(*format_step(row), format_duration(row.delay_us * 1000)) for row in document.slowest_steps]
    tables = (
        ("slowest ranks, against the median rank", RANK_TITLES, 2, rank_rows),
        ("slowest hosts, medians of their ranks", HOST_TITLES, 1, host_rows),
        ("longest steps", STEP_TITLES, 0, step_rows),
    )
    for title, titles, left_count, rows in tables:
        if rows:
            right_count = len(titles) - left_count
            table = ConsoleTable(title, *(f">{each}" for each in titles[:right_count]), *titles[right_count:])
            for row in rows:
                table.add_cells(*map(clean, row))
            console.print()
            console.print(table)
