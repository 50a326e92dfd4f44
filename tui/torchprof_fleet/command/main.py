"""Compare all ranks of a job: `torchprof-tui fleet`."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torchprof_fleet.analysis.fleet import LeftOut, NoRanksError
from torchprof_fleet.analysis.rank_sketch import RankSketch
from torchprof_fleet.analysis.report import FleetReport, compare_fleet
from torchprof_fleet.analysis.sketch_parquet import EXTRA, encode_sketches
from torchprof_fleet.answers import Fleet, build_fleet
from torchprof_fleet.command import FleetOptions
from torchprof_fleet.command.sketching import SketchedFleet, SketchMany, list_sources, sketch_all
from torchprof_fleet.command.workers import sketch_locally, sketch_on_cluster
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import report_refused_cache
from torchprof_tui.commands.common.output import print_answer
from torchprof_tui.commands.common.tables import ConsoleTable, create_console
from torchprof_tui.commands.open.main import find_terminal_problem
from torchprof_tui.program.phase_log import note_phase
from torchprof_tui.trace.core.atomic_file import OutputError, check_target, write_atomically
from torchprof_tui.trace.core.extensions import import_extra
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.process_state import count_cores
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.loading.resolve import resolve_path
from torchprof_tui.trace.sources.ssh_connections import SshConnections
from torchprof_tui.trace.specs.address import ListedTrace, parse_ssh_path
from torchprof_tui.ui.common.number_format import format_file_size, format_share

if TYPE_CHECKING:
    from rich.console import Console


def run(options: FleetOptions) -> int:
    import_extra("pyarrow", EXTRA)
    with SshConnections() as connections, contextlib.ExitStack() as stack:
        hosts = [path for path in map(parse_ssh_path, map(resolve_path, options.source)) if path is not None]
        connections.connect_all(hosts, allow_prompt=sys.stderr.isatty())
        traces, lost = list_sources(options.source, stack)
        sketch_many = _choose_workers(options)
        is_terminal = sys.stdout.isatty() and not find_terminal_problem()
        if is_terminal and not options.json and options.parquet is None:
            # imports textual, which the text does not need
            screen = importlib.import_module("torchprof_fleet.command.screen")
            status: int = screen.open_screen(options, traces, lost, sketch_many, connections)
            return status
        try:
            return _print(options, _sketch(options, traces, lost, sketch_many))
        except OutputError as error:
            raise UsageError(f"--parquet: {error}") from error


def _print(options: FleetOptions, sketched: SketchedFleet) -> int:
    out = None if options.parquet is None else Path(options.parquet)
    if out is not None:
        write_atomically(out, encode_sketches(sketched.sketches))
    document = build_fleet(compare_sketched(sketched), options.top, sketched.reused)
    if options.json:
        print_answer(document)
    else:
        print_fleet(document)
    if out is not None:
        print(clean(f"wrote {out}: {format_file_size(out.stat().st_size)}"), file=sys.stderr)
    return 0


def _sketch(
    options: FleetOptions, traces: Sequence[ListedTrace], lost: Sequence[LeftOut], sketch_many: SketchMany
) -> SketchedFleet:
    if options.parquet is not None:
        check_target(Path(options.parquet))
    show = _Progress()
    try:
        sketched = sketch_all(traces, sketch_many, not options.no_cache, show, no_traces=lost)
    finally:
        show.clear()
    note_phase("sketched", ranks=len(sketched.sketches), reused=sketched.reused)
    if not options.no_cache:
        report_refused_cache()
    return sketched


def _choose_workers(options: FleetOptions) -> SketchMany:
    if options.on is not None and options.jobs is not None:
        raise UsageError("--jobs is for this machine, --on for the workers of a cluster: leave one out")
    if options.on is not None:
        return partial(sketch_on_cluster, address=options.on)
    return partial(sketch_locally, jobs=count_cores())


class _Progress:
    """Shows how many ranks are sketched, on one line of stderr where it is a terminal."""

    def __init__(self) -> None:
        self._is_shown = False

    def __call__(self, sketch: RankSketch | None, done: int, total: int) -> None:
        if sys.stderr.isatty():
            self._is_shown = True
            sys.stderr.write(f"\rsketched {done:,} of {total:,} ranks\x1b[K")
            sys.stderr.flush()

    def clear(self) -> None:
        """Clear the line."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def compare_sources(paths: Sequence[str]) -> tuple[FleetReport, int]:
    """Sketch the traces of some folders on this machine and compare their ranks. Raises UsageError.

    Returns the report and how many sketches were read from the cache.
    """
    import_extra("pyarrow", EXTRA)
    with contextlib.ExitStack() as stack:
        traces, lost = list_sources(paths, stack)
    sketched = sketch_all(traces, partial(sketch_locally, jobs=count_cores()), no_traces=lost)
    return compare_sketched(sketched), sketched.reused


def compare_sketched(sketched: SketchedFleet) -> FleetReport:
    """Compare sketched ranks. Raises UsageError where no file is of a rank that can be compared."""
    try:
        return compare_fleet(sketched.sketches, sketched.lost)
    except NoRanksError as error:
        raise UsageError(str(NoRanksError((*sketched.lost, *error.left_out)))) from error


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
