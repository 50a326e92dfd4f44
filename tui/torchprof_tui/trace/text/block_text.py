"""Read the text of entries from independently compressed blocks, one per chunk (written by `BlockWriter`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from torchprof_tui.trace.core.arrays import I64, U32
from torchprof_tui.trace.core.checksum import ChecksumReader, open_unbuffered
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
