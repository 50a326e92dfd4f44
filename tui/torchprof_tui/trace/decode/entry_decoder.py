"""The entries of one list, chunk by chunk, into columns; and where the text of each chunk lies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.growable_array import Fill
from torchprof_tui.trace.core.problems import UNREADABLE_ENTRY, Tally, excerpt
from torchprof_tui.trace.decode.chunker import Chunk, Entries, Taken, Window
from torchprof_tui.trace.decode.column_builder import Columns, Part
from torchprof_tui.trace.decode.template.template_decoder import ByteScan
from torchprof_tui.trace.text.block_writer import BlockWriter
from torchprof_tui.trace.text.gzip_text import WholeText
from torchprof_tui.trace.text.text_index import TextIndex


@dataclass(frozen=True, slots=True)
class End:
    """How a list ended: whether its bracket was there, and a comma too many before it; where an entry begins that the
    file does not finish (-1: none). `parsed`: whether the last of its entries simply parsed."""

    closed: bool
    comma: bool
    partial: int
    parsed: bool

    @property
    def clean(self) -> bool:
        """Whether the text ended behind a comma, between two entries."""
        return self.parsed and not self.closed and self.partial < 0


@dataclass(frozen=True, slots=True)
class ReadPart:
    """What was read of a list from its middle on, but for the columns. c chunks: as in TextIndex, `length` those of the
    stored blocks."""

    columns: Part
    first: I64
    offset: I64
    length: I64
    unreadable: int


class EntryReader:
    """Reads lists that begin where `window` stands, one after the other. `told` is called after every chunk.

    `writer`: where the text is kept that cannot be read again in place. `mended`: whether something was damaged.
    """

    def __init__(
        self,
        window: Window,
        tally: Tally,
        chunk_size: int,
        scan: bool,
        writer: BlockWriter | None,
        told: Callable[[int], None],
    ) -> None:
        self.columns = Columns(tally)
        self.unreadable = 0
        self.entries = 0
        self.mended = False
        self._window = window
        self._tally = tally
        self._chunk_size = chunk_size
        self._scan = ByteScan(self.columns) if scan else None
        self._writer = writer
        self._told = told
        self._first: list[int] = []
        self._offset: list[int] = []
        self._length: list[int] = []

    @property
    def nothing(self) -> bool:
        """Whether no entry has turned up yet, readable or not."""
        return not (len(self.columns) or self.unreadable)

    def read(self) -> End:
        """Read a list; the window then stands behind it."""
        entries = Entries(self._window, self._chunk_size, self._scan)
        parsed = False
        for chunk in entries:
            self._add(chunk)
            parsed = isinstance(chunk, Taken) or chunk.salvage is None
        return End(entries.closed, entries.comma, entries.partial, parsed)

    def _add(self, chunk: Chunk | Taken) -> None:
        if isinstance(chunk, Chunk) and chunk.salvage is not None:
            self._tell(chunk)
        self._first.append(self.entries)
        self._offset.append(chunk.offset)
        self._length.append(len(chunk.text))
        if self._writer is not None:
            self._writer.put(chunk.text)
        if isinstance(chunk, Taken):
            self.entries += chunk.entries
        else:
            self.columns.add(chunk.entries, chunk.text)
            self.entries = len(self.columns)
        self._told(self.entries)

    def _tell(self, chunk: Chunk) -> None:
        assert chunk.salvage is not None
        self.mended |= bool(chunk.salvage.repairs or chunk.salvage.unreadable)
        for kind, start in chunk.salvage.repairs:
            self._tally.add(kind, _place(chunk, start))
        for start, _ in chunk.salvage.unreadable:
            self._tally.add(UNREADABLE_ENTRY, _place(chunk, start))
        self.unreadable += len(chunk.salvage.unreadable)

    def part(self) -> ReadPart:
        """All that was read, for another reader to `join`; nothing can be read any more."""
        if self._writer is not None:
            self._writer.close()
        return ReadPart(
            self.columns.part(),
            np.array(self._first, np.int64),
            np.array(self._offset, np.int64),
            np.array(self._length if self._writer is None else self._writer.lengths, np.int64),
            self.unreadable,
        )

    def join(self, part: ReadPart, fill: Fill, blocks: Path | None) -> None:
        """Append what another reader has read behind our last entry; `fill` fills in its columns, and `blocks` is where
        it kept the text, if it did."""
        self._first += (part.first + self.entries).tolist()
        self._offset += part.offset.tolist()
        self._length += part.length.tolist()
        if self._writer is not None and blocks is not None:
            self._writer.append(blocks, part.length.tolist())
        self.columns.join(part.columns, fill)
        self.unreadable += part.unreadable
        self.entries = len(self.columns)

    def text_index(self, path: Path, whole: WholeText | None) -> TextIndex:
        """Where the text lies: in `path`, or in `whole` as long as that is not taken apart."""
        length, offset = self._length, self._offset
        if self._writer is not None:
            self._writer.close()
            length = self._writer.lengths
            offset = [0, *np.cumsum(length, dtype=np.int64).tolist()][:-1]
        return TextIndex(
            path=path,
            compressed=self._writer is not None or whole is not None,
            first=np.array(self._first, np.int64),
            offset=np.array(offset, np.int64),
            length=np.array(length, np.int64),
            whole=whole,
        )


def _place(chunk: Chunk, start: int) -> str:
    return f"at byte {chunk.offset + start}: {excerpt(chunk.text[start : start + 1000])}"
