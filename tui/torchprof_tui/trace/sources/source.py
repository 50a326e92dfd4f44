"""Read a stream of bytes as decompressed blocks of text, with progress.

`open_source` opens files, stdin, ssh paths and URLs. Any stream with `read(n)` can be a `Source`; compression is
detected from the content, never from the name.
"""

from __future__ import annotations

import errno
import io
import os
import queue
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from torchprof_tui.trace.core.errors import ConnectionLostError, TraceError
from torchprof_tui.trace.core.problems import CUT_CONNECTION, CUT_SHORT, DAMAGED_COMPRESSION, Problem, ProblemTally
from torchprof_tui.trace.sources.decompress import (
    MAGIC_BYTES,
    DamagedStreamError,
    Decompressor,
    ReplayBuffer,
    detect_compression,
)
from torchprof_tui.trace.specs.address import TRACE_SUFFIXES, is_key_averages_file, is_url, parse_ssh_path

_MAX_PREFETCHED_BLOCKS = 4  # decompressed blocks queued for the decoder, at most: about 4 MB


class Prefetcher:
    """Iterates over blocks on a thread, a few blocks ahead of the consumer. `stop` unblocks a read in progress."""

    def __init__(self, blocks: Iterator[bytes], stop: Callable[[], None] | None = None) -> None:
        self._blocks = blocks
        self._stop = stop
        self._queue: queue.Queue[bytes | BaseException | None] = queue.Queue(_MAX_PREFETCHED_BLOCKS)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inflate", daemon=True)

    def __iter__(self) -> Iterator[bytes]:
        self._thread.start()
        try:
            while (item := self._queue.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self._stopped.set()
            if self._stop is not None:
                self._stop()
            self._thread.join()

    def _run(self) -> None:
        last: BaseException | None = None
        try:
            for block in self._blocks:
                if not self._put_block(block):
                    return
        except BaseException as error:
            last = error  # raised by the consumer's iterator
        self._put_block(last)

    def _put_block(self, item: bytes | BaseException | None) -> bool:
        """Queue an item; returns False if the consumer has stopped."""
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=0.05)
            except queue.Full:
                continue
            return True
        return False


_PLAIN_READ_BYTES = 1 << 20
"""Bytes per read of plain text: large enough for few reads, small enough for the processor's cache."""

_COMPRESSED_READ_BYTES = 1 << 18  # bytes per read of compressed data: about 3 MB of text

_MIN_PEEKED_BYTES = 256
_PEEK_BYTES = 1 << 18
"""Bytes of a local file that are read to tell its format: twice those of a zstd block, which is unpacked as a whole."""

_GZIP_SIZE_BYTES = 4

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))

MAX_RESUMES = 10
"""Connections after the first one that a file may take, each of which must bring more of it: a line that fails again
and again ends in a message, not in endless waiting."""

_BOMB_RATIO, _BOMB_BYTES = 200, 256 << 20
"""Text beyond both this ratio to its compressed size and this size in bytes is refused as a decompression bomb.

Traces compress to a tenth, the most repetitive ones to a fiftieth. deflate reaches a thousandth, so that a few MB could
fill any memory.
"""

UNPACK_ALL = "TORCHPROF_TUI_UNPACK_ALL"
"""Environment variable, set by `--unpack-all`: disables the limits on the decompressed size and on endless text."""

UNPACK_ALL_OPTION = "--unpack-all"


class Stream(Protocol):
    """Stream that a source reads. `read` returns at most n bytes, possibly fewer, and none only at the end.

    Raises ConnectionLostError or OSError.
    """

    def read(self, n: int, /) -> bytes | None: ...

    def close(self) -> None: ...


class PieceStream:
    """Stream of a text that is made piece by piece. `on_close` is called by `close`."""

    def __init__(self, pieces: Iterator[bytes], on_close: Callable[[], None] = lambda: None) -> None:
        self._pieces = pieces
        self._rest = b""
        self._on_close = on_close

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, none at the end."""
        parts, found = [self._rest], len(self._rest)
        while found < size and (piece := next(self._pieces, b"")):
            parts.append(piece)
            found += len(piece)
        text = b"".join(parts)
        self._rest = text[size:]
        return text[:size]

    def close(self) -> None:
        self._on_close()


def _prepend(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


class Source:
    """Named stream of bytes, read once with `blocks()`.

    `name`: as the user wrote it. `total`: bytes as stored, None if unknown. `consumed`: bytes read of them. `path`: of
    a regular file on this machine, which has an end; None for anything else.
    `compression`: "gzip", "xz", "zstd" or "". `plain_path`: path of a plain local file, whose text can be read again in
    place; None for anything else. `identity`: identifies the content of a remote file, None if unknown.

    `compressed_in_transit`: the file is stored as plain text and compressed only for the transfer; `consumed` counts
    text. `stop`: unblocks a read in progress on another thread. `unpack_all`: disables the size limits.
    `host`: where a remote file comes from. `resume`: lets `stream` go on at this byte of the file (of its text, where
    it is compressed in transit) over another connection; raises ConnectionLostError, also where the file has changed.
    `format`: of an extension that made this text of another format, "" for a trace as it was recorded.
    """

    format = ""

    def __init__(
        self,
        name: str,
        stream: Stream,
        total: int | None = None,
        path: Path | None = None,
        *,
        compressed_in_transit: bool = False,
        identity: str | None = None,
        stop: Callable[[], None] | None = None,
        host: str = "",
        resume: Callable[[int], None] | None = None,
    ) -> None:
        self.name = name
        self.total = total
        self.consumed = 0
        self.identity = identity
        self._stream = stream
        self.path = path
        self._compressed_in_transit = compressed_in_transit
        self._stop = stop
        self._is_stopped = False
        self._host = host
        self._resume = resume
        self._resumed_at: list[int] = []
        self._connection_error = ""
        self._peeked: tuple[bytes, Iterator[bytes]] | None = None  # the first block, and all others
        self.unpack_all = bool(os.environ.get(UNPACK_ALL))
        self._tally = ProblemTally()
        self._head = b""
        while len(self._head) < MAGIC_BYTES and (part := self._read(MAGIC_BYTES - len(self._head))):
            self._head += part
        if self._connection_error and not self._head:
            raise TraceError(f"{name}: {self._connection_error}, before anything arrived")
        self.compression = detect_compression(self._head)
        self.plain_path = None if self.compression else path
        self.path = path

    @property
    def problems(self) -> list[Problem]:
        """Problems of the stream; complete once `blocks()` is exhausted."""
        return self._tally.problems()

    def peek(self) -> bytes:
        """Read the beginning of the text, which `blocks` yields again; empty where there is none. Raises TraceError.

        Starts no thread for a local file, because its decoder may fork.
        """
        if self.path is not None and isinstance(self._stream, io.FileIO):
            stored = os.pread(self._stream.fileno(), _PEEK_BYTES, 0)
            if not self.compression:
                return stored
            try:
                texts = Decompressor(self.compression, ReplayBuffer(self.path, 0)).feed(stored)
                return next((text for text in texts if text), b"")
            except DamagedStreamError:
                return b""
        if self._peeked is None:
            blocks, first = self._open_blocks(), b""
            for block in blocks:  # the first one of a stream may be as short as a magic number
                first += block
                if len(first) >= _MIN_PEEKED_BYTES:
                    break
            self._peeked = first, blocks
        return self._peeked[0]

    def blocks(self) -> Iterator[bytes]:
        """Iterate over the decompressed text in blocks, none of them empty. Decompression runs ahead on a thread.

        A truncated or damaged stream ends early and adds a problem. Raises TraceError if reading fails.
        """
        if self._peeked is None:
            return self._open_blocks()
        first, rest = self._peeked
        self._peeked = None
        return _prepend(first, rest)

    def _open_blocks(self) -> Iterator[bytes]:
        if not self.compression:
            return self._stored_blocks(_PLAIN_READ_BYTES)
        return iter(Prefetcher(self._decompressed_blocks(), None if self._stop is None else self._stop_reading))

    def _stop_reading(self) -> None:
        self._is_stopped = True
        if self._stop is not None:
            self._stop()

    def blocks_in_this_thread(self) -> Iterator[bytes]:
        """Iterate over the decompressed text as `blocks` does, without a thread: for a process that forks."""
        return self._decompressed_blocks() if self.compression else self._stored_blocks(_PLAIN_READ_BYTES)

    @property
    def connection_lost(self) -> bool:
        """Whether the connection ended before all of the file was received."""
        return bool(self._connection_error)

    @property
    def local_gzip(self) -> tuple[Path, int] | None:
        """Path and file descriptor of an open local gzip file, None for everything else."""
        if self.compression != "gzip" or self.path is None or not isinstance(self._stream, io.FileIO):
            return None
        return self.path, self._stream.fileno()

    @property
    def text_size(self) -> int | None:
        """Approximate bytes of text; None if unknown or if the source cannot be reopened."""
        if self.path is None or self.total is None or self.compression not in ("", "gzip"):
            return None
        if not self.compression:
            return self.total
        with self.path.open("rb") as file:  # size of the last member modulo 4 GB
            file.seek(-min(_GZIP_SIZE_BYTES, self.total), os.SEEK_END)
            return int.from_bytes(file.read(), "little")

    def reopen(self, offset: int = 0) -> Source:
        """Open the same local file again; plain text from byte `offset`. Raises OSError, TraceError."""
        assert self.path is not None, "only a local file can be read twice"
        stream = self._open_again(self.path)
        source = Source(self.name, stream, self.total, self.path)
        if offset:
            source._head = b""
            stream.seek(offset)
        return source

    def reopen_in_place(self) -> None:
        """Go on reading through a file position of its own, in a process that shares it with its parent.

        `blocks_in_this_thread` has begun and its next block is not requested yet. Raises OSError, TraceError.
        """
        assert self.path is not None, "only a local file can be read twice"
        shared, stream = self._stream, self._open_again(self.path)
        stream.seek(self.consumed)
        self._stream = stream
        shared.close()

    def _open_again(self, path: Path) -> io.FileIO:
        stream = path.open("rb", buffering=0)
        if isinstance(self._stream, io.FileIO) and not os.path.sameopenfile(stream.fileno(), self._stream.fileno()):
            stream.close()
            raise TraceError(f"{self.name}: the file was replaced while it was read; open it again")
        return stream

    def close(self) -> None:
        self._stream.close()

    def _read(self, size: int) -> bytes:
        try:
            return self._stream.read(size) or b""
        except ConnectionLostError as error:
            self._connection_error = str(error)
            return b""
        except OSError as error:
            raise TraceError(f"{self.name}: cannot be read: {error.strerror or error}") from error

    def _stored_blocks(self, size: int) -> Iterator[bytes]:
        block, self._head = self._head or self._read(size), b""
        while block or self._go_on():
            if block and not self._compressed_in_transit:
                self.consumed += len(block)
            if block:
                yield block
            block = self._read(size)
        if self._connection_error:
            largest = max(self.consumed, self.total or 0)
            scale, unit = next(((scale, unit) for scale, unit in _UNITS if largest >= scale), _UNITS[-1])
            of_total = "" if self.total is None else f" of {self.total / scale:,.1f}"
            to_host = f" to {self._host}" if self._host else ""
            loss = f"connection{to_host} lost at {self.consumed / scale:,.1f}{of_total} {unit}"
            self._tally.add(CUT_CONNECTION, f"{loss}; {self._connection_error}")

    def _go_on(self) -> bool:
        """Go on over another connection where the last one ended too early; return whether there is one."""
        if self.consumed == self.total:
            self._connection_error = ""  # it was lost behind the last byte
        is_short = self.path is None and self.total is not None and self.consumed < self.total
        if self._is_stopped or not (self._connection_error or is_short):
            return False
        self._connection_error = self._connection_error or "the data ended before the file"
        brought_more = not self._resumed_at or self.consumed > self._resumed_at[-1]
        if self._resume is None or not brought_more or len(self._resumed_at) >= MAX_RESUMES:
            return False
        self._resumed_at.append(self.consumed)
        try:
            self._resume(self.consumed)
        except ConnectionLostError as error:
            self._connection_error = str(error)
            return False
        self._connection_error = ""
        return True

    def _decompressed_blocks(self) -> Iterator[bytes]:
        """Yield the text of all gzip members, xz streams or zstd frames in turn."""
        decompressor: Decompressor | None = None
        members = compressed_bytes = text_bytes = connections = 0
        member_is_empty = True  # no text of this member yet
        for data in self._stored_blocks(_COMPRESSED_READ_BYTES):
            compressed_bytes += len(data)
            if self._compressed_in_transit and len(self._resumed_at) > connections:
                decompressor, connections = None, len(self._resumed_at)  # the rest of the text is compressed anew
            while data:
                if decompressor is None:
                    data = data.lstrip(b"\0")  # some writers pad the end with zeros
                    if not data:
                        break
                    replay = ReplayBuffer(self.path, self.consumed - len(data))
                    decompressor, member_is_empty = Decompressor(self.compression, replay), True
                try:
                    for text in decompressor.feed(data):
                        if text:
                            member_is_empty = False
                            text_bytes += len(text)
                            self._refuse_bomb(compressed_bytes, text_bytes)
                            if self._compressed_in_transit:
                                self.consumed += len(text)
                            yield text
                except DamagedStreamError as error:
                    reason = "other data follows it" if members and member_is_empty else str(error)
                    example = f"the {self.compression} data is damaged near byte {self.consumed}: {reason}"
                    self._tally.add(DAMAGED_COMPRESSION, example)
                    return
                if not decompressor.eof:
                    break
                data, decompressor = decompressor.unused_data, None
                members += 1
        if decompressor is not None and not self._connection_error:
            example = f"the {self.compression} data stops at byte {self.consumed}, before its end mark"
            self._tally.add(CUT_SHORT, example)

    def _refuse_bomb(self, compressed_bytes: int, text_bytes: int) -> None:
        """Raise TraceError for a decompression bomb; see _BOMB_RATIO."""
        if text_bytes > _BOMB_BYTES and text_bytes > _BOMB_RATIO * compressed_bytes and not self.unpack_all:
            size = (
                f"more than {text_bytes // compressed_bytes:,} times its size "
                f"({text_bytes / 1e6:,.0f} MB from {compressed_bytes / 1e6:,.1f} MB so far)"
            )
            raise TraceError(f"{self.name}: unpacks to {size}; {UNPACK_ALL_OPTION} reads it anyway")


def open_source(spec: str) -> Source:
    """Open a local or remote file; stdin for `-`.

    Raises TraceError if it cannot be opened.
    """
    if spec == "-":
        if sys.stdin.isatty():
            raise TraceError("-: stdin is the terminal; pipe a trace into it")
        return Source("stdin", sys.stdin.buffer)
    ssh_path = parse_ssh_path(spec)
    if ssh_path is not None:
        from torchprof_tui.trace.sources.ssh_file import open_ssh_file  # deferred: only needed for ssh

        return open_ssh_file(ssh_path)
    if is_url(spec):
        from torchprof_tui.trace.sources.url import open_url  # deferred: only needed for URLs

        return open_url(spec)
    path = Path(os.path.expanduser(spec))  # unlike Path.expanduser, leaves an unknown home folder as it is
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise TraceError(_describe_folder(spec, path))
        stream = path.open("rb", buffering=0)
    except OSError as error:
        raise TraceError(f"{spec}: {_ERRNO_MESSAGES.get(error.errno or 0, error.strerror or str(error))}") from error
    except ValueError as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"{spec!r}: no such file") from error  # the name contains NUL
    regular = stat.S_ISREG(status.st_mode)
    if regular and status.st_size == 0:
        stream.close()
        raise TraceError(f"{spec}: the file is empty")
    return Source(spec, stream, status.st_size if regular else None, path.absolute() if regular else None)


_ERRNO_MESSAGES = {
    errno.ENOENT: "no such file",
    errno.ENOTDIR: "no such file",
    errno.ENAMETOOLONG: "no such file",
    errno.EACCES: "no permission to read it",
    errno.EPERM: "no permission to read it",
}


def _describe_folder(spec: str, path: Path) -> str:
    """Return a message for a folder, with the name of a trace in it as an example."""
    try:
        names = sorted(
            name for name in os.listdir(path) if name.endswith(TRACE_SUFFIXES) and not is_key_averages_file(name)
        )
    except OSError:
        names = []
    if not names:
        return f"{spec}: a folder, with no .json or .json.gz file in it; name a trace file"
    return f"{spec}: a folder; name a file in it, such as {os.path.join(spec, names[0])}"
