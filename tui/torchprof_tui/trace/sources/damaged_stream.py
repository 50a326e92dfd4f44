"""Read the compressed bytes of a damaged stream again, for the text before the damage."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

MAX_IN_MEMORY_BYTES = 8 << 20
"""Bytes kept in memory of a stream that cannot be read again; more go to a temporary file."""

PIECE_BYTES = 64
"""Bytes fed at a time in the replay: at most the text of so many bytes before the damage is lost."""

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
        with contextlib.suppress(OSError):
            if self._path is not None:
                with self._path.open("rb") as file:
                    file.seek(self._offset)
                    yield from self._split_into_pieces(file)
            elif self._spool is not None:
                self._spool.seek(0)
                yield from self._split_into_pieces(self._spool)

    def _split_into_pieces(self, file: IO[bytes]) -> Iterator[bytes]:
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
