"""Where the text of each entry lies, so that args can be parsed when an event is looked at, and not before.

A reader decodes the file in chunks of a few hundred KB, each a run of whole entries. `TextIndex` remembers
for each chunk its first ordinal and its bytes' place; an entry's text is found by parsing its chunk again
(about 1 ms) and taking the k-th object. That costs 4 bytes an event and works for any layout.

A plain file is read in place. The text of compressed files, pipes and remote ones lies in a file of our own
beside the columns, one independently compressed block per chunk: one event's args never need the whole file. That of a
local gzip file may be taken apart so when its lanes are on screen already.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.text.block_writer import BlockWriter
from torchprof_tui.trace.text.gzip_text import GzipText


@dataclass(slots=True)
class TextIndex:
    """Chunks of the file's text. c chunks, in file order; all arrays int64[c].

    `first`: ordinal of the chunk's first readable entry (a chunk without any repeats the next one's).
    `offset`, `length`: where its bytes lie in `path`; stored bytes are gzip members where `compressed`. Where the text
    has not been taken apart yet, it is `whole`, and they are places in that; then `path` is where it will lie so.
    `coming`: waits for who takes it apart.
    """

    path: Path
    compressed: bool
    first: I64
    offset: I64
    length: I64
    gzip_text: GzipText | None = None
    wait_for_blocks: Callable[[], None] | None = field(default=None, init=False, repr=False, compare=False)
    _block_index: TextIndex | None = field(default=None, init=False, repr=False, compare=False)
    _last_parsed: tuple[bytes, list[dict[str, Any]]] = field(default=(b"", []), init=False, repr=False, compare=False)
    """The chunk read last, as stored and parsed: who asks about one event mostly asks about its neighbours next."""

    def read_entry(self, ordinal: int, parse: Callable[[bytes], list[dict[str, Any]]]) -> dict[str, Any]:
        """The entry as it stands in the file. `parse` is the reader's own chunk parser, repairs included.

        Raises OSError where the file is gone, LookupError where it has changed and the entry is not there.
        """
        if (index := self._active_index) is not self:
            return index.read_entry(ordinal, parse)
        chunk = int(np.searchsorted(self.first, ordinal, side="right")) - 1
        if chunk < 0:
            raise LookupError(f"no entry {ordinal}")
        ((_, stored),) = self._read_stored([chunk])
        known, entries = self._last_parsed
        if stored != known:  # read again each time, for a file that has changed must not be told from memory
            entries = parse(self._decode_stored(stored))
            self._last_parsed = stored, entries
        place = ordinal - int(self.first[chunk])
        if place >= len(entries):
            raise LookupError("the trace file has changed since it was opened")
        return entries[place]

    def read_texts(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """(number, text) of these chunks, ascending. Raises OSError where the file is gone, LookupError where it has
        changed."""
        index = self._active_index
        for number, stored in index._read_stored(chunks):
            yield number, index._decode_stored(stored)

    @property
    def block_index(self) -> TextIndex | None:
        """The same by blocks, where `whole` has been taken apart."""
        if self._block_index is None and self.gzip_text is not None and self._ends_path.exists():
            ends = np.fromfile(self._ends_path, np.int64)
            if len(ends) == len(self.first):
                length = np.diff(ends, prepend=0)
                self._block_index = TextIndex(self.path, True, self.first, ends - length, length)
        return self._block_index

    @property
    def _active_index(self) -> TextIndex:
        """What to read from: blocks that come in a moment are waited for, as several would be asked for."""
        if self.block_index is None and self.wait_for_blocks is not None:
            self.wait_for_blocks()
        return self.block_index or self

    def split_into_blocks(self) -> None:
        """Write the blocks of `whole`; whoever has this index open finds them. Raises OSError, LookupError."""
        if self.gzip_text is None or self.block_index is not None:
            return
        drafts = [
            path.with_name(f"{path.name}-{os.getpid()}") for path in (self.path, self._ends_path)
        ]  # others may be at it
        try:
            writer = BlockWriter(drafts[0])
            try:
                for _, text in self.gzip_text.read_pieces(self.offset, self.length, range(len(self.first))):
                    writer.put(text)
            finally:
                writer.close()
            np.cumsum(writer.lengths, dtype=np.int64).tofile(drafts[1])
            self.gzip_text.check_unchanged()
            drafts[0].replace(self.path)
            drafts[1].replace(self._ends_path)  # comes last: without it there are no blocks
        finally:
            for draft in drafts:
                draft.unlink(missing_ok=True)

    @property
    def _ends_path(self) -> Path:
        """Where it says where each block ends, int64[c]."""
        return self.path.with_suffix(".ends")

    def _read_stored(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        if self.gzip_text is not None:
            yield from self.gzip_text.read_pieces(self.offset, self.length, chunks)
            return
        with self.path.open("rb") as file:
            for number in chunks:
                file.seek(int(self.offset[number]))
                yield number, file.read(int(self.length[number]))

    def _decode_stored(self, stored: bytes) -> bytes:
        return decompress_block(stored) if self.compressed and self.gzip_text is None else stored


@dataclass(slots=True)
class RankTexts:
    """The texts of several ranks' files, whose ordinals are counted on: `parts[k]` has those from `first[k]` on.

    `first`: int64[ranks] ascending.
    """

    parts: list[TextIndex]
    first: I64

    def read_entry(self, ordinal: int, parse: Callable[[bytes], list[dict[str, Any]]]) -> dict[str, Any]:
        """As `TextIndex.entry`."""
        part = int(np.searchsorted(self.first, ordinal, side="right")) - 1
        return self.parts[part].read_entry(ordinal - int(self.first[part]), parse)


def decompress_block(block: bytes) -> bytes:
    """The text of one stored block."""
    from torchprof_tui.trace.sources import gzip_codec

    return gzip_codec.decompress(block)
