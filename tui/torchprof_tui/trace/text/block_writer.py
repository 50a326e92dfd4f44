"""Write the text of entries as compressed blocks, while it is decoded."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TypeAlias

from torchprof_tui.trace.core.background import BackgroundWorker

_MAX_PENDING_CHUNKS = 16
"""Chunks that wait to be written, at most: 4 MB, and what they are views of. The writer is faster than the decoder, so
they rarely wait."""


_COPY_BYTES = 1 << 20


ChunkText: TypeAlias = bytes | memoryview
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
        self._worker: BackgroundWorker[ChunkText | tuple[Path, list[int]]] = BackgroundWorker(
            self._process_item, "text", _MAX_PENDING_CHUNKS
        )

    def put(self, text: ChunkText) -> None:
        self._worker.put(text)

    def append_blocks(self, path: Path, lengths: list[int]) -> None:
        """Take over the blocks of another writer, and their file."""
        self._worker.put((path, lengths))

    def close(self) -> None:
        """Wait until all is written. May be called again."""
        try:
            self._worker.close()
        finally:
            self._file.close()

    def _process_item(self, item: ChunkText | tuple[Path, list[int]]) -> None:
        if isinstance(item, tuple):
            self._append_file(*item)
        else:
            self._write_block(item)

    def _write_block(self, text: ChunkText) -> None:
        from torchprof_tui.trace.sources import gzip_codec

        block = gzip_codec.compress(text)
        self._file.write(block)
        self.lengths.append(len(block))

    def _append_file(self, path: Path, lengths: list[int]) -> None:
        with path.open("rb") as blocks:
            shutil.copyfileobj(blocks, self._file, _COPY_BYTES)
        path.unlink()
        self.lengths += lengths
