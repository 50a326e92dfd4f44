"""Read the text of entries on demand, so that args are parsed only for the events that are inspected.

The decoder reads a file in chunks of a few hundred KB, each a run of whole entries. A text index holds for each chunk
the ordinal of its first entry and the position of its bytes; to read an entry, its chunk is parsed again (about 1 ms)
and the k-th object is taken. This needs one int32 per event (`Trace.ordinal`) and works for any JSON layout.

    PlainText   a plain local file, read in place
    BlockText   a file of our own with one compressed block per chunk: compressed files, pipes, remote files
    GzipText    a local gzip file, read from its beginning until its blocks have been written
    RankTexts   the files of several ranks
"""

from __future__ import annotations

import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from torchprof_tui.trace.core.arrays import I64, U32
from torchprof_tui.trace.core.column_file import ChecksumReader, crc32, open_unbuffered
from torchprof_tui.trace.core.errors import TraceChangedError
from torchprof_tui.trace.core.thread_tasks import BackgroundWorker

ParseChunk = Callable[[bytes], list[dict[str, Any]]]
"""Parses the text of a chunk into its entries, repairs included."""

CHANGED_MESSAGE = "the trace file has changed since it was opened"


class TextIndex(Protocol):
    """The text of a trace's entries, in c chunks in file order."""

    @property
    def first(self) -> I64:
        """int64[c] ascending: ordinal of each chunk's first readable entry.

        A chunk without any repeats the next one's.
        """

    def read_entry(self, ordinal: int, parse: ParseChunk) -> dict[str, Any]:
        """Read one entry as it stands in the file.

        Raises OSError if the file is gone, LookupError if it has changed and the entry is not in it.
        """

    def read_texts(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Yield (chunk, text) for these chunks, given in ascending order.

        Raises OSError if the file is gone, LookupError if it has changed.
        """


@dataclass
class FileText:
    """Base of the text of one file. Arrays have a row for each of c chunks; see `TextIndex` for `first`.

    `offset`, `length`: position and size in bytes of each chunk, as the subclass stores it. `checksum`: CRC-32 of these
    bytes, so that a file that has changed never yields the args of another event.
    """

    _changed_message: ClassVar[str] = CHANGED_MESSAGE

    path: Path
    first: I64
    offset: I64
    length: I64
    checksum: U32
    _last_parsed: tuple[bytes, list[dict[str, Any]]] = field(default=(b"", []), init=False, repr=False, compare=False)
    """The chunk read last, as stored and parsed: the next entry asked for is mostly a neighbour."""

    def read_entry(self, ordinal: int, parse: ParseChunk) -> dict[str, Any]:
        chunk = int(np.searchsorted(self.first, ordinal, side="right")) - 1
        if chunk < 0:
            raise LookupError(f"no entry {ordinal}")
        ((_, stored),) = self._read_stored([chunk])
        last_stored, entries = self._last_parsed
        if stored != last_stored:  # read from disk each time, so that a changed file is noticed
            self._check_stored(chunk, stored)
            entries = parse(self._decode_stored(stored))
            self._last_parsed = stored, entries
        index = ordinal - int(self.first[chunk])
        if index >= len(entries):
            raise TraceChangedError(CHANGED_MESSAGE)
        return entries[index]

    def read_texts(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        for chunk, stored in self._read_stored(chunks):
            self._check_stored(chunk, stored)
            yield chunk, self._decode_stored(stored)

    def _read_stored(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        with self.path.open("rb") as file:
            for chunk in chunks:
                file.seek(int(self.offset[chunk]))
                yield chunk, file.read(int(self.length[chunk]))

    def _check_stored(self, chunk: int, stored: bytes) -> None:
        """Raise TraceChangedError if these are not the bytes that were indexed."""
        if len(stored) != int(self.length[chunk]) or crc32(stored) != int(self.checksum[chunk]):
            raise TraceChangedError(self._changed_message)

    def _decode_stored(self, stored: bytes) -> bytes:
        """Return the text of a chunk's stored bytes."""
        return stored


@dataclass
class PlainText(FileText):
    """The text of a plain local file."""


class RankTexts:
    """The texts of several ranks as one: ordinals and chunks count on from rank to rank.

    `ordinal_offsets`: int64[ranks] ascending, the ordinal of each rank's first entry.
    """

    def __init__(self, texts: Sequence[TextIndex], ordinal_offsets: I64) -> None:
        self._texts = texts
        self._ordinal_offsets = ordinal_offsets
        self._chunk_offsets = list(accumulate((len(text.first) for text in texts), initial=0))

    @cached_property
    def first(self) -> I64:
        """int64[c]: ordinal of each chunk's first entry; see `TextIndex.first`."""
        return np.concatenate(
            [text.first + offset for text, offset in zip(self._texts, self._ordinal_offsets, strict=True)]
        )

    def read_entry(self, ordinal: int, parse: ParseChunk) -> dict[str, Any]:
        rank = int(np.searchsorted(self._ordinal_offsets, ordinal, side="right")) - 1
        return self._texts[rank].read_entry(ordinal - int(self._ordinal_offsets[rank]), parse)

    def read_texts(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        for rank, rank_chunks in groupby(chunks, key=lambda chunk: bisect_right(self._chunk_offsets, chunk) - 1):
            offset = self._chunk_offsets[rank]
            for chunk, text in self._texts[rank].read_texts(chunk - offset for chunk in rank_chunks):
                yield chunk + offset, text


@dataclass
class BlockText(FileText):
    """The text of a file of blocks. Reading one entry's args decompresses one block, never the whole file."""

    _changed_message = "the cache entry of this trace is damaged: open the trace again"

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
            path, lengths, checksums = item
            with path.open("rb") as blocks:
                shutil.copyfileobj(blocks, self._file, _COPY_BYTES)
            path.unlink()
            self.lengths += lengths
            self.checksums += checksums
            return
        from torchprof_tui.trace.sources import gzip_codec  # deferred: loads isal, needed by the first block

        block = gzip_codec.compress(item)
        self._file.write(block)
        self.lengths.append(len(block))
        self.checksums.append(crc32(block))
