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

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from torchprof_tui.trace.core.arrays import I64, U32
from torchprof_tui.trace.core.checksum import crc32
from torchprof_tui.trace.core.errors import TraceChangedError

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
        ...

    def read_entry(self, ordinal: int, parse: ParseChunk) -> dict[str, Any]:
        """Read one entry as it stands in the file.

        Raises OSError if the file is gone, LookupError if it has changed and the entry is not in it.
        """
        ...

    def read_texts(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Yield (chunk, text) for these chunks, given in ascending order.

        Raises OSError if the file is gone, LookupError if it has changed.
        """
        ...


@dataclass
class FileText(ABC):
    """Base of the text of one file. Arrays have a row for each of c chunks; see `TextIndex` for `first`.

    `offset`, `length`: position and size in bytes of each chunk, as the subclass stores it. `checksum`: CRC-32 of these
    bytes, so that a file that has changed never yields the args of another event.
    """

    path: Path
    first: I64
    offset: I64
    length: I64
    checksum: U32
    _last_parsed: tuple[bytes, list[dict[str, Any]]] = field(default=(b"", []), init=False, repr=False, compare=False)
    """The chunk read last, as stored and parsed: the next entry asked for is mostly a neighbour."""

    def read_entry(self, ordinal: int, parse: ParseChunk) -> dict[str, Any]:
        """Read one entry; see `TextIndex.read_entry`."""
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
        """Yield (chunk, text); see `TextIndex.read_texts`."""
        for chunk, stored in self._read_stored(chunks):
            self._check_stored(chunk, stored)
            yield chunk, self._decode_stored(stored)

    @abstractmethod
    def _read_stored(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Yield (chunk, stored bytes)."""

    def _check_stored(self, chunk: int, stored: bytes) -> None:
        """Raise TraceChangedError if these are not the bytes that were indexed."""
        if len(stored) != int(self.length[chunk]) or crc32(stored) != int(self.checksum[chunk]):
            raise TraceChangedError(self._changed_message)

    @property
    def _changed_message(self) -> str:
        """What to tell the user where the stored bytes are not those that were indexed."""
        return CHANGED_MESSAGE

    def _decode_stored(self, stored: bytes) -> bytes:
        """Return the text of a chunk's stored bytes."""
        return stored


def read_spans(path: Path, offset: I64, length: I64, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """Yield (chunk, bytes) of `path` at `offset[chunk]`, `length[chunk]` bytes. Raises OSError."""
    with path.open("rb") as file:
        for chunk in chunks:
            file.seek(int(offset[chunk]))
            yield chunk, file.read(int(length[chunk]))


@dataclass
class PlainText(FileText):
    """The text of a plain local file."""

    def _read_stored(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        return read_spans(self.path, self.offset, self.length, chunks)


class RankTexts:
    """The texts of several ranks as one: ordinals and chunks count on from rank to rank.

    `ordinal_offsets`: int64[ranks] ascending, the ordinal of each rank's first entry.
    """

    def __init__(self, texts: Sequence[TextIndex], ordinal_offsets: I64) -> None:
        self._texts = texts
        self._ordinal_offsets = ordinal_offsets
        self._chunk_offsets = np.cumsum([0, *(len(text.first) for text in texts)], dtype=np.int64)
        self._first: I64 | None = None

    @property
    def first(self) -> I64:
        """int64[c]: ordinal of each chunk's first entry; see `TextIndex.first`."""
        if self._first is None:
            shifted = [text.first + offset for text, offset in zip(self._texts, self._ordinal_offsets, strict=True)]
            self._first = np.concatenate(shifted)
        return self._first

    def read_entry(self, ordinal: int, parse: ParseChunk) -> dict[str, Any]:
        """Read one entry; see `TextIndex.read_entry`."""
        rank = int(np.searchsorted(self._ordinal_offsets, ordinal, side="right")) - 1
        return self._texts[rank].read_entry(ordinal - int(self._ordinal_offsets[rank]), parse)

    def read_texts(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Yield (chunk, text), one rank's file after the other; see `TextIndex.read_texts`."""
        for rank, rank_chunks in groupby(chunks, key=self._rank_of_chunk):
            offset = int(self._chunk_offsets[rank])
            for chunk, text in self._texts[rank].read_texts(chunk - offset for chunk in rank_chunks):
                yield chunk + offset, text

    def _rank_of_chunk(self, chunk: int) -> int:
        return int(np.searchsorted(self._chunk_offsets, chunk, side="right")) - 1
