"""What was recorded → files: the trace, the profiler's table, its aggregates. Each as far as the disk allows."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from .atomic_files import explain_os_error, remove_on_exit, write_atomic
from .profiler_cycles import Cycle

# Level 3 makes a trace 15 to 20 times smaller, level 9 (gzip's own default) a quarter smaller still in five times the
# time, all of which the program waits.
COMPRESSION_LEVEL = 3
CHUNK_BYTES = 1 << 20
# torch writes the JSON uncompressed, 15 to 20 times what is kept. One beyond this is too large to open anyway.
MIN_FREE_MEGABYTES = 2_000  # MB
MAX_TABLE_ROWS = 100
# torch makes a Python object of about 3 KB of every event for its table, in some 60 µs each: two million take two
# minutes and 6 GB. The viewer makes the same table from the trace.
MAX_TABLE_EVENTS = 2_000_000
_EVENT_PATTERN = b'"ph": "X"'
_GPU_EVENT_PATTERNS = (b'"cat": "kernel"', b'"cat": "gpu_memcpy"', b'"cat": "gpu_memset"')
_LAUNCH_PATTERNS = (b'"name": "cudaLaunchKernel', b'"name": "cuLaunchKernel', b'"name": "hipLaunchKernel')


@dataclass
class TraceCounts:
    """What a trace holds, counted in its text."""

    events: int = 0
    gpu_events: int = 0
    launches: int = 0
    bytes: int = 0


@dataclass
class SavedTrace:
    """One trace that was written. `partial` where the recording or the file is not all that was planned."""

    trace: str
    bytes: int
    counts: TraceCounts
    cycle: Cycle
    partial: bool
    table: str | None = None
    averages: str | None = None


class CyclePaths(Protocol):
    """Where the files of a cycle go."""

    path: str

    def trace_path(self, cycle: int = 1) -> str: ...
    def table_path(self, cycle: int = 1) -> str: ...
    def averages_path(self, cycle: int = 1) -> str: ...


def count_events(chunks: Iterator[bytes], counts: TraceCounts) -> Iterator[bytes]:
    """`chunks` again, counted on the way; what lies across two chunks counts once."""
    patterns = (_EVENT_PATTERN, *_GPU_EVENT_PATTERNS, *_LAUNCH_PATTERNS)
    overlap = max(map(len, patterns)) - 1
    tail = b""
    for chunk in chunks:
        window = tail + chunk
        # A pattern counts with the window in which it ends: those that lie whole in the tail were counted before.
        counts.events += window.count(_EVENT_PATTERN) - tail.count(_EVENT_PATTERN)
        counts.gpu_events += sum(window.count(pattern) - tail.count(pattern) for pattern in _GPU_EVENT_PATTERNS)
        counts.launches += sum(window.count(pattern) - tail.count(pattern) for pattern in _LAUNCH_PATTERNS)
        counts.bytes += len(chunk)
        tail = window[-overlap:]
        yield chunk


def compress_chunks(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """`chunks` as one gzip stream."""
    compressor = zlib.compressobj(COMPRESSION_LEVEL, wbits=31)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


def _read_chunks(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _export_json(profile: Any, path: str) -> None:
    """Let torch write its JSON to `path`, or as much of it as the disk takes."""
    profile.export_chrome_trace(path)
    with contextlib.suppress(OSError):
        os.rename(f"{path}.tmp", path)  # where torch leaves, since 2.13, what it could not complete


def _is_complete(path: str) -> bool:
    """Whether the JSON at `path` ends as a trace does: torch reports no error where the disk was full."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - 64))
            return file.read().rstrip().endswith(b"}")
    except OSError:
        return False


class TraceExporter:
    """Writes cycles into `paths`; `log` hears each thing that went wrong, in one line that says what to do."""

    def __init__(
        self, paths: CyclePaths, tables: bool, log: Callable[[str], None], report_phase: Callable[..., None]
    ) -> None:
        self._paths, self._tables, self._log, self._report_phase = paths, tables, log, report_phase

    def save_cycle(self, profile: Any, cycle: Cycle) -> SavedTrace | None:
        """Write all there is of `cycle`. None where not even its trace could be written. Raises no OSError."""
        trace = self._paths.trace_path(cycle.number)
        self._report_phase("exporting", file=trace, cycle=cycle.number)
        kept = self._save_trace(profile, cycle, trace)
        if kept is not None and self._tables:
            self._save_table(profile, kept)
        return kept

    def measure_trace(self, profile: Any) -> TraceCounts | None:
        """How big the trace of `profile` is; it is written, counted and removed. None where it cannot be written."""
        counts = TraceCounts()
        raw = os.path.join(self._paths.path, f".preflight.{os.getpid()}.json")
        with remove_on_exit(raw):
            try:
                _export_json(profile, raw)
                if _is_complete(raw):
                    for _ in count_events(_read_chunks(raw), counts):
                        pass
                    return counts
                why = explain_os_error(_find_write_error(raw))
            except OSError as error:
                why = explain_os_error(error)
        self._log(f"not even one step's trace can be written here: {why}")
        return None

    def _save_trace(self, profile: Any, cycle: Cycle, trace: str) -> SavedTrace | None:
        cut, why = None, OSError(errno.ENOSPC, "")
        with contextlib.ExitStack() as raws:
            for folder in self._list_scratch_folders():
                raw = os.path.join(folder, f".{os.path.basename(trace)}.{os.getpid()}.json")
                raws.enter_context(remove_on_exit(raw))
                try:
                    _export_json(profile, raw)
                    if _is_complete(raw):
                        return self._compress_trace(raw, cycle, trace)
                except OSError as error:
                    self._log(f"cannot write {raw}: {explain_os_error(error)}")
                    continue
                except RuntimeError as error:
                    if cut is None:
                        self._log(f"torch could not write the trace: {error}")
                    break  # since torch 2.13 there is no second try
                cut = raw if os.path.exists(raw) else cut
                why = _find_write_error(raw)
                if why.errno == errno.EFBIG:
                    break  # it is no other on another disk
                self._log(f"{folder} has no room for the trace ({_free_megabytes(folder)} MB free)")
            if cut is not None:
                try:
                    kept = self._salvage_trace(cut, cycle, trace)
                    self._log(f"the trace is cut short: {explain_os_error(why)}")
                    return kept
                except OSError as error:
                    self._log(f"cannot write {trace}: {explain_os_error(error)}")
        return None

    def _list_scratch_folders(self) -> list[str]:
        """Where the JSON may lie until it is compressed: the run's own folder, but last where its disk is nearly full
        and another one is not, because there is no second try.
        """
        own, other = self._paths.path, tempfile.gettempdir()
        return [other, own] if _free_megabytes(own) < min(MIN_FREE_MEGABYTES, _free_megabytes(other)) else [own, other]

    def _compress_trace(self, raw: str, cycle: Cycle, trace: str) -> SavedTrace:
        """Keep the whole trace that lies in `raw`, compressed if there is room for that too."""
        counts = TraceCounts()
        try:
            size = write_atomic(trace, compress_chunks(count_events(_read_chunks(raw), counts)))
        except OSError as error:
            trace = os.path.join(self._make_output_folder(os.path.dirname(raw)), os.path.basename(trace)[: -len(".gz")])
            self._log(f"kept the trace uncompressed, {trace}: {explain_os_error(error)}")
            os.replace(raw, trace)
            size = os.path.getsize(trace)
        return SavedTrace(trace, size, counts, cycle, partial=not cycle.is_complete)

    def _make_output_folder(self, folder: str) -> str:
        """`folder` if it is the run's; else a new one in it, since what another run left there is not overwritten."""
        own = self._paths.path
        return own if folder == own else tempfile.mkdtemp(prefix=f"{os.path.basename(own)}-", dir=folder)

    def _salvage_trace(self, raw: str, cycle: Cycle, trace: str) -> SavedTrace:
        """Keep the part of a trace that `raw` had room for: compressed it fits where the whole did not."""
        counts = TraceCounts()
        part = list(compress_chunks(count_events(_read_chunks(raw), counts)))
        os.remove(raw)
        size = write_atomic(trace, part)
        return SavedTrace(trace, size, counts, cycle, partial=True)

    def _save_table(self, profile: Any, kept: SavedTrace) -> None:
        if kept.counts.events > MAX_TABLE_EVENTS:
            self._log(f"no table: {kept.counts.events:,} events are too many for torch's; the trace has them all")
            return
        self._report_phase("tabulating", events=kept.counts.events)
        try:
            averages = profile.key_averages()
            table, rows = format_averages_table(averages), build_averages_rows(averages)
        except Exception as error:  # torch's own code over whatever was recorded; the trace is safe already
            self._log(f"no table: torch could not make it ({type(error).__name__}: {error})")
            return
        number = kept.cycle.number
        written = self._paths.table_path(number), self._paths.averages_path(number)
        try:
            for path, text in zip(written, (table, json.dumps(rows)), strict=True):
                write_atomic(path, [text.encode("utf-8", "backslashreplace")])
        except OSError as error:
            self._log(f"cannot write {path}: {explain_os_error(error)}")
            return
        kept.table, kept.averages = written


def _find_write_error(path: str) -> OSError:
    """Why the file at `path` is cut short, which torch does not say: it is as large as a process may make one here, or
    its disk is full.
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
    """torch's own table, by device time where there is any."""
    for column in ("self_device_time_total", "self_cuda_time_total"):
        # Older torch has the second name alone; a column that it does not know raises.
        with contextlib.suppress(AttributeError, KeyError, ValueError):
            if any(getattr(row, column) for row in averages):
                return str(averages.table(sort_by=column, row_limit=MAX_TABLE_ROWS))
    return str(averages.table(sort_by="self_cpu_time_total", row_limit=MAX_TABLE_ROWS))


def build_averages_rows(averages: Any) -> list[dict[str, Any]]:
    """Every row of key_averages(), times in µs, memory in bytes."""

    def device(row: Any, name: str) -> Any:
        return getattr(row, f"{name}device_time_total", None) or getattr(row, f"{name}cuda_time_total", 0)

    return [
        {
            "key": row.key,
            "count": row.count,
            "self_cpu_us": row.self_cpu_time_total,
            "cpu_us": row.cpu_time_total,
            "self_device_us": device(row, "self_"),
            "device_us": device(row, ""),
            "device": str(row.device_type),
            **({"flops": row.flops} if getattr(row, "flops", 0) else {}),
        }
        for row in averages
    ]
