"""What the user named, as a stream of decompressed blocks that says how far it is.

`open_source` knows files, stdin, other hosts (`ssh.py`) and URLs (`urls.py`). Whatever yields bytes becomes a `Source`
by handing it a stream with `read(n)`: compression is told by content, never by name.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from torchprof_tui.trace.core.errors import ConnectionLostError, TraceError
from torchprof_tui.trace.core.problems import CUT_CONNECTION, CUT_SHORT, DAMAGED_COMPRESSION, Problem, ProblemTally
from torchprof_tui.trace.sources.decompress import (
    DECOMPRESSORS,
    MAGIC_BYTES,
    DamagedStreamError,
    Decompressor,
    detect_compression,
)
from torchprof_tui.trace.sources.prefetch import _Prefetcher
from torchprof_tui.trace.sources.replay import ReplayBuffer

_PLAIN_READ_BYTES = 1 << 20
"""Bytes a read of plain text: large enough that reads are few, small enough to stay in the processor's cache."""

_COMPRESSED_READ_BYTES = 1 << 18
"""Compressed bytes a read; about 3 MB of trace."""


_GZIP_SIZE_BYTES = 4


_BOMB_RATIO, _BOMB_BYTES = 200, 256 << 20
"""Text of more than so many bytes, and so many times as long as what it was packed in, is no trace: those pack to a
tenth, the most repetitive ones to a fiftieth. deflate reaches a thousandth, and a few MB of it fill any memory."""

UNPACK_ALL = "TORCHPROF_TUI_UNPACK_ALL"
"""Set in the environment (`--unpack-all` does it): unpack whatever comes."""


class Stream(Protocol):
    """What a source reads from: `read` gives at most n bytes, perhaps fewer, and none only at the end.

    Raises CutError, or OSError.
    """

    def read(self, n: int, /) -> bytes | None: ...

    def close(self) -> None: ...


class Source:
    """A named stream of bytes and what is known about it. Read once, with `blocks()`.

    `name`: what the user called it. `total`: bytes as stored, None where nobody knows. `consumed`: how many of
    them have been read. `compression`: "gzip", "xz", "zstd" or "". `plain_path`: where the text can be read again
    in place, None for everything but a plain local file. `identity`: what tells this content from any other, where
    that is known of something that is no local file.

    `packed_on_the_way`: it is stored as plain text, and only its way here is compressed; `consumed` counts the text.
    `stop`: makes a read that another thread waits in come back. `unpack_all`: however long the text becomes.
    """

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
    ) -> None:
        self.name = name
        self.total = total
        self.consumed = 0
        self.identity = identity
        self._stream = stream
        self._path = path
        self._compressed_in_transit = compressed_in_transit
        self._stop = stop
        self._connection_error = ""
        self.unpack_all = bool(os.environ.get(UNPACK_ALL))
        self._tally = ProblemTally()
        self._head = self._read_head()
        if self._connection_error and not self._head:
            raise TraceError(f"{name}: {self._connection_error}, before anything arrived")
        self.compression = detect_compression(self._head)
        self.plain_path = None if self.compression else path
        self._path = path

    @property
    def problems(self) -> list[Problem]:
        """What was wrong with the stream; complete when `blocks()` has ended."""
        return self._tally.problems()

    def blocks(self) -> Iterator[bytes]:
        """The text, decompressed, in blocks that are never empty; compressed streams inflate in a thread ahead.

        What is cut short or damaged ends early, with a problem. Raises TraceError where reading itself fails.
        """
        return (
            iter(_Prefetcher(self._decompressed_blocks(), self._stop))
            if self.compression
            else self._stored_blocks(_PLAIN_READ_BYTES)
        )

    @property
    def connection_lost(self) -> bool:
        """Whether the other end went away, so that what came is not what lies there."""
        return bool(self._connection_error)

    @property
    def local_gzip(self) -> tuple[Path, int] | None:
        """Path and file descriptor of an open local gzip file, None for everything else."""
        if self.compression != "gzip" or self._path is None or not isinstance(self._stream, io.FileIO):
            return None
        return self._path, self._stream.fileno()

    @property
    def text_size(self) -> int | None:
        """How long the text is, about; None where that is not known, or where it cannot be read `again`."""
        if self._path is None or self.total is None or self.compression not in ("", "gzip"):
            return None
        if not self.compression:
            return self.total
        with self._path.open("rb") as file:  # a member ends with its size: wrong from 4 GB on, or of several members
            file.seek(-min(_GZIP_SIZE_BYTES, self.total), os.SEEK_END)
            return int.from_bytes(file.read(), "little")

    def reopen(self, offset: int = 0) -> Source:
        """The same local file, not yet read; plain text from byte `begin` on. Raises OSError, TraceError."""
        assert self._path is not None, "only a local file can be read twice"
        stream = self._path.open("rb", buffering=0)
        if isinstance(self._stream, io.FileIO) and not os.path.sameopenfile(stream.fileno(), self._stream.fileno()):
            stream.close()
            raise TraceError(f"{self.name}: was replaced while it was read")
        source = Source(self.name, stream, self.total, self._path)
        if offset:
            source._head = b""
            stream.seek(offset)
        return source

    def close(self) -> None:
        self._stream.close()

    def _read_head(self) -> bytes:
        head = b""
        while len(head) < MAGIC_BYTES:
            part = self._read(MAGIC_BYTES - len(head))
            if not part:
                break
            head += part
        return head

    def _read(self, size: int) -> bytes:
        try:
            return self._stream.read(size) or b""
        except ConnectionLostError as error:
            self._connection_error = str(error)
            return b""
        except OSError as error:
            raise TraceError(f"{self.name}: cannot be read: {error.strerror or error}") from error

    def _stored_blocks(self, size: int) -> Iterator[bytes]:
        """The bytes as they are stored."""
        block, self._head = self._head or self._read(size), b""
        while block:
            if not self._compressed_in_transit:
                self.consumed += len(block)
            yield block
            block = self._read(size)
        if self._connection_error:
            of = f" of {self.total:,}" if self.total else ""
            self._tally.add(CUT_CONNECTION, f"{self.consumed:,}{of} bytes arrived; {self._connection_error}")

    def _decompressed_blocks(self) -> Iterator[bytes]:
        """All members, streams or frames, one after the other."""
        inflater: Decompressor | None = None
        members = taken = given = 0
        fresh = True  # nothing has come out of this member yet
        for packed in self._stored_blocks(_COMPRESSED_READ_BYTES):
            taken += len(packed)
            while packed:
                if inflater is None:
                    packed = packed.lstrip(b"\0")  # some writers pad the end with zeros
                    if not packed:
                        break
                    kept = ReplayBuffer(self._path, self.consumed - len(packed))
                    inflater, fresh = DECOMPRESSORS[self.compression](kept), True
                try:
                    for text in inflater.feed(packed):
                        if text:
                            fresh = False
                            given += len(text)
                            self._refuse_bomb(taken, given)
                            if self._compressed_in_transit:
                                self.consumed += len(text)
                            yield text
                except DamagedStreamError as error:
                    what = "something else follows it" if members and fresh else str(error)
                    where = f"the {self.compression} data is wrong near byte {self.consumed}: {what}"
                    self._tally.add(DAMAGED_COMPRESSION, where)
                    return
                if not inflater.eof:
                    break
                packed, inflater = inflater.unused_data, None
                members += 1
        if inflater is not None and not self._connection_error:
            where = f"the {self.compression} data stops at byte {self.consumed}, before its end mark"
            self._tally.add(CUT_SHORT, where)

    def _refuse_bomb(self, packed: int, text: int) -> None:
        if text > _BOMB_BYTES and text > _BOMB_RATIO * packed and not self.unpack_all:
            times = (
                f"more than {text // packed:,} times its size ({text / 1e6:,.0f} MB from {packed / 1e6:,.1f} MB so far)"
            )
            raise TraceError(f"{self.name}: unpacks to {times}; if that is meant: --unpack-all")
