"""Write the text of entries as compressed blocks, while it is decoded."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TypeAlias

from torchprof_tui.trace.core.background import Behind

_WAITING = 16
"""Chunks that wait to be written, at most: 4 MB, and what they are views of. The writer is faster than the decoder, so
they rarely wait."""


_COPIED = 1 << 20


Text: TypeAlias = bytes | memoryview
"""A chunk. Of a view nothing is copied; what it is a view of lives until it is written."""


class BlockWriter:
    """Writes chunks of text to `path`, each compressed by itself, in a thread: the compressor needs no interpreter.

    `lengths`: stored bytes of each block, complete after `close`. All methods raise what went wrong with an earlier
    block: OSError where it could not be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lengths: list[int] = []
        self._file = path.open("wb")
        self._behind: Behind[Text | tuple[Path, list[int]]] = Behind(self._keep, "text", _WAITING)

    def put(self, text: Text) -> None:
        self._behind.put(text)

    def append(self, path: Path, lengths: list[int]) -> None:
        """Take over the blocks of another writer, and their file."""
        self._behind.put((path, lengths))

    def close(self) -> None:
        """Wait until all is written. May be called again."""
        try:
            self._behind.close()
        finally:
            self._file.close()

    def _keep(self, item: Text | tuple[Path, list[int]]) -> None:
        if isinstance(item, tuple):
            self._take_over(*item)
        else:
            self._write(item)

    def _write(self, text: Text) -> None:
        from torchprof_tui.trace.sources import gzip_codec

        block = gzip_codec.compress(text)
        self._file.write(block)
        self.lengths.append(len(block))

    def _take_over(self, path: Path, lengths: list[int]) -> None:
        with path.open("rb") as blocks:
            shutil.copyfileobj(blocks, self._file, _COPIED)
        path.unlink()
        self.lengths += lengths
