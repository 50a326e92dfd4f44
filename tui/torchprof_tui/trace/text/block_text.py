"""Read the text of entries from independently compressed blocks, one per chunk (written by `BlockWriter`)."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from torchprof_tui.trace.core.arrays import I64, U32
from torchprof_tui.trace.core.background import BackgroundWorker
from torchprof_tui.trace.core.checksum import ChecksumReader, crc32, open_unbuffered
from torchprof_tui.trace.text.text_index import FileText, read_spans


@dataclass
class BlockText(FileText):
    """The text of a file of blocks. Reading one entry's args decompresses one block, never the whole file."""

    @classmethod
    def from_lengths(cls, path: Path, first: I64, length: I64, checksum: U32) -> BlockText:
        """Index blocks that are stored one after the other. `length`: int64[c] stored bytes; `checksum`: of each."""
        return cls(path, first, np.cumsum(length, dtype=np.int64) - length, length, checksum)

    def is_intact(self) -> bool:
        """Return whether the file holds the blocks that were written, and nothing else: reads all of it."""
        try:
            with open_unbuffered(self.path) as file:
                reader = ChecksumReader(file)
                expected = zip(self.length.tolist(), self.checksum.tolist(), strict=True)
                return all(reader.read_checksum(size) == checksum for size, checksum in expected) and reader.ended()
        except OSError:
            return False

    @property
    def _changed_message(self) -> str:
        return "the cache entry of this trace is damaged: open the trace again"

    def _read_stored(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        return read_spans(self.path, self.offset, self.length, chunks)

    def _decode_stored(self, stored: bytes) -> bytes:
        from torchprof_tui.trace.sources import gzip_codec  # deferred: loads isal, needed when the first block is read

        return gzip_codec.decompress(stored)


_MAX_PENDING_CHUNKS = 16
"""Chunks queued for writing, at most: 4 MB, plus the buffers that they are views of. The writer is faster than the
decoder, so the queue is mostly empty."""

_COPY_BYTES = 1 << 20

ChunkText: TypeAlias = bytes | memoryview
"""A chunk. A view is not copied; its buffer stays alive until the block is written."""

_OtherBlocks: TypeAlias = tuple[Path, list[int], list[int]]
"""The file of another writer, and its `lengths` and `checksums`."""


class BlockWriter:
    """Compresses each chunk of text by itself and writes it to `path`, on a thread: the compressor releases the GIL.

    `lengths`, `checksums`: stored bytes of each block and their CRC-32, complete after `close`. All methods raise the
    exception of an earlier block: OSError if it could not be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lengths: list[int] = []
        self.checksums: list[int] = []
        self._file = path.open("wb")
        self._worker: BackgroundWorker[ChunkText | _OtherBlocks] = BackgroundWorker(
            self._process_item, "text", _MAX_PENDING_CHUNKS
        )

    def put(self, text: ChunkText) -> None:
        """Queue a chunk."""
        self._worker.put(text)

    def append_blocks(self, path: Path, lengths: list[int], checksums: list[int]) -> None:
        """Append the blocks of another writer, and remove its file."""
        self._worker.put((path, lengths, checksums))

    def close(self) -> None:
        """Wait until all blocks are written. May be called again."""
        try:
            self._worker.close()
        finally:
            self._file.close()

    def _process_item(self, item: ChunkText | _OtherBlocks) -> None:
        if isinstance(item, tuple):
            self._append_file(*item)
        else:
            self._write_block(item)

    def _write_block(self, text: ChunkText) -> None:
        from torchprof_tui.trace.sources import gzip_codec  # deferred: loads isal, needed by the first block

        block = gzip_codec.compress(text)
        self._file.write(block)
        self.lengths.append(len(block))
        self.checksums.append(crc32(block))

    def _append_file(self, path: Path, lengths: list[int], checksums: list[int]) -> None:
        with path.open("rb") as blocks:
            shutil.copyfileobj(blocks, self._file, _COPY_BYTES)
        path.unlink()
        self.lengths += lengths
        self.checksums += checksums
