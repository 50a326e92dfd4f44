"""Load a trace in this process, for the commands without a screen: map it from the cache, or decode and store it."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from torchprof_tui.trace.loading.open_or_build import BuildResult, OpenedTrace, OpeningState, open_or_build
from torchprof_tui.trace.loading.progress import Report, ignore_progress
from torchprof_tui.trace.storage.disk_cache import CacheEntry
from torchprof_tui.trace.text.gzip_text import GzipText

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Trace


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
