"""The build of a trace's columns: decode the source, build the trace, store it in a folder.

Imports numpy and all decoders: import it where a trace is not in the cache.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

from torchprof_tui.trace.build.build_trace import add_row_index, build_trace
from torchprof_tui.trace.core.errors import DISK_FULL_ERRNOS
from torchprof_tui.trace.core.process_state import pause_garbage_collection
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.loading.errors import StorageFullError
from torchprof_tui.trace.loading.open_or_build import BuildResult
from torchprof_tui.trace.loading.progress import Phase, Progress, Report
from torchprof_tui.trace.sources.open import open_source
from torchprof_tui.trace.specs.address import is_remote
from torchprof_tui.trace.specs.rank_files import SQLITE_MAGIC
from torchprof_tui.trace.storage.disk_cache import is_cached, is_in_cache_folder
from torchprof_tui.trace.storage.trace_store import TraceWriter

NSIGHT_MODULE = "torchprof_tui.trace.sources.nsight.nsight_source"
"""Imported by name where a source is an SQLite file: it imports sqlite3."""


def decode_and_store(
    spec: str,
    folder: Path,
    report: Report,
    process_count: int | None = None,
    defer_blocks: bool = False,
) -> BuildResult:
    """Decode, build and store a trace in `folder`.

    `process_count`, `defer_blocks`: as in `decode_trace`.
    Raises TraceError, OSError, MemoryError; StorageFullError where there is no room in `folder`.
    """
    try:
        return _decode_and_store(spec, folder, report, process_count, defer_blocks)
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        raise StorageFullError(error.errno, error.strerror or "no room", str(folder.parent)) from error


def _decode_and_store(
    spec: str, folder: Path, report: Report, process_count: int | None, defer_blocks: bool
) -> BuildResult:
    latest = Progress(Phase.READING)
    if is_remote(spec):
        report(Progress(Phase.CONNECTING))

    def report_reading(done: int, total: int | None, events: int) -> None:
        nonlocal latest
        latest = Progress(Phase.READING, done, total, events)
        report(latest)

    with pause_garbage_collection():
        source = open_source(spec)
        if source.head and SQLITE_MAGIC.startswith(source.head):
            source = importlib.import_module(NSIGHT_MODULE).open_nsight_export(source)
        report(latest)
        if source.identity is not None and is_in_cache_folder(folder) and is_cached(source.identity):
            source.close()
            return BuildResult(source.identity, already_cached=True)
        decoded = decode_trace(source, folder, report_reading, process_count=process_count, defer_blocks=defer_blocks)
        report(replace(latest, phase=Phase.ARRANGING))
        with TraceWriter(folder) as writer:
            trace = add_row_index(build_trace(decoded, spec, writer.allocate), writer.allocate)
            del decoded  # frees its memory before the columns are written
            report(replace(latest, phase=Phase.STORING))
            writer.finish(trace)
    return BuildResult(None if source.connection_lost else source.identity)
