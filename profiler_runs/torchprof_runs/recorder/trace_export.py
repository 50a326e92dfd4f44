"""Write the trace, the profiler's table and its averages to files, each as far as the disk allows."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .atomic_files import explain_os_error, remove_on_exit, write_atomic
from .exit_handlers import SaveAbandoned
from .own_frames import remove_own_frames

if TYPE_CHECKING:
    from .schedule import Cycle  # needs torch

# Level 3 makes a trace 15 to 20 times smaller. Level 9 (gzip's own default) makes it another quarter smaller but takes
# five times as long, and the program is paused meanwhile.
COMPRESSION_LEVEL = 3
CHUNK_BYTES = 1 << 20
PROGRESS_INTERVAL = 0.2  # seconds between reports while a trace is compressed
# torch writes the JSON uncompressed, 15 to 20 times the size of the .gz. A JSON beyond this size is too large to open.
MIN_FREE_MEGABYTES = 2_000  # MB
MAX_TABLE_ROWS = 100
# For its table torch makes a Python object of about 3 KB from every event, Python calls included: measured 66 to
# 69 µs an event (torch 2.13, 36,000 and 144,000 events with stacks). 150,000 events are ten
# seconds, about as long as anyone waits for a file that the viewer can make from the trace.
TABLE_SECONDS_PER_EVENT = 68e-6
MAX_TABLE_EVENTS = 150_000
_EVENT_PATTERN = b'"ph": "X"'
_GPU_EVENT_PATTERNS = (b'"cat": "kernel"', b'"cat": "gpu_memcpy"', b'"cat": "gpu_memset"')
_LAUNCH_PATTERNS = (b'"name": "cudaLaunchKernel', b'"name": "cuLaunchKernel', b'"name": "hipLaunchKernel')


@dataclass
class TraceCounts:
    """Counts over the text of a trace."""

    events: int = 0
    gpu_events: int = 0
    launches: int = 0
    bytes: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether torch did nothing: its profiler writes one event about itself."""
        return self.events <= 1 and not self.gpu_events


@dataclass
class SavedTrace:
    """One trace that was written. `partial`: the cycle or the file is incomplete."""

    trace: str
    bytes: int
    counts: TraceCounts
    cycle: Cycle
    partial: bool
    table: str | None = None
    averages: str | None = None


class CyclePaths(Protocol):
    """Paths of the files of a cycle."""

    path: str

    def trace_path(self, cycle: int = 1) -> str: ...
    def table_path(self, cycle: int = 1) -> str: ...
    def averages_path(self, cycle: int = 1) -> str: ...


def count_events(chunks: Iterator[bytes], counts: TraceCounts) -> Iterator[bytes]:
    """Yield `chunks` unchanged and count events in them. A pattern that spans two chunks counts once."""
    patterns = (_EVENT_PATTERN, *_GPU_EVENT_PATTERNS, *_LAUNCH_PATTERNS)
    overlap = max(map(len, patterns)) - 1
    tail = b""
    for chunk in chunks:
        window = tail + chunk
        # A pattern counts in the window in which it ends: one that is completely in the tail was counted before.
        counts.events += window.count(_EVENT_PATTERN) - tail.count(_EVENT_PATTERN)
        counts.gpu_events += sum(window.count(pattern) - tail.count(pattern) for pattern in _GPU_EVENT_PATTERNS)
        counts.launches += sum(window.count(pattern) - tail.count(pattern) for pattern in _LAUNCH_PATTERNS)
        counts.bytes += len(chunk)
        tail = window[-overlap:]
        yield chunk


def compress_chunks(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Compress `chunks` into one gzip stream."""
    compressor = zlib.compressobj(COMPRESSION_LEVEL, wbits=31)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


def _read_chunks(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _export_json(profile: Any, path: str) -> None:
    """Let torch write its JSON to `path`, or as much of it as fits on the disk."""
    profile.export_chrome_trace(path)
    with contextlib.suppress(OSError):
        os.rename(f"{path}.tmp", path)  # since torch 2.13 an incomplete file keeps this name


def _is_complete(path: str) -> bool:
    """Tell whether the JSON at `path` ends as a trace does; torch reports no error when the disk is full."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - 64))
            return file.read().rstrip().endswith(b"}")
    except OSError:
        return False


class TraceExporter:
    """Write cycles to `paths`. `log` gets one line for each failure, which says what to do.

    `table`: torch's table is written (True), not written (False), or only up to MAX_TABLE_EVENTS (None). In a block of
    `allow_skip` a ctrl+c raises SaveAbandoned.
    """

    def __init__(
        self,
        paths: CyclePaths,
        table: bool | None,
        log: Callable[[str], None],
        report_phase: Callable[..., None],
        allow_skip: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._paths, self._table, self._log, self._report_phase = paths, table, log, report_phase
        self._allow_skip = allow_skip
        self._progress_fields: dict[str, Any] = {}

    def save_cycle(self, profile: Any, cycle: Cycle, expected_bytes: int | None = None) -> SavedTrace | None:
        """Write the files of `cycle`, whose JSON is expected to have `expected_bytes`.

        Returns None if not even its trace could be written. Raises no OSError.
        """
        trace = self._paths.trace_path(cycle.number)
        self._progress_fields = {"file": trace, "cycle": cycle.number}
        saved = self._save_trace(profile, cycle, trace, expected_bytes)
        if saved is not None and self._table is not False:
            self._save_table(profile, saved)
        return saved

    def measure_trace(self, profile: Any) -> TraceCounts | None:
        """Write the trace of `profile`, count its events and bytes, and remove it. None if it cannot be written."""
        counts = TraceCounts()
        raw = os.path.join(self._paths.path, f".preflight.{os.getpid()}.json")
        with remove_on_exit(raw):
            try:
                _export_json(profile, raw)
                if _is_complete(raw):
                    for _ in count_events(_read_chunks(raw), counts):
                        pass
                    return counts
                reason = explain_os_error(_find_write_error(raw))
            except OSError as error:
                reason = explain_os_error(error)
        self._log(f"not even the trace of one step can be written: {reason}")
        return None

    def _save_trace(self, profile: Any, cycle: Cycle, trace: str, expected_bytes: int | None) -> SavedTrace | None:
        incomplete_raw, write_error = None, OSError(errno.ENOSPC, "")
        with contextlib.ExitStack() as raw_files:
            for folder in self._list_scratch_folders():
                raw = os.path.join(folder, f".{os.path.basename(trace)}.{os.getpid()}.json")
                raw_files.enter_context(remove_on_exit(raw))
                # torch does not report how far it is; the app can see how large this file is.
                self._report_phase("exporting", **self._progress_fields, raw=raw, expected=expected_bytes)
                try:
                    _export_json(profile, raw)
                    if _is_complete(raw):
                        return self._compress_trace(raw, cycle, trace)
                except OSError as error:
                    self._log(f"cannot write {raw}: {explain_os_error(error)}")
                    continue
                except RuntimeError as error:
                    if incomplete_raw is None:
                        self._log(f"torch could not write the trace: {error}")
                    break  # since torch 2.13 a trace can be exported only once
                incomplete_raw = raw if os.path.exists(raw) else incomplete_raw
                write_error = _find_write_error(raw)
                if write_error.errno == errno.EFBIG:
                    break  # the limit is the same on every disk
                self._log(f"{folder} has no room for the trace ({_free_megabytes(folder)} MB free)")
            if incomplete_raw is not None:
                try:
                    saved = self._salvage_trace(incomplete_raw, cycle, trace)
                    self._log(f"the trace is cut short: {explain_os_error(write_error)}")
                    return saved
                except OSError as error:
                    self._log(f"cannot write {trace}: {explain_os_error(error)}")
        return None

    def _list_scratch_folders(self) -> list[str]:
        """List the folders for the uncompressed JSON, in the order to try them.

        The run's own folder comes first, unless its disk is nearly full and that of the temporary folder is not:
        torch may write a trace only once.
        """
        run, temporary = self._paths.path, tempfile.gettempdir()
        if _free_megabytes(run) < min(MIN_FREE_MEGABYTES, _free_megabytes(temporary)):
            return [temporary, run]
        return [run, temporary]

    def _compress_trace(self, raw: str, cycle: Cycle, trace: str) -> SavedTrace:
        """Save the complete trace in file `raw`, compressed if there is space for that."""
        counts = TraceCounts()
        try:
            chunks = self._report_progress(_read_chunks(raw), os.path.getsize(raw))
            size = write_atomic(trace, compress_chunks(count_events(remove_own_frames(chunks), counts)))
        except OSError as error:
            trace = os.path.join(self._make_output_folder(os.path.dirname(raw)), os.path.basename(trace)[: -len(".gz")])
            self._log(f"kept the trace uncompressed, {trace}: {explain_os_error(error)}")
            os.replace(raw, trace)
            size = os.path.getsize(trace)
        return SavedTrace(trace, size, counts, cycle, partial=not cycle.is_complete)

    def _report_progress(self, chunks: Iterator[bytes], total: int) -> Iterator[bytes]:
        """Yield `chunks` and report how many of their `total` bytes have been compressed."""
        done, reported_at = 0, 0.0
        for chunk in chunks:
            if (now := time.monotonic()) - reported_at > PROGRESS_INTERVAL:
                self._report_phase("exporting", **self._progress_fields, compressed=done, total=total)
                reported_at = now
            yield chunk
            done += len(chunk)

    def _make_output_folder(self, folder: str) -> str:
        """Return `folder` if it is the run's, otherwise a new folder in it: files of other runs are not overwritten."""
        run = self._paths.path
        return run if folder == run else tempfile.mkdtemp(prefix=f"{os.path.basename(run)}-", dir=folder)

    def _salvage_trace(self, raw: str, cycle: Cycle, trace: str) -> SavedTrace:
        """Save the incomplete trace in `raw`. Compressed it fits on the disk that was full."""
        counts = TraceCounts()
        compressed = list(compress_chunks(count_events(remove_own_frames(_read_chunks(raw)), counts)))
        os.remove(raw)
        size = write_atomic(trace, compressed)
        return SavedTrace(trace, size, counts, cycle, partial=True)

    def _save_table(self, profile: Any, saved: SavedTrace) -> None:
        """Write torch's table beside the trace, which is complete by now: nothing here may lose it."""
        events = saved.counts.events
        if self._table is None and events > MAX_TABLE_EVENTS:
            self._log(
                f"no table.txt: torch would need about {events * TABLE_SECONDS_PER_EVENT:,.0f} s for {events:,} events"
                "; torchprof-tui table makes it from the trace (--table: torch's as well)"
            )
            return
        self._report_phase("tabulating", events=events)
        try:
            with self._allow_skip():
                self._write_table(profile.key_averages(), saved)
        except SaveAbandoned:
            self._log("skipped torch's table; the trace is kept, and torchprof-tui table makes it from the trace")
        except Exception as error:  # raised in torch's own code; the trace is saved already
            self._log(f"no table: torch could not make it ({type(error).__name__}: {error})")

    def _write_table(self, averages: Any, saved: SavedTrace) -> None:
        table, rows = format_averages_table(averages), build_averages_rows(averages)
        number = saved.cycle.number
        paths = self._paths.table_path(number), self._paths.averages_path(number)
        try:
            for path, text in zip(paths, (table, json.dumps(rows)), strict=True):
                write_atomic(path, [text.encode("utf-8", "backslashreplace")])
        except OSError as error:
            self._log(f"cannot write {path}: {explain_os_error(error)}")
            return
        saved.table, saved.averages = paths


def _find_write_error(path: str) -> OSError:
    """Return the error that cut off the file at `path`, which torch does not report.

    EFBIG if the file has reached the process's limit on file sizes, otherwise ENOSPC.
    """
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    with contextlib.suppress(OSError):
        if limit != resource.RLIM_INFINITY and os.path.getsize(path) >= limit:
            return OSError(errno.EFBIG, "")
    return OSError(errno.ENOSPC, "")


def _free_megabytes(folder: str) -> int:
    try:
        return shutil.disk_usage(folder).free // 1_000_000
    except OSError:
        return 0


def format_averages_table(averages: Any) -> str:
    """Format torch's own table, sorted by device time if there is any, otherwise by CPU time."""
    for column in ("self_device_time_total", "self_cuda_time_total"):
        # Older versions of torch have only the second name, and raise for a column that they do not know.
        with contextlib.suppress(AttributeError, KeyError, ValueError):
            if any(getattr(row, column) for row in averages):
                return str(averages.table(sort_by=column, row_limit=MAX_TABLE_ROWS))
    return str(averages.table(sort_by="self_cpu_time_total", row_limit=MAX_TABLE_ROWS))


def build_averages_rows(averages: Any) -> list[dict[str, Any]]:
    """Build one dict for each row of key_averages(), times in µs."""

    def device_time(row: Any, prefix: str) -> Any:
        return getattr(row, f"{prefix}device_time_total", None) or getattr(row, f"{prefix}cuda_time_total", 0)

    return [
        {
            "key": row.key,
            "count": row.count,
            "self_cpu_us": row.self_cpu_time_total,
            "cpu_us": row.cpu_time_total,
            "self_device_us": device_time(row, "self_"),
            "device_us": device_time(row, ""),
            "device": str(row.device_type),
            **({"flops": row.flops} if getattr(row, "flops", 0) else {}),
        }
        for row in averages
    ]
