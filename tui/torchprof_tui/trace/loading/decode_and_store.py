"""The build of a trace's columns: decode the source, build the trace, store it in a folder.

Imports numpy and all decoders: import it where a trace is not in the cache.

`EarlyBuild` is a process beside the decoder of a large file that builds the beginning of the recording first, to be
shown early. It is forked by the worker process before that decodes, reads a small part of the file a second time, and
stores the result in folders of its own within that of the whole trace. The app maps these and removes them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torchprof_tui.trace.build.build_trace import add_row_index, build_trace
from torchprof_tui.trace.core.errors import DISK_FULL_ERRNOS, NOT_A_TRACE, TraceError
from torchprof_tui.trace.core.extensions import find_source, guard_function, list_sources
from torchprof_tui.trace.core.process_state import count_cores, pause_garbage_collection
from torchprof_tui.trace.decode.early_decoder import decode_early_ranges, find_early_ranges
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.decode.parallel import exit_with_parent, fork_process
from torchprof_tui.trace.loading.open_or_build import BuildResult
from torchprof_tui.trace.loading.progress import Phase, Progress, Report, StorageFullError
from torchprof_tui.trace.sources.source import Source, open_source
from torchprof_tui.trace.specs.address import is_remote
from torchprof_tui.trace.storage.disk_cache import is_cached, is_in_cache_folder
from torchprof_tui.trace.storage.trace_store import TraceWriter

_JSON_STARTS = (b"{", b"[", b"\xef\xbb\xbf")
_PACKET_START = b"\x0a"


def decode_and_store(
    spec: str, folder: Path, report: Report, process_count: int | None = None, defer_blocks: bool = False
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


MIN_BYTES = 1 << 30
"""Size of a file that takes four seconds to open on two cores. The process costs 0.8 s of that whatever the size; of
678 MB the beginning would be seen 1.1 s earlier, and the whole 0.8 s later, than without it."""

_BYTES_PER_CORE = 100 << 20  # size of a file, per core, below which the whole is there hardly later than its beginning
FIRST_BYTES = 96 << 20  # text of the first part that is shown: decoded and built in about half a second
GROWTH = 4  # the next part is so many times as large
MAX_SHARE = 0.125  # part of the file that is read twice, at most

EARLY_FOLDER = "early"

Send = Callable[[dict[str, object]], None]


class EarlyBuild:
    """The process; `stop` ends it. `send` writes a message to the app: it is called in that process.

    `sizes`: bytes of the parts, each shown once it is built; None: chosen by the size of the file.
    """

    def __init__(self, spec: str, folder: Path, send: Send, sizes: list[int] | None = None) -> None:
        self._folder = folder
        self._pid = 0
        sizes = choose_early_sizes(spec) if sizes is None else sizes
        # A forked process has only the thread that forked it; a lock of another thread would never be released in it.
        if not sizes or sys.platform != "linux" or threading.active_count() > 1:
            return
        try:
            parent_alive, self._alive_pipe = os.pipe()  # closes when this process ends, and then the other one ends too
        except OSError:
            return
        with contextlib.suppress(OSError):  # without a process, nothing is shown early
            self._pid = fork_process(lambda: self._run(spec, sizes, send, parent_alive))
        os.close(parent_alive)
        if not self._pid:
            os.close(self._alive_pipe)

    def stop(self) -> None:
        """End the process, and remove what it has not finished. What it has announced may be removed as well."""
        if self._pid:
            os.close(self._alive_pipe)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0
            for folder in self._folder.glob(f"{EARLY_FOLDER}-*"):
                shutil.rmtree(folder, ignore_errors=True)

    def _run(self, spec: str, sizes: list[int], send: Send, parent_alive: int) -> None:
        """Build the parts, in the process of its own. Whatever fails here, the app shows the whole trace later."""
        os.close(self._alive_pipe)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        threading.Thread(target=exit_with_parent, args=(parent_alive,), daemon=True).start()
        build_early_parts(spec, self._folder, send, sizes)


def choose_early_sizes(spec: str) -> list[int]:
    """Choose how many bytes of a file are shown early, one part after the other; none of a small or remote one."""
    try:
        status = os.stat(spec)
    except (OSError, ValueError):
        return []
    size = status.st_size
    if not stat.S_ISREG(status.st_mode) or size < max(MIN_BYTES, count_cores() * _BYTES_PER_CORE):
        return []
    sizes = [FIRST_BYTES]
    while sum(sizes) + sizes[-1] * GROWTH <= size * MAX_SHARE:
        sizes.append(sizes[-1] * GROWTH)
    return sizes


def build_early_parts(spec: str, folder: Path, send: Send, sizes: list[int]) -> None:
    """Build parts of about these sizes, each into a folder within `folder`, and announce each. Raises any error.

    A message has `early`, the name of the folder; `share`, the part of the file; `end`, ns of the trace.
    """
    with pause_garbage_collection():
        for number, size in enumerate(sizes):
            source = open_source(spec)
            with contextlib.closing(source):
                if source.plain_path is None or source.total is None:
                    return  # a compressed file cannot be read from the middle
                with source.plain_path.open("rb", buffering=0) as file:
                    part = find_early_ranges(file.fileno(), source.total, size)
                if part is None:
                    return
                early = folder / f"{EARLY_FOLDER}-{number}"
                early.mkdir(mode=0o700)
                decoded = decode_early_ranges(source, part, early)
            if decoded is None:
                return
            with TraceWriter(early) as writer:
                trace = add_row_index(build_trace(decoded, spec, writer.allocate), writer.allocate)
                del decoded  # frees its memory before the columns are written
                writer.finish(trace)
            send({"early": early.name, "share": part.share, "end": part.end - trace.origin})
