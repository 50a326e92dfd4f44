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

from .atomic_files import explain, removed, write_whole
from .profiler_cycles import Cycle

# Level 3 makes a trace 15 to 20 times smaller, level 9 (gzip's own default) a quarter smaller still in five times the
# time, all of which the program waits.
COMPRESSION = 3
CHUNK = 1 << 20
# torch writes the JSON uncompressed, 15 to 20 times what is kept. One beyond this is too large to open anyway.
ROOM = 2_000  # MB
TABLE_ROWS = 100
# torch makes a Python object of about 3 KB of every event for its table, in some 60 µs each: two million take two
# minutes and 6 GB. The viewer makes the same table from the trace.
TABLE_EVENTS = 2_000_000
_EVENT = b'"ph": "X"'
_GPU_EVENTS = (b'"cat": "kernel"', b'"cat": "gpu_memcpy"', b'"cat": "gpu_memset"')
_LAUNCHES = (b'"name": "cudaLaunchKernel', b'"name": "cuLaunchKernel', b'"name": "hipLaunchKernel')


@dataclass
class Counts:
    """What a trace holds, counted in its text."""

    events: int = 0
    gpu_events: int = 0
    launches: int = 0
    bytes: int = 0


@dataclass
class Kept:
    """One trace that was written. `partial` where the recording or the file is not all that was planned."""

    trace: str
    bytes: int
    counts: Counts
    cycle: Cycle
    partial: bool
    table: str | None = None
    averages: str | None = None


class Paths(Protocol):
    """Where the files of a cycle go."""

    path: str

    def trace(self, cycle: int = 1) -> str: ...
    def table(self, cycle: int = 1) -> str: ...
    def averages(self, cycle: int = 1) -> str: ...


def count_chunks(chunks: Iterator[bytes], counts: Counts) -> Iterator[bytes]:
    """`chunks` again, counted on the way; what lies across two chunks counts once."""
    patterns = (_EVENT, *_GPU_EVENTS, *_LAUNCHES)
    overlap = max(map(len, patterns)) - 1
    tail = b""
    for chunk in chunks:
        window = tail + chunk
        # A pattern counts with the window in which it ends: those that lie whole in the tail were counted before.
        counts.events += window.count(_EVENT) - tail.count(_EVENT)
        counts.gpu_events += sum(window.count(pattern) - tail.count(pattern) for pattern in _GPU_EVENTS)
        counts.launches += sum(window.count(pattern) - tail.count(pattern) for pattern in _LAUNCHES)
        counts.bytes += len(chunk)
        tail = window[-overlap:]
        yield chunk


def compressed(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """`chunks` as one gzip stream."""
    compressor = zlib.compressobj(COMPRESSION, wbits=31)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


def _chunks(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _export(profile: Any, path: str) -> None:
    """Let torch write its JSON to `path`, or as much of it as the disk takes."""
    profile.export_chrome_trace(path)
    with contextlib.suppress(OSError):
        os.rename(f"{path}.tmp", path)  # where torch leaves, since 2.13, what it could not complete


def _complete(path: str) -> bool:
    """Whether the JSON at `path` ends as a trace does: torch reports no error where the disk was full."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - 64))
            return file.read().rstrip().endswith(b"}")
    except OSError:
        return False


class Exporter:
    """Writes cycles into `paths`; `log` hears each thing that went wrong, in one line that says what to do."""

    def __init__(self, paths: Paths, tables: bool, log: Callable[[str], None], phase: Callable[..., None]) -> None:
        self._paths, self._tables, self._log, self._phase = paths, tables, log, phase

    def save(self, profile: Any, cycle: Cycle) -> Kept | None:
        """Write all there is of `cycle`. None where not even its trace could be written. Raises no OSError."""
        trace = self._paths.trace(cycle.number)
        self._phase("exporting", file=trace, cycle=cycle.number)
        kept = self._save_trace(profile, cycle, trace)
        if kept is not None and self._tables:
            self._save_table(profile, kept)
        return kept

    def measure(self, profile: Any) -> Counts | None:
        """How big the trace of `profile` is; it is written, counted and removed. None where it cannot be written."""
        counts = Counts()
        raw = os.path.join(self._paths.path, f".preflight.{os.getpid()}.json")
        with removed(raw):
            try:
                _export(profile, raw)
                if _complete(raw):
                    for _ in count_chunks(_chunks(raw), counts):
                        pass
                    return counts
                why = explain(_refusal(raw))
            except OSError as error:
                why = explain(error)
        self._log(f"not even one step's trace can be written here: {why}")
        return None

    def _save_trace(self, profile: Any, cycle: Cycle, trace: str) -> Kept | None:
        cut, why = None, OSError(errno.ENOSPC, "")
        with contextlib.ExitStack() as raws:
            for folder in self._by_room():
                raw = os.path.join(folder, f".{os.path.basename(trace)}.{os.getpid()}.json")
                raws.enter_context(removed(raw))
                try:
                    _export(profile, raw)
                    if _complete(raw):
                        return self._compress(raw, cycle, trace)
                except OSError as error:
                    self._log(f"cannot write {raw}: {explain(error)}")
                    continue
                except RuntimeError as error:
                    if cut is None:
                        self._log(f"torch could not write the trace: {error}")
                    break  # since torch 2.13 there is no second try
                cut = raw if os.path.exists(raw) else cut
                why = _refusal(raw)
                if why.errno == errno.EFBIG:
                    break  # it is no other on another disk
                self._log(f"{folder} has no room for the trace ({_free(folder)} MB free)")
            if cut is not None:
                try:
                    kept = self._salvage(cut, cycle, trace)
                    self._log(f"the trace is cut short: {explain(why)}")
                    return kept
                except OSError as error:
                    self._log(f"cannot write {trace}: {explain(error)}")
        return None

    def _by_room(self) -> list[str]:
        """Where the JSON may lie until it is compressed: the run's own folder, but last where its disk is nearly full
        and another one is not, because there is no second try.
        """
        own, other = self._paths.path, tempfile.gettempdir()
        return [other, own] if _free(own) < min(ROOM, _free(other)) else [own, other]

    def _compress(self, raw: str, cycle: Cycle, trace: str) -> Kept:
        """Keep the whole trace that lies in `raw`, compressed if there is room for that too."""
        counts = Counts()
        try:
            size = write_whole(trace, compressed(count_chunks(_chunks(raw), counts)))
        except OSError as error:
            trace = os.path.join(self._own_folder_in(os.path.dirname(raw)), os.path.basename(trace)[: -len(".gz")])
            self._log(f"kept the trace uncompressed, {trace}: {explain(error)}")
            os.replace(raw, trace)
            size = os.path.getsize(trace)
        return Kept(trace, size, counts, cycle, partial=not cycle.whole)

    def _own_folder_in(self, folder: str) -> str:
        """`folder` if it is the run's; else a new one in it, since what another run left there is not overwritten."""
        own = self._paths.path
        return own if folder == own else tempfile.mkdtemp(prefix=f"{os.path.basename(own)}-", dir=folder)

    def _salvage(self, raw: str, cycle: Cycle, trace: str) -> Kept:
        """Keep the part of a trace that `raw` had room for: compressed it fits where the whole did not."""
        counts = Counts()
        part = list(compressed(count_chunks(_chunks(raw), counts)))
        os.remove(raw)
        size = write_whole(trace, part)
        return Kept(trace, size, counts, cycle, partial=True)

    def _save_table(self, profile: Any, kept: Kept) -> None:
        if kept.counts.events > TABLE_EVENTS:
            self._log(f"no table: {kept.counts.events:,} events are too many for torch's; the trace has them all")
            return
        self._phase("tabulating", events=kept.counts.events)
        try:
            averages = profile.key_averages()
            table, rows = averages_table(averages), averages_rows(averages)
        except Exception as error:  # torch's own code over whatever was recorded; the trace is safe already
            self._log(f"no table: torch could not make it ({type(error).__name__}: {error})")
            return
        number = kept.cycle.number
        written = self._paths.table(number), self._paths.averages(number)
        try:
            for path, text in zip(written, (table, json.dumps(rows)), strict=True):
                write_whole(path, [text.encode("utf-8", "backslashreplace")])
        except OSError as error:
            self._log(f"cannot write {path}: {explain(error)}")
            return
        kept.table, kept.averages = written


def _refusal(path: str) -> OSError:
    """Why the file at `path` is cut short, which torch does not say: it is as large as a process may make one here, or
    its disk is full.
    """
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    with contextlib.suppress(OSError):
        if limit != resource.RLIM_INFINITY and os.path.getsize(path) >= limit:
            return OSError(errno.EFBIG, "")
    return OSError(errno.ENOSPC, "")


def _free(folder: str) -> int:
    try:
        return shutil.disk_usage(folder).free // 1_000_000
    except OSError:
        return 0


def averages_table(averages: Any) -> str:
    """torch's own table, by device time where there is any."""
    for column in ("self_device_time_total", "self_cuda_time_total"):
        # Older torch has the second name alone; a column that it does not know raises.
        with contextlib.suppress(AttributeError, KeyError, ValueError):
            if any(getattr(row, column) for row in averages):
                return str(averages.table(sort_by=column, row_limit=TABLE_ROWS))
    return str(averages.table(sort_by="self_cpu_time_total", row_limit=TABLE_ROWS))


def averages_rows(averages: Any) -> list[dict[str, Any]]:
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
