"""Load what a command without a screen was given: one trace, or the ranks of a run."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchprof_tui.commands.common.cut_file_guard import guard_mapped_files
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.partial_input import report_partial
from torchprof_tui.commands.common.progress_line import ProgressLine
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.problems import UNRELATED_RANKS
from torchprof_tui.trace.loading.errors import LoadError
from torchprof_tui.trace.loading.load_in_process import load_opened_trace
from torchprof_tui.trace.loading.open_or_build import DAMAGED_CACHE_MESSAGE, OpenedTrace
from torchprof_tui.trace.loading.resolve import ResolvedInput, resolve_specs
from torchprof_tui.trace.sources.ssh_connections import SshConnections
from torchprof_tui.trace.sources.ssh_errors import LoginNeededError
from torchprof_tui.trace.specs.folder_error import FolderError
from torchprof_tui.trace.specs.runs_by_name import group_runs
from torchprof_tui.trace.storage.disk_cache import prune_cache

if TYPE_CHECKING:
    from torchprof_tui.trace.loading.progress import Report
    from torchprof_tui.trace.model.ranks import Rank
    from torchprof_tui.trace.model.trace import Trace


def load_specs(specs: Sequence[str], cache: bool, list_folders: bool = False) -> OpenedTrace:
    """Load what the user named, from the cache or decoded now, with a progress line; report lost ranks on stderr.

    A remote folder that holds the ranks of one run and nothing else is that run; with `list_folders` it raises
    FolderError, as every other remote folder does. Raises TraceError.
    """
    guard_mapped_files()
    with SshConnections() as connections:
        return _load(resolve_specs(specs), cache, list_folders, connections)


def _load(resolved: ResolvedInput, cache: bool, list_folders: bool, connections: SshConnections) -> OpenedTrace:
    """Load as `load_specs` does, over the connections of the command."""
    _connect_hosts(resolved, connections)
    progress_line = ProgressLine(sys.stderr)
    try:
        if resolved.rank_files or resolved.remote_names:
            opened = _load_in_workers(resolved, progress_line, cache)
        else:
            opened = load_opened_trace(resolved.path, progress_line, cache)
    except FolderError as folder:
        run = None if list_folders else _single_run_specs(folder)
        if run is None:
            raise
        progress_line.clear()
        return _load(resolve_specs(run), cache, list_folders, connections)
    finally:
        progress_line.clear()
    if opened.was_damaged:
        print(f"torchprof-tui: {DAMAGED_CACHE_MESSAGE}", file=sys.stderr)
    _report_rank_problems(opened.trace)
    if not list_folders:  # `info` prints all of it
        report_partial(opened.trace)
    if not opened.cached:
        prune_cache()
    return opened


def _connect_hosts(resolved: ResolvedInput, connections: SshConnections) -> None:
    """Connect to the hosts that are named; ssh may ask on a terminal. Of several, one that fails is reported later."""
    hosts = resolved.ssh_hosts()
    try:
        connections.connect_all(hosts, allow_prompt=sys.stderr.isatty())
    except LoginNeededError:
        if len(hosts) == 1:
            raise


def _single_run_specs(folder: FolderError) -> list[str] | None:
    """Return the ranks of the run that is all that a remote folder holds, None where it holds anything else."""
    runs = group_runs(folder.traces)
    return runs[0].specs if len(runs) == 1 and len(runs[0].traces) == len(folder.traces) else None


def _report_rank_problems(trace: Trace) -> None:
    """Report the ranks that are missing, and those that may be of another run."""
    if trace.merged_ranks is None:
        return
    for lost in trace.merged_ranks.lost:
        print(f"torchprof-tui: left out: {clean(str(lost))}", file=sys.stderr)
    for problem in trace.problems:
        if problem.kind == UNRELATED_RANKS:
            print(f"torchprof-tui: {problem.kind} {clean(problem.example)}", file=sys.stderr)


def _load_in_workers(resolved: ResolvedInput, report: Report, cache: bool) -> OpenedTrace:
    """Load in worker processes, watched by an event loop."""
    import asyncio  # deferred: one trace is loaded without an event loop

    began = time.perf_counter()
    opener = resolved.create_opener(cache)
    try:
        opener.start()
        trace = asyncio.run(opener.load_trace(report))
    except LoadError as error:
        raise TraceError(str(error)) from error
    except BaseException:  # Ctrl-C may come before the event loop runs, which cleans up otherwise
        opener.cancel()
        raise
    return OpenedTrace(trace, None, opener.cached, time.perf_counter() - began, opener.cache_was_damaged)


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
