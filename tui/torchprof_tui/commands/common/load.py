"""Load what a command without a screen was given: one trace, or the ranks of a run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchprof_tui.commands.common.cut_file_guard import guard_mapped_files
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.partial_input import report_partial
from torchprof_tui.commands.common.progress_line import ProgressLine
from torchprof_tui.program.phase_log import note_phase
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.problems import CUT_CONNECTION, UNRELATED_RANKS
from torchprof_tui.trace.loading.load_resolved import load_resolved
from torchprof_tui.trace.loading.open_or_build import DAMAGED_CACHE_MESSAGE, OpenedTrace
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.sources.ssh_connections import SshConnections
from torchprof_tui.trace.storage.disk_cache import explain_refused_folder, prune_cache

if TYPE_CHECKING:
    from torchprof_tui.trace.model.ranks import Rank
    from torchprof_tui.trace.model.trace import Trace


def load_specs(specs: Sequence[str], cache: bool, list_folders: bool = False) -> OpenedTrace:
    """Load what the user named, from the cache or decoded now, with a progress line; report lost ranks on stderr.

    A remote folder that holds the ranks of one run and nothing else is that run; with `list_folders` it raises
    FolderError, as every other remote folder does. Raises TraceError.
    """
    guard_mapped_files()
    progress_line = ProgressLine(sys.stderr)
    with SshConnections() as connections:
        try:
            opened = load_resolved(
                resolve_specs(specs), connections, progress_line, cache, list_folders, sys.stderr.isatty()
            )
        finally:
            progress_line.clear()
    note_phase("trace opened", events=len(opened.trace), cached=str(opened.cached), seconds=opened.seconds)
    if opened.was_damaged:
        print(f"torchprof-tui: {DAMAGED_CACHE_MESSAGE}", file=sys.stderr)
    for line in opened.left_out:
        print(f"torchprof-tui: left out: {clean(line)}", file=sys.stderr)
    _refuse_cut_connection(opened.trace)
    _report_rank_problems(opened.trace)
    if not list_folders:  # `info` prints all of it
        report_partial(opened.trace)
    if cache and not opened.cached:
        report_refused_cache()
        prune_cache()
    return opened


def report_refused_cache() -> None:
    """Report a cache folder that is not used, because it holds other things, on stderr."""
    line = explain_refused_folder()
    if line is not None:
        print(f"torchprof-tui: {clean(line)}", file=sys.stderr)


def _refuse_cut_connection(trace: Trace) -> None:
    """Raise UsageError for one trace that did not arrive as a whole: asked again, the host may send all of it.

    Ranks of which one was cut are shown, as those of which one is missing.
    """
    cut = next((problem for problem in trace.problems if problem.kind == CUT_CONNECTION), None)
    if cut is not None and trace.merged_ranks is None:
        raise UsageError(f"{clean(trace.label)}: {clean(cut.example)}; try again")


def _report_rank_problems(trace: Trace) -> None:
    """Report the ranks that are missing, and those that may be of another run."""
    if trace.merged_ranks is None:
        return
    for lost in trace.merged_ranks.lost:
        print(f"torchprof-tui: left out: {clean(str(lost))}", file=sys.stderr)
    for problem in trace.problems:
        if problem.kind == UNRELATED_RANKS:
            print(f"torchprof-tui: {problem.kind} {clean(problem.example)}", file=sys.stderr)


def select_rank(trace: Trace, number: int | None) -> tuple[Trace, Rank | None]:
    """Select the trace of one rank where there are several: rank `number`, else the first. Raises UsageError."""
    ranks = trace.merged_ranks
    if ranks is None:
        if number is not None and number != trace.rank:
            known = "one trace without a rank number" if trace.rank is None else f"rank {trace.rank} only"
            raise UsageError(f"--rank {number}: no such rank; the input is {known}")
        return trace, None
    rank = ranks.all[0] if number is None else ranks.find_rank(number)
    if rank is None:
        known = ", ".join(str(other.number) for other in ranks.all)
        raise UsageError(f"--rank {number}: no such rank; there are ranks {known}")
    return rank.trace, rank
