"""Print a compared fleet as text."""

from __future__ import annotations

from rich.console import Console

from torchprof_fleet.answers import Fleet
from torchprof_tui.commands.common.tables import ConsoleTable, create_console
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.common.number_format import format_share

UNKNOWN = "–"
MAX_LISTED = 12
"""Missing ranks and lost files that are named."""


def print_fleet(document: Fleet) -> None:
    """Print the findings, the what-ifs and the slowest ranks, hosts and steps."""
    console = create_console()
    _print_summary(console, document)
    for failed in document.failed[:MAX_LISTED]:
        console.print(f"left out: {clean(failed.source)}: {clean(failed.reason)}", style="yellow")
    if len(document.failed) > MAX_LISTED:
        console.print(f"left out: {len(document.failed) - MAX_LISTED:,} more (--json lists all)", style="yellow")
    console.print()
    if not document.faults:
        console.print("Nothing stands out: no rank, host or step differs from the others by more than they vary.")
    for finding in document.faults:
        saved = "" if finding.share is None else f"; without it the job takes {finding.share:.1%} less"
        console.print(f"● {clean(finding.why)}{saved}", style="bold")
        console.print(f"  {finding.action}", style="dim")
    for each in document.what_if:
        saved = f"{format_duration(each.step_us * 1000)} per step ({each.saved_share:.1%} less)"
        console.print(f"without {clean(each.without)}: {saved}")
    for table in (_build_ranks(document), _build_hosts(document), _build_steps(document)):
        if table.rows:
            console.print()
            console.print(table)


def _print_summary(console: Console, document: Fleet) -> None:
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


def _build_ranks(document: Fleet) -> ConsoleTable:
    columns = (">rank", ">late", ">GPU", ">CPU", ">step", ">last in", ">others waited", "host", "its own verdict")
    table = ConsoleTable("slowest ranks, against the median rank", *columns)
    for each in document.slowest_ranks:
        table.add_cells(
            str(each.rank),
            format_share(each.late_share),
            _format_factor(each.gpu_factor),
            _format_factor(each.cpu_factor),
            format_duration(each.step_us * 1000),
            str(each.waited_for),
            format_duration(each.delay_us * 1000),
            clean(each.host or UNKNOWN),
            each.regime,
        )
    return table


def _build_hosts(document: Fleet) -> ConsoleTable:
    table = ConsoleTable("slowest hosts, medians of their ranks", ">late", ">GPU", ">CPU", ">ranks", "host")
    for each in document.slowest_hosts:
        table.add_cells(
            format_share(each.late_share),
            _format_factor(each.gpu_factor),
            _format_factor(each.cpu_factor),
            str(len(each.ranks)),
            clean(each.host),
        )
    return table


def _build_steps(document: Fleet) -> ConsoleTable:
    columns = (">step", ">median", ">longest", ">GPU busy", ">exposed", ">waited for rank", ">others waited")
    table = ConsoleTable("longest steps", *columns)
    for each in document.slowest_steps:
        table.add_cells(
            "all" if each.step < 0 else str(each.step),
            format_duration(each.median_us * 1000),
            format_duration(each.longest_us * 1000),
            UNKNOWN if each.busy_share is None else format_share(each.busy_share),
            UNKNOWN if each.exposed_share is None else format_share(each.exposed_share),
            UNKNOWN if each.waited_for is None else str(each.waited_for),
            format_duration(each.delay_us * 1000),
        )
    return table


def _format_factor(factor: float | None) -> str:
    return UNKNOWN if factor is None else f"{factor:.2f} ×"
