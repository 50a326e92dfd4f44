"""Load a trace for callers without a screen: from the cache, or decoded now, in this process or in workers.

Prints nothing: what went wrong with ranks is in the trace (`merged_ranks.lost`, `problems`).
"""

from __future__ import annotations

import contextlib
import importlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.open_or_build import BuildResult, OpenedTrace, OpeningState, open_or_build
from torchprof_tui.trace.loading.progress import LoadError, Report, ignore_progress
from torchprof_tui.trace.loading.resolve import ResolvedInput, resolve_specs
from torchprof_tui.trace.sources.ssh_command import LoginNeededError
from torchprof_tui.trace.specs.runs_by_name import FolderError, group_recordings
from torchprof_tui.trace.storage.disk_cache import CacheEntry
from torchprof_tui.trace.text.gzip_text import GzipText

if TYPE_CHECKING:
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

    A remote folder that holds the ranks of one run, and no other ranks, is that run; with `list_folders` it raises
    FolderError, as every other remote folder does. `allow_prompt`: ssh may ask on the terminal. Raises TraceError.
    """
    # Connect to the hosts that are named. Of several, one that fails is reported later.
    hosts = resolved.ssh_hosts()
    try:
        connections.connect_all(hosts, allow_prompt=allow_prompt)
    except LoginNeededError:
        if len(hosts) == 1:
            raise
    try:
        if resolved.rank_files or resolved.remote_names:
            return _load_in_workers(resolved, report, cache)
        return replace(load_opened_trace(resolved.path, report, cache), left_out=resolved.left_out)
    except FolderError as folder:
        recordings = group_recordings(folder.traces)
        if list_folders or not (len(recordings.all) == 1 and bool(recordings.all[0].ranks)):
            raise
    opened = load_resolved(
        resolve_specs(recordings.all[0].specs), connections, report, cache, list_folders, allow_prompt
    )
    return replace(opened, left_out=(*recordings.left_out, *opened.left_out))


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
            with importlib.import_module("concurrent.futures").ThreadPoolExecutor(1) as pool:  # imports logging
                trace = pool.submit(load).result()
        else:
            trace = load()
    except LoadError as error:
        raise TraceError(str(error)) from error
    except BaseException:  # Ctrl-C may come before the event loop runs, which cleans up otherwise
        opener.cancel()
        raise
    seconds = time.perf_counter() - began
    return OpenedTrace(trace, None, opener.cached, seconds, opener.cache_was_damaged, opener.left_out)


def load_trace(spec: str, report: Report | None = None, cache: bool = True) -> Trace:
    """Load a trace, from the cache where it is there. Raises TraceError (one line for the user)."""
    return load_opened_trace(spec, report, cache).trace


def load_opened_trace(spec: str, report: Report | None = None, cache: bool = True) -> OpenedTrace:
    """Load a trace as `load_trace` does, with its cache entry and how long it took."""
    began = time.perf_counter()

    def build(entry: CacheEntry) -> BuildResult:
        # deferred: a trace in the cache needs no decoder
        from torchprof_tui.trace.loading.decode_and_store import decode_and_store

        return decode_and_store(spec, entry.folder, report or ignore_progress)

    opened = open_or_build(OpeningState(spec, cache=cache), build)
    if opened.cached:
        split_into_blocks(opened.trace)
    return replace(opened, seconds=time.perf_counter() - began)


def split_into_blocks(trace: Trace) -> None:
    """Write the text blocks that were deferred when the trace was stored, so that reading many args is fast.

    Where they cannot be written, args are read from the whole text as before, which reports what is wrong then.
    """
    text = find_deferred_text(trace)
    if text is not None:
        with contextlib.suppress(OSError, LookupError):
            text.split_into_blocks()


def find_deferred_text(trace: Trace) -> GzipText | None:
    """Return the text whose blocks have not been written, None if there is nothing to write."""
    text = trace.text
    if isinstance(text, GzipText) and text.block_text is None:
        return text
    return None
