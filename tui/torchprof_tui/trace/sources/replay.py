"""The packed bytes of a stream once more: when they turn out to be damaged, all before the damage is worth having."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

MAX_IN_MEMORY_BYTES = 8 << 20
"""Bytes that are kept in memory of what cannot be read again; beyond that they go to a temporary file."""

PIECE_BYTES = 64
"""Bytes that an inflater is fed at a time the second time: so much of it is lost before the damage, at most."""

_READ_BYTES = 1 << 16


class ReplayBuffer:
    """What one gzip member, xz stream or zstd frame was fed, to feed it again.

    A local file is read again from `offset` on; of everything else the bytes are kept as they come (`keep`).
    """

    def __init__(self, path: Path | None = None, offset: int = 0) -> None:
        self._path = path
        self._offset = offset
        self._length = 0
        self._spool: IO[bytes] | None = None
        if path is None:
            self._spool = tempfile.SpooledTemporaryFile(MAX_IN_MEMORY_BYTES, prefix="torchprof-tui-")  # noqa: SIM115

    def append(self, data: bytes) -> None:
        """It has been fed these as well."""
        self._length += len(data)
        if self._spool is not None:
            try:
                self._spool.write(data)
            except OSError:  # a full disk: then the damage costs a block, as it would without this
                self.discard()

    def read_pieces(self) -> Iterator[bytes]:
        """All of it, a little at a time; nothing where it cannot be read again."""
        with contextlib.suppress(OSError):
            if self._path is not None:
                with self._path.open("rb") as file:
                    file.seek(self._offset)
                    yield from self._split_into_pieces(file)
            elif self._spool is not None:
                self._spool.seek(0)
                yield from self._split_into_pieces(self._spool)

    def _split_into_pieces(self, file: IO[bytes]) -> Iterator[bytes]:
        left = self._length
        while left > 0 and (block := file.read(min(_READ_BYTES, left))):
            left -= len(block)
            for at in range(0, len(block), PIECE_BYTES):
                yield block[at : at + PIECE_BYTES]

    def discard(self) -> None:
        if self._spool is not None:
            self._spool.close()
            self._spool = None
