"""The packed bytes of a stream once more: when they turn out to be damaged, all before the damage is worth having."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

KEPT = 8 << 20
"""Bytes that are kept in memory of what cannot be read again; beyond that they go to a temporary file."""

PIECE = 64
"""Bytes that an inflater is fed at a time the second time: so much of it is lost before the damage, at most."""

_READ = 1 << 16


class Packed:
    """What one gzip member, xz stream or zstd frame was fed, to feed it again.

    A local file is read again from `offset` on; of everything else the bytes are kept as they come (`keep`).
    """

    def __init__(self, path: Path | None = None, offset: int = 0) -> None:
        self._path = path
        self._offset = offset
        self._length = 0
        self._kept: IO[bytes] | None = None
        if path is None:
            self._kept = tempfile.SpooledTemporaryFile(KEPT, prefix="torchprof-tui-")  # noqa: SIM115

    def keep(self, packed: bytes) -> None:
        """It has been fed these as well."""
        self._length += len(packed)
        if self._kept is not None:
            try:
                self._kept.write(packed)
            except OSError:  # a full disk: then the damage costs a block, as it would without this
                self.forget()

    def pieces(self) -> Iterator[bytes]:
        """All of it, a little at a time; nothing where it cannot be read again."""
        with contextlib.suppress(OSError):
            if self._path is not None:
                with self._path.open("rb") as file:
                    file.seek(self._offset)
                    yield from self._cut_up(file)
            elif self._kept is not None:
                self._kept.seek(0)
                yield from self._cut_up(self._kept)

    def _cut_up(self, file: IO[bytes]) -> Iterator[bytes]:
        left = self._length
        while left > 0 and (block := file.read(min(_READ, left))):
            left -= len(block)
            for at in range(0, len(block), PIECE):
                yield block[at : at + PIECE]

    def forget(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None
