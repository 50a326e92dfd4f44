"""Loading what a command without a screen was given: one trace, or the ranks of a run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.partial_input import report_partial
from torchprof_tui.trace.loading.resolve import ResolvedInput, resolve_specs

if TYPE_CHECKING:
    from torchprof_tui.trace.loading.load import OpenedTrace
    from torchprof_tui.trace.loading.progress import Report
    from torchprof_tui.trace.model.ranks import Rank
    from torchprof_tui.trace.model.trace import Trace
    from torchprof_tui.trace.specs.folder_error import FolderError


def load_specs(specs: Sequence[str], cache: bool, list_folders: bool = False) -> OpenedTrace:
    """Decoded now or mapped from the cache, with a line of progress; ranks that could not be opened are told on stderr.

    A folder elsewhere that holds the ranks of one run is that run; with `listing` it is FolderError, as every other
    folder there. Raises TraceError.
    """
    meant = resolve_specs(specs)
    from torchprof_tui.commands.common.progress_line import ProgressLine
    from torchprof_tui.trace.loading.load import load_opened_trace
    from torchprof_tui.trace.specs.folder_error import FolderError
    from torchprof_tui.trace.storage import disk_cache as kept

    told = ProgressLine(sys.stderr)
    try:
        several = meant.rank_files or meant.remote_names
        loaded = _load_in_processes(meant, told, cache) if several else load_opened_trace(meant.path, told, cache)
    except FolderError as folder:
        run = None if list_folders else _single_run_specs(folder)
        if run is None:
            raise
        told.clear()
        return load_specs(run, cache)
    finally:
        told.clear()
    _report_rank_problems(loaded.trace)
    if not list_folders:  # `info` has room for all of it
        report_partial(loaded.trace)
    if not loaded.cached:
        kept.prune_cache()
    return loaded


def _single_run_specs(folder: FolderError) -> list[str] | None:
    """What opens the run whose ranks are all that is in a folder elsewhere."""
    from torchprof_tui.trace.specs.rank_groups import group_runs

    runs = group_runs(folder.traces)
    return runs[0].specs if len(runs) == 1 and len(runs[0].traces) == len(folder.traces) else None


def _report_rank_problems(trace: Trace) -> None:
    """Those that are missing, and those that may be of another run."""
    if trace.ranks is None:
        return
    from torchprof_tui.trace.core.problems import UNRELATED_RANKS
    from torchprof_tui.ui.common.name_display import clean

    for lost in trace.ranks.lost:
        print(f"torchprof-tui: left out, {clean(str(lost))}", file=sys.stderr)
    for problem in trace.problems:
        if problem.kind == UNRELATED_RANKS:
            print(f"torchprof-tui: {problem.kind} {clean(problem.example)}", file=sys.stderr)


def _load_in_processes(meant: ResolvedInput, told: Report, cache: bool) -> OpenedTrace:
    """Loaded by other processes, which an event loop watches."""
    import asyncio
    import time

    from torchprof_tui.trace.core.errors import TraceError
    from torchprof_tui.trace.loading.errors import LoadError
    from torchprof_tui.trace.loading.load import OpenedTrace

    began = time.perf_counter()
    opening = meant.create_opener(cache, ask=sys.stderr.isatty())
    try:
        opening.start()
        trace = asyncio.run(opening.load_trace(told))
    except LoadError as error:
        raise TraceError(str(error)) from error
    except BaseException:  # Ctrl-C may come before the event loop does, which else lets go of all
        opening.cancel()
        raise
    return OpenedTrace(trace, None, opening.cached, time.perf_counter() - began)


def select_rank(trace: Trace, number: int | None) -> tuple[Trace, Rank | None]:
    """The trace of one rank, where there are several: `number`, else the first. Raises UsageError."""
    ranks = trace.ranks
    if ranks is None:
        if number is not None and number != trace.rank:
            known = "one trace, which does not say its rank" if trace.rank is None else f"rank {trace.rank} alone"
            raise UsageError(f"--rank {number}: this is {known}")
        return trace, None
    rank = ranks.all[0] if number is None else ranks.find_rank(number)
    if rank is None:
        known = ", ".join(str(each.number) for each in ranks.all)
        raise UsageError(f"--rank {number}: there are ranks {known}")
    return rank.trace, rank
