"""Compare all ranks of a job: `torchprof-tui fleet`."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from torchprof_fleet.analysis.fleet import LeftOut, NoRanksError
from torchprof_fleet.analysis.rank_sketch import EXTRA, RankSketch, encode_sketches
from torchprof_fleet.analysis.report import FleetReport, compare_fleet
from torchprof_fleet.answers import build_fleet
from torchprof_fleet.command import FleetOptions
from torchprof_fleet.command.sketching import SketchedFleet, SketchMany, list_sources, sketch_all
from torchprof_fleet.command.workers import sketch_locally, sketch_on_cluster
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import report_refused_cache
from torchprof_tui.commands.common.output import print_answer
from torchprof_tui.commands.common.terminal import find_terminal_problem, show_screen
from torchprof_tui.program.phase_log import note_phase
from torchprof_tui.program.terminal_progress import ReplacedLine
from torchprof_tui.trace.core.atomic_file import OutputError, check_target, write_atomically
from torchprof_tui.trace.core.extensions import import_extra
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.process_state import count_cores
from torchprof_tui.trace.loading.resolve import resolve_path
from torchprof_tui.trace.sources.ssh_connections import SshConnections
from torchprof_tui.trace.specs.address import ListedTrace, parse_ssh_path
from torchprof_tui.ui.common.number_format import format_file_size


def run(options: FleetOptions) -> int:
    import_extra("pyarrow", EXTRA)
    with SshConnections() as connections, contextlib.ExitStack() as stack:
        hosts = [path for path in map(parse_ssh_path, map(resolve_path, options.source)) if path is not None]
        connections.connect_all(hosts, allow_prompt=sys.stderr.isatty())
        traces, lost = list_sources(options.source, stack)
        sketch_many: SketchMany = partial(sketch_locally, jobs=count_cores())
        if options.on is not None:
            if options.jobs is not None:
                raise UsageError("--jobs is for this machine, --on for the workers of a cluster: leave one out")
            sketch_many = partial(sketch_on_cluster, address=options.on)
        if _shows_screen(options):
            return show_screen(options, traces, lost, sketch_many, connections)
        try:
            _sketch_and_print(options, traces, lost, sketch_many)
        except OutputError as error:
            raise UsageError(f"--parquet: {error}") from error
        return 0


def _shows_screen(options: FleetOptions) -> bool:
    """Return whether there is a terminal, and no other form of the answer was asked for."""
    return not options.json and options.parquet is None and sys.stdout.isatty() and not find_terminal_problem()


def _sketch_and_print(
    options: FleetOptions, traces: Sequence[ListedTrace], lost: Sequence[LeftOut], sketch_many: SketchMany
) -> None:
    out = None if options.parquet is None else Path(options.parquet)
    if out is not None:
        check_target(out)
    line = ReplacedLine(sys.stderr)

    def show(_: RankSketch | None, done: int, total: int) -> None:
        if sys.stderr.isatty():
            line.show(f"sketched {done:,} of {total:,} ranks", done / total if total else None)

    try:
        sketched = sketch_all(traces, sketch_many, not options.no_cache, show, no_traces=lost)
    finally:
        line.clear()
    note_phase("sketched", ranks=len(sketched.sketches), reused=sketched.reused)
    if not options.no_cache:
        report_refused_cache()
    if out is not None:
        write_atomically(out, encode_sketches(sketched.sketches))
    document = build_fleet(compare_sketched(sketched), options.top, sketched.reused)
    if options.json:
        print_answer(document)
    else:
        # imports rich, which the screen and JSON do not need here
        importlib.import_module("torchprof_fleet.command.text").print_fleet(document)
    if out is not None:
        print(clean(f"wrote {out}: {format_file_size(out.stat().st_size)}"), file=sys.stderr)


def compare_sources(paths: Sequence[str]) -> tuple[FleetReport, int]:
    """Compare the ranks in some folders; also return how many sketches were cached. Raises UsageError."""
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
