"""Load what the user named, one trace or the ranks of a run, for callers without an event loop of their own.

Prints nothing: what went wrong with ranks is in the trace (`merged_ranks.lost`, `problems`).
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.errors import LoadError
from torchprof_tui.trace.loading.load_in_process import load_opened_trace
from torchprof_tui.trace.loading.open_or_build import OpenedTrace
from torchprof_tui.trace.loading.resolve import ResolvedInput, resolve_specs
from torchprof_tui.trace.sources.ssh_errors import LoginNeededError
from torchprof_tui.trace.specs.folder_error import FolderError
from torchprof_tui.trace.specs.runs_by_name import group_runs

if TYPE_CHECKING:
    from torchprof_tui.trace.loading.progress import Report
    from torchprof_tui.trace.model.trace import Trace
    from torchprof_tui.trace.sources.ssh_connections import SshConnections


def load_resolved(
    resolved: ResolvedInput,
    connections: SshConnections,
    report: Report,
    cache: bool = True,
    list_folders: bool = False,
    allow_prompt: bool = False,
) -> OpenedTrace:
    """Load from the cache, or decode now, over these connections.

    A remote folder that holds the ranks of one run and nothing else is that run; with `list_folders` it raises
    FolderError, as every other remote folder does. `allow_prompt`: ssh may ask on the terminal. Raises TraceError.
    """
    _connect_hosts(resolved, connections, allow_prompt)
    try:
        if resolved.rank_files or resolved.remote_names:
            return _load_in_workers(resolved, report, cache)
        return load_opened_trace(resolved.path, report, cache)
    except FolderError as folder:
        run = None if list_folders else _single_run_specs(folder)
        if run is None:
            raise
    return load_resolved(resolve_specs(run), connections, report, cache, list_folders, allow_prompt)


def _connect_hosts(resolved: ResolvedInput, connections: SshConnections, allow_prompt: bool) -> None:
    """Connect to the hosts that are named. Of several, one that fails is reported later."""
    hosts = resolved.ssh_hosts()
    try:
        connections.connect_all(hosts, allow_prompt=allow_prompt)
    except LoginNeededError:
        if len(hosts) == 1:
            raise


def _single_run_specs(folder: FolderError) -> list[str] | None:
    """Return the ranks of the run that is all that a remote folder holds, None where it holds anything else."""
    runs = group_runs(folder.traces)
    return runs[0].specs if len(runs) == 1 and len(runs[0].traces) == len(folder.traces) else None


def _load_in_workers(resolved: ResolvedInput, report: Report, cache: bool) -> OpenedTrace:
    """Load in worker processes, watched by an event loop."""
    import asyncio  # deferred: one trace is loaded without an event loop

    began = time.perf_counter()
    opener = resolved.create_opener(cache)

    def load() -> Trace:
        return asyncio.run(opener.load_trace(report))

    try:
        is_in_loop = asyncio.get_running_loop() is not None
    except RuntimeError:
        is_in_loop = False
    try:
        opener.start()
        if is_in_loop:  # in a notebook, whose thread runs a loop already
            with ThreadPoolExecutor(1) as pool:
                trace = pool.submit(load).result()
        else:
            trace = load()
    except LoadError as error:
        raise TraceError(str(error)) from error
    except BaseException:  # Ctrl-C may come before the event loop runs, which cleans up otherwise
        opener.cancel()
        raise
    return OpenedTrace(trace, None, opener.cached, time.perf_counter() - began, opener.cache_was_damaged)
