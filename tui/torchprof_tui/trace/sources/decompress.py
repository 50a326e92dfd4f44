"""Decompress gzip, xz and zstd in blocks of bounded size, through one interface.

Each library is imported when the first stream of its format is opened: none of them before the first frame.
"""

from __future__ import annotations

import contextlib
import lzma
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from torchprof_tui.trace.sources import gzip_codec

BLOCK_BYTES = 1 << 20
"""Largest block of text that one call returns. The thread takes the GIL once per block, so blocks
are large; malloc returns larger ones to the kernel each time, which costs more than it saves."""


MAX_IN_MEMORY_BYTES = 8 << 20  # bytes kept in memory of a stream that cannot be read again; more go to a temporary file
PIECE_BYTES = 64  # bytes fed at a time in the replay: the text of at most this many bytes before the damage is lost
_READ_BYTES = 1 << 16


class ReplayBuffer:
    """Compressed bytes of one gzip member, xz stream or zstd frame.

    A local file (`path`) is read again from `offset`; the bytes of any other stream are stored by `append`.
    """

    def __init__(self, path: Path | None = None, offset: int = 0) -> None:
        self._path = path
        self._offset = offset
        self._length = 0
        self._spool: IO[bytes] | None = None
        if path is None:
            self._spool = tempfile.SpooledTemporaryFile(MAX_IN_MEMORY_BYTES, prefix="torchprof-tui-")  # noqa: SIM115

    def append(self, data: bytes) -> None:
        """Record bytes that were fed to the decompressor."""
        self._length += len(data)
        if self._spool is not None:
            try:
                self._spool.write(data)
            except OSError:  # full disk: damage then costs a whole block of text
                self.discard()

    def read_pieces(self) -> Iterator[bytes]:
        """Yield all bytes in pieces of PIECE_BYTES; none if they cannot be read again."""
        with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
            if self._path is not None:
                file: IO[bytes] = opened.enter_context(self._path.open("rb"))
            elif self._spool is not None:
                file = self._spool
            else:
                return
            file.seek(self._offset)
            remaining = self._length
            while remaining > 0 and (block := file.read(min(_READ_BYTES, remaining))):
                remaining -= len(block)
                for begin in range(0, len(block), PIECE_BYTES):
                    yield block[begin : begin + PIECE_BYTES]

    def discard(self) -> None:
        """Delete the stored bytes."""
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def rescue_text(self, decompressor: Any, skip: int, error_types: tuple[type[Exception], ...]) -> Iterator[bytes]:
        """Yield the text before the damage, without its first `skip` bytes, and discard the bytes.

        `decompressor` is a new one that returns all text up to each byte, and raises `error_types` at the damage.
        """
        try:
            for piece in self.read_pieces():
                text: bytes = decompressor.decompress(piece)
                if len(text) > skip:
                    yield text[skip:]
                skip = max(skip - len(text), 0)
        except error_types:
            return
        finally:
            self.discard()


class DamagedStreamError(Exception):
    """The compressed bytes are damaged; `str()` is the library's message."""


class Decompressor:
    """One gzip member, xz stream or zstd frame, fed until its end mark. `compression`: "gzip", "xz" or "zstd".

    A call that reaches damage returns no text of its block. All bytes are then replayed to a new object, a few at a
    time, to recover the text before the damage.
    """

    def __init__(self, compression: str, replay: ReplayBuffer) -> None:
        self._replay = replay
        self._create_byte_exact: Callable[[], Any]
        self._error_types: tuple[type[Exception], ...]
        if compression == "gzip":
            self._decompressor = gzip_codec.create_decompressor()
            self._create_byte_exact = gzip_codec.create_byte_exact_decompressor
            self._error_types = gzip_codec.decompression_errors()
        elif compression == "xz":
            self._create_byte_exact, self._error_types = lzma.LZMADecompressor, (lzma.LZMAError,)
            self._decompressor = lzma.LZMADecompressor()
        else:
            from torchprof_tui.trace.sources import zstd_codec  # deferred: few traces are packed with it

            self._create_byte_exact, self._error_types = zstd_codec.ZstdDecompressor, (zstd_codec.ZstdError,)
            self._decompressor = zstd_codec.ZstdDecompressor()
        self._output_bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompress the next bytes; yields blocks of text. Raises DamagedStreamError."""
        self._replay.append(data)
        try:
            for text in self._decompress(data):
                self._output_bytes += len(text)
                yield text
        except self._error_types as error:
            yield from self._replay.rescue_text(self._create_byte_exact(), self._output_bytes, self._error_types)
            raise DamagedStreamError(str(error)) from error
        if self.eof:
            self._replay.discard()

    def _decompress(self, data: bytes) -> Iterator[bytes]:
        """Yield blocks of limited size. What is left of its input zlib returns, and the other libraries keep."""
        decompressor = self._decompressor
        yield decompressor.decompress(data, BLOCK_BYTES)
        while not decompressor.eof:
            data = getattr(decompressor, "unconsumed_tail", b"")
            if not data and getattr(decompressor, "needs_input", True):
                return
            yield decompressor.decompress(data, BLOCK_BYTES)

    @property
    def eof(self) -> bool:
        """Whether the end mark was reached."""
        return bool(self._decompressor.eof)

    @property
    def unused_data(self) -> bytes:
        """The bytes after the end mark, of those fed last."""
        return bytes(self._decompressor.unused_data)


_COMPRESSION_MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}

MAGIC_BYTES = 6  # bytes that `detect_compression` needs


def detect_compression(head: bytes) -> str:
    """Detect "gzip", "xz" or "zstd" by the first bytes of a stream; "" for anything else."""
    return next((name for magic, name in _COMPRESSION_MAGIC.items() if head.startswith(magic)), "")
