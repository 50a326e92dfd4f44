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

from torchprof_tui.trace.core.errors import CutError, TraceError
from torchprof_tui.trace.core.problems import CUT_CONNECTION, CUT_SHORT, DAMAGED_COMPRESSION, Problem, Tally
from torchprof_tui.trace.sources.decompress import INFLATERS, MAGIC_BYTES, DamagedError, Inflater, compression
from torchprof_tui.trace.sources.prefetch import _Ahead
from torchprof_tui.trace.sources.replay import Packed

_PLAIN_BLOCK = 1 << 20
"""Bytes a read of plain text: large enough that reads are few, small enough to stay in the processor's cache."""

_PACKED_BLOCK = 1 << 18
"""Compressed bytes a read; about 3 MB of trace."""


_GZIP_SIZE = 4


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
        packed_on_the_way: bool = False,
        identity: str | None = None,
        stop: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.total = total
        self.consumed = 0
        self.identity = identity
        self._stream = stream
        self._path = path
        self._packed_on_the_way = packed_on_the_way
        self._stop = stop
        self._cut = ""
        self.unpack_all = bool(os.environ.get(UNPACK_ALL))
        self._tally = Tally()
        self._head = self._peek()
        if self._cut and not self._head:
            raise TraceError(f"{name}: {self._cut}, before anything arrived")
        self.compression = compression(self._head)
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
        return iter(_Ahead(self._inflated(), self._stop)) if self.compression else self._stored(_PLAIN_BLOCK)

    @property
    def cut(self) -> bool:
        """Whether the other end went away, so that what came is not what lies there."""
        return bool(self._cut)

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
            file.seek(-min(_GZIP_SIZE, self.total), os.SEEK_END)
            return int.from_bytes(file.read(), "little")

    def again(self, begin: int = 0) -> Source:
        """The same local file, not yet read; plain text from byte `begin` on. Raises OSError, TraceError."""
        assert self._path is not None, "only a local file can be read twice"
        stream = self._path.open("rb", buffering=0)
        if isinstance(self._stream, io.FileIO) and not os.path.sameopenfile(stream.fileno(), self._stream.fileno()):
            stream.close()
            raise TraceError(f"{self.name}: was replaced while it was read")
        source = Source(self.name, stream, self.total, self._path)
        if begin:
            source._head = b""
            stream.seek(begin)
        return source

    def close(self) -> None:
        self._stream.close()

    def _peek(self) -> bytes:
        head = b""
        while len(head) < MAGIC_BYTES:
            part = self._some(MAGIC_BYTES - len(head))
            if not part:
                break
            head += part
        return head

    def _some(self, size: int) -> bytes:
        try:
            return self._stream.read(size) or b""
        except CutError as error:
            self._cut = str(error)
            return b""
        except OSError as error:
            raise TraceError(f"{self.name}: cannot be read: {error.strerror or error}") from error

    def _stored(self, size: int) -> Iterator[bytes]:
        """The bytes as they are stored."""
        block, self._head = self._head or self._some(size), b""
        while block:
            if not self._packed_on_the_way:
                self.consumed += len(block)
            yield block
            block = self._some(size)
        if self._cut:
            of = f" of {self.total:,}" if self.total else ""
            self._tally.add(CUT_CONNECTION, f"{self.consumed:,}{of} bytes arrived; {self._cut}")

    def _inflated(self) -> Iterator[bytes]:
        """All members, streams or frames, one after the other."""
        inflater: Inflater | None = None
        members = taken = given = 0
        fresh = True  # nothing has come out of this member yet
        for packed in self._stored(_PACKED_BLOCK):
            taken += len(packed)
            while packed:
                if inflater is None:
                    packed = packed.lstrip(b"\0")  # some writers pad the end with zeros
                    if not packed:
                        break
                    kept = Packed(self._path, self.consumed - len(packed))
                    inflater, fresh = INFLATERS[self.compression](kept), True
                try:
                    for text in inflater.feed(packed):
                        if text:
                            fresh = False
                            given += len(text)
                            self._refuse_bomb(taken, given)
                            if self._packed_on_the_way:
                                self.consumed += len(text)
                            yield text
                except DamagedError as error:
                    what = "something else follows it" if members and fresh else str(error)
                    where = f"the {self.compression} data is wrong near byte {self.consumed}: {what}"
                    self._tally.add(DAMAGED_COMPRESSION, where)
                    return
                if not inflater.ended:
                    break
                packed, inflater = inflater.rest, None
                members += 1
        if inflater is not None and not self._cut:
            where = f"the {self.compression} data stops at byte {self.consumed}, before its end mark"
            self._tally.add(CUT_SHORT, where)

    def _refuse_bomb(self, packed: int, text: int) -> None:
        if text > _BOMB_BYTES and text > _BOMB_RATIO * packed and not self.unpack_all:
            times = (
                f"more than {text // packed:,} times its size ({text / 1e6:,.0f} MB from {packed / 1e6:,.1f} MB so far)"
            )
            raise TraceError(f"{self.name}: unpacks to {times}; if that is meant: --unpack-all")
