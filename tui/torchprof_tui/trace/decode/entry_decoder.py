"""Decode the entries of a JSON list, chunk by chunk, into columns, and index where the text of each chunk is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from torchprof_tui.trace.core.arrays import I64, U32, ArrayFiller
from torchprof_tui.trace.core.column_file import crc32
from torchprof_tui.trace.core.problems import UNREADABLE_ENTRY, ProblemTally, excerpt
from torchprof_tui.trace.decode.chunker import Chunk, Chunker, DecodedChunk, TextWindow
from torchprof_tui.trace.decode.column_builder import ColumnBuilder, ColumnsPart
from torchprof_tui.trace.decode.template.template_decoder import TemplateDecoder
from torchprof_tui.trace.text.block_text import BlockText, BlockWriter, FileText, PlainText
from torchprof_tui.trace.text.gzip_text import GzipFileVersion, GzipText


@dataclass(frozen=True, slots=True)
class ListEnd:
    """How a list ended.

    `closed`: its bracket was found. `trailing_comma`: a comma stood before it. `partial_offset`: where an entry begins
    that the file does not finish (-1: none). `last_chunk_parsed`: the last chunk parsed without repairs.
    """

    closed: bool
    trailing_comma: bool
    partial_offset: int
    last_chunk_parsed: bool

    @property
    def ends_between_entries(self) -> bool:
        """Whether the text ended after a comma, between two entries."""
        return self.last_chunk_parsed and not self.closed and self.partial_offset < 0


@dataclass(frozen=True, slots=True)
class DecodedPart:
    """The part of a list that another process decoded, without its columns.

    `first`, `offset`, `length`, `checksum`: of its chunks, as in FileText; the last two are those of the stored blocks.
    """

    columns: ColumnsPart
    first: I64
    offset: I64
    length: I64
    checksum: U32
    unreadable: int


class EntryDecoder:
    """Decodes lists that begin at the position of `window`, one after the other.

    `report` is called after every chunk with the number of entries. `block_writer` stores text that cannot be read
    again in place. `damaged`: whether an entry was repaired or could not be read.
    """

    def __init__(
        self,
        window: TextWindow,
        tally: ProblemTally,
        chunk_size: int,
        use_templates: bool,
        block_writer: BlockWriter | None,
        report: Callable[[int], None],
    ) -> None:
        self.columns = ColumnBuilder(tally)
        self.unreadable = 0
        self.entry_count = 0
        self.damaged = False
        self._window = window
        self._tally = tally
        self._chunk_size = chunk_size
        self._template_decoder = TemplateDecoder(self.columns) if use_templates else None
        self._block_writer = block_writer
        self._report = report
        self._first_ordinals: list[int] = []
        self._offsets: list[int] = []
        self._lengths: list[int] = []
        self._checksums: list[int] = []

    @property
    def is_empty(self) -> bool:
        """Whether there was no entry so far, readable or not."""
        return not (len(self.columns) or self.unreadable)

    def decode_list(self) -> ListEnd:
        """Decode a list and leave the window after it."""
        chunker = Chunker(self._window, self._chunk_size, self._template_decoder)
        parsed = False
        for chunk in chunker:
            self._add_chunk(chunk)
            parsed = isinstance(chunk, DecodedChunk) or chunk.salvage is None
        return ListEnd(chunker.closed, chunker.trailing_comma, chunker.partial_offset, parsed)

    def _add_chunk(self, chunk: Chunk | DecodedChunk) -> None:
        if isinstance(chunk, Chunk) and chunk.salvage is not None:
            self._report_damage(chunk)
        self._first_ordinals.append(self.entry_count)
        self._offsets.append(chunk.offset)
        self._lengths.append(len(chunk.text))
        if self._block_writer is None:
            self._checksums.append(crc32(chunk.text))
        else:
            self._block_writer.put(chunk.text)
        count = self.entry_count
        if isinstance(chunk, DecodedChunk):
            self.entry_count += chunk.entry_count
        else:
            self.columns.add_chunk(chunk.entries, chunk.text)
            self.entry_count = len(self.columns)
        if self.entry_count > count:
            self._window.mark_events()
        self._report(self.entry_count)

    def _report_damage(self, chunk: Chunk) -> None:
        assert chunk.salvage is not None
        self.damaged |= bool(chunk.salvage.repairs or chunk.salvage.unreadable)
        for kind, start in chunk.salvage.repairs:
            self._tally.add(kind, _format_position(chunk, start))
        for start, _ in chunk.salvage.unreadable:
            self._tally.add(UNREADABLE_ENTRY, _format_position(chunk, start))
        self.unreadable += len(chunk.salvage.unreadable)

    def finish_part(self) -> DecodedPart:
        """Return what was decoded, for `append_part` in another process; nothing can be decoded afterwards."""
        writer = self._block_writer
        if writer is not None:
            writer.close()
        return DecodedPart(
            self.columns.finish_part(),
            np.array(self._first_ordinals, np.int64),
            np.array(self._offsets, np.int64),
            np.array(self._lengths if writer is None else writer.lengths, np.int64),
            np.array(self._checksums if writer is None else writer.checksums, np.uint32),
            self.unreadable,
        )

    def append_part(self, part: DecodedPart, fill: ArrayFiller, blocks_path: Path | None) -> None:
        """Append the part that another process decoded after our last entry.

        `fill` fills in its columns; `blocks_path` is the file in which it stored the text, if it did.
        """
        self._first_ordinals += (part.first + self.entry_count).tolist()
        self._offsets += part.offset.tolist()
        self._lengths += part.length.tolist()
        self._checksums += part.checksum.tolist()
        if self._block_writer is not None and blocks_path is not None:
            self._block_writer.append_blocks(blocks_path, part.length.tolist(), part.checksum.tolist())
        self.columns.append_part(part.columns, fill)
        self.unreadable += part.unreadable
        self.entry_count = len(self.columns)

    def text_index(self, path: Path, gzip_file: GzipFileVersion | None) -> FileText:
        """Index the text: in `gzip_file` until its blocks are written to `path`, else in `path`."""
        first = np.array(self._first_ordinals, np.int64)
        if self._block_writer is not None:
            writer = self._block_writer
            writer.close()
            length, checksum = np.array(writer.lengths, np.int64), np.array(writer.checksums, np.uint32)
            return BlockText.from_lengths(path, first, length, checksum)
        offset, length = np.array(self._offsets, np.int64), np.array(self._lengths, np.int64)
        checksum = np.array(self._checksums, np.uint32)
        if gzip_file is not None:
            return GzipText(gzip_file.path, first, offset, length, checksum, gzip_file.fingerprint, path)
        return PlainText(path, first, offset, length, checksum)


def _format_position(chunk: Chunk, start: int) -> str:
    return f"at byte {chunk.offset + start}: {excerpt(chunk.text[start : start + 1000])}"
