"""The decision where the columns of a trace come from: mapped from the cache, or built and stored there.

Every way to open a trace takes the same steps: look in the cache; else build into a draft entry; where the source turns
out to be cached already, map that entry; where that fails, or the cache has no room, build once more without the cache.
`OpeningState` makes the decisions; `open_or_build_async` runs it from an event loop, `open_or_build` without one.

An entry from the cache is verified as a whole before any of it is used: no later stage meets a damaged value. For the
91 MB of a trace of 338 MB this takes 7 to 20 ms, in the app beside the import of the explorer.

Imported on the way to the first frame: standard library only.
"""

from __future__ import annotations

import errno
import importlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.loading.progress import LoadError, StorageFullError
from torchprof_tui.trace.storage.disk_cache import (
    CacheEntry,
    create_draft,
    find_by_identity,
    find_or_create_entry,
    is_in_cache_folder,
)

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Trace


T = TypeVar("T")

_TRACE_STORE = "torchprof_tui.trace.storage.trace_store"  # imported by name where columns are mapped: it imports numpy
_SCARCITY_ERRNOS = (errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""Errors of this process, which say nothing about a cache entry."""


@record
class BuildResult:
    """The outcome of a build.

    `identity`: the key to publish a remote trace under, None for local files and for traces that are not to be reused.
    `already_cached`: the cache has this identity, and nothing was read.
    """

    identity: str | None = None
    already_cached: bool = False


@record
class OpenedTrace:
    """A trace and how it was opened. Close `cache_entry` when the trace is no longer used."""

    trace: Trace
    cache_entry: CacheEntry | None  # None for several ranks, whose entries stay open until this process ends
    cached: bool
    seconds: float
    was_damaged: bool = False  # whether the cache had an entry that was damaged and had to be built again
    left_out: tuple[str, ...] = ()  # one line for each trace of the folder that was not opened


class OpeningState:
    """The cache entry of one trace that is being opened, and whether its columns came from the cache.

    `label`: the name that the trace gets, `spec` by default. `identity`: the key of a remote trace, where it is known.
    `captures`: named traces of the captures of its graphs; without any they are looked for beside the trace.
    `entry` changes while the trace is being opened. All methods block. Raises OSError where no folder can be made.
    """

    def __init__(
        self,
        spec: str,
        label: str | None = None,
        cache: bool = True,
        identity: str | None = None,
        captures: tuple[str, ...] = (),
    ) -> None:
        self.spec = spec
        self._captures = captures
        self.label = label or spec
        self._use_cache = cache
        entry = find_by_identity(spec, identity) if cache and identity is not None else None
        self.entry = entry or find_or_create_entry(spec, cache)
        self.cached = self.entry.ready
        self.was_damaged = False

    def map_cached(self) -> Trace | None:
        """Map the columns in the cache; None where they must be built into `entry`."""
        while self.entry.ready:
            trace = self._try_map_stored(self.entry)
            if trace is not None:
                return trace
            self.entry = find_or_create_entry(self.spec, self._use_cache)
            self._use_cache = False  # damaged columns that cannot be removed are tried twice and no more
        self.cached = False
        return None

    def map_built(self, result: BuildResult) -> Trace | None:
        """Publish and map what was built into `entry`; None where it must be built again, into the new `entry`."""
        if not result.already_cached:
            self.cached = False
            self.entry.publish(result.identity)
            return self._map_stored(self.entry)
        self.entry.discard()
        stored = find_by_identity(self.spec, result.identity or "")
        trace = None if stored is None else self._try_map_stored(stored)
        if stored is not None and trace is not None:
            self.entry, self.cached = stored, True
            return trace
        self.entry = find_or_create_entry(self.spec, cache=False)
        return None

    def leave_full_cache(self) -> bool:
        """Replace a draft for which the cache folder has no room by one in the temporary folder.

        Returns whether the trace can be built again: from a file that can be read twice, and once only.
        """
        if self.entry.key is None or not is_in_cache_folder(self.entry.folder):
            return False
        self.entry.close()
        self.entry = create_draft(self.spec, cache=False)
        return True

    def _try_map_stored(self, entry: CacheEntry) -> Trace | None:
        """Verify and map stored columns; discard the entry and return None where they cannot be used."""
        trace_store = importlib.import_module(_TRACE_STORE)
        try:
            if not entry.is_sealed:
                raise ValueError("the entry of another trace")
            return self._map_stored(entry, verify=True)
        except MemoryError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _SCARCITY_ERRNOS:
                raise
            # Whatever is wrong with a cache entry, the remedy is the same: build it again.
            self.was_damaged |= not isinstance(error, trace_store.OtherVersionError)
            entry.discard()
            return None

    def _map_stored(self, entry: CacheEntry, verify: bool = False) -> Trace:
        """Map the columns in an entry's folder, under the user's name; `verify` as in `trace_store.open_trace`.

        A trace that is not kept in the cache has captures that are not kept there either.
        """
        from torchprof_tui.trace.loading import capture_files, recordings_beside  # deferred: they import numpy

        uses_cache = entry.key is not None
        files = capture_files.CaptureFiles(self.spec, self._captures, cache=uses_cache)
        trace: Trace = importlib.import_module(_TRACE_STORE).open_trace(entry.folder, verify)
        beside = recordings_beside.RecordingsBeside(self.spec, uses_cache)
        return replace(trace, label=self.label, captures=files, same_program=beside)

    def close(self) -> None:
        """Release the entry; a draft is removed. May be called again."""
        self.entry.close()


async def open_or_build_async(
    state: OpeningState, build: Callable[[CacheEntry], Awaitable[BuildResult]], *, is_in_loop: bool = True
) -> OpenedTrace:
    """Map a trace from the cache, or build it with `build`, which fills the folder of an entry.

    The event loop is never blocked. `is_in_loop` off: nothing is done on threads, so that no loop is needed.
    `build` must have ended its worker before it raises, also where it is cancelled: the entry is removed then.
    """

    async def call_here(function: Callable[..., T], *arguments: object) -> T:
        return function(*arguments)

    call: Callable[..., Awaitable[Any]] = call_here
    clean_up: Callable[..., Awaitable[Any]] = call_here
    if is_in_loop:
        # deferred: importing asyncio takes as long as starting a worker, which comes first
        from torchprof_tui.trace.loading.cleanup import clean_up_in_thread, run_in_thread

        call, clean_up = run_in_thread, clean_up_in_thread
    began = time.perf_counter()
    try:
        trace = await call(state.map_cached) if state.entry.ready else None
        while trace is None:
            try:
                result = await build(state.entry)
            except (StorageFullError, LoadError) as error:
                is_full = isinstance(error, StorageFullError) or error.storage_full
                if not (is_full and await call(state.leave_full_cache)):
                    raise
                continue
            trace = await call(state.map_built, result)
    except BaseException:
        await clean_up(state.close)
        raise
    return OpenedTrace(trace, state.entry, state.cached, time.perf_counter() - began, state.was_damaged)


def open_or_build(state: OpeningState, build: Callable[[CacheEntry], BuildResult]) -> OpenedTrace:
    """Do the same as `open_or_build_async` without an event loop, on this thread."""

    async def build_here(entry: CacheEntry) -> BuildResult:
        return build(entry)

    try:
        open_or_build_async(state, build_here, is_in_loop=False).send(None)
    except StopIteration as ended:
        opened: OpenedTrace = ended.value
        return opened
    raise AssertionError("nothing waits for an event loop")
