"""The build of a trace's columns: decode the source, build the trace, store it in a folder.

Imports numpy and all decoders: import it where a trace is not in the cache.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torchprof_tui.trace.build.build_trace import add_row_index, build_trace
from torchprof_tui.trace.core.errors import DISK_FULL_ERRNOS, NOT_A_TRACE, TraceError
from torchprof_tui.trace.core.extensions import find_source, guard_function, list_sources
from torchprof_tui.trace.core.process_state import pause_garbage_collection
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.loading.errors import StorageFullError
from torchprof_tui.trace.loading.open_or_build import BuildResult
from torchprof_tui.trace.loading.progress import Phase, Progress, Report
from torchprof_tui.trace.sources.open import open_source
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.specs.address import is_remote
from torchprof_tui.trace.storage.disk_cache import is_cached, is_in_cache_folder
from torchprof_tui.trace.storage.trace_store import TraceWriter

_JSON_STARTS = (b"{", b"[", b"\xef\xbb\xbf")
_PACKET_START = b"\x0a"


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
        source = _open_with_extension(open_source(spec))
        report(latest)
        if source.identity is not None and is_in_cache_folder(folder) and is_cached(source.identity):
            source.close()
            return BuildResult(source.identity, already_cached=True)
        try:
            decoded = decode_trace(
                source, folder, report_reading, process_count=process_count, defer_blocks=defer_blocks
            )
        except TraceError as error:
            unusable = list_sources()[1] if NOT_A_TRACE in str(error) else []
            if not unusable:
                raise
            raise TraceError("; ".join([str(error), *unusable])) from error  # one of these may know the file
        report(replace(latest, phase=Phase.ARRANGING))
        with TraceWriter(folder) as writer:
            trace = add_row_index(build_trace(decoded, spec, writer.allocate), writer.allocate)
            del decoded  # frees its memory before the columns are written
            report(replace(latest, phase=Phase.STORING))
            writer.finish(trace)
    return BuildResult(None if source.connection_lost else source.identity)


def _open_with_extension(source: Source) -> Source:
    """Open a file that is neither JSON nor packets with the extension that recognises it; else return the source."""
    head = source.peek()
    if not head or head.lstrip().startswith(_JSON_STARTS) or head.startswith(_PACKET_START):
        return source
    extension = find_source(head)
    if extension is None:
        return source
    opened: Source = guard_function(extension, extension.open)(source)
    opened.format = extension.name
    return opened
