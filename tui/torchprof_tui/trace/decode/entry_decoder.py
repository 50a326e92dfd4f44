r"""Decode the entries of a JSON list, chunk by chunk, into columns, and index where the text of each chunk is stored.

The text is cut into chunks of whole entries, for any layout, and every cut is verified. A chunk that begins where an
entry begins, and that parses with brackets around it, ends where an entry ends: a parser of the whole document would
read the same tokens and be at the same depth. So a cut may be guessed. The guess is the last occurrence in the window
of the separator between two entries (`},\n  {\n    "` in Kineto's layout); if the chunk up to there does not
parse, a scan that tracks strings and depth finds the true end. If no cut yields a chunk that parses, the text is
damaged: it is cut at a separator as well, and `json_text/salvage.py` recovers the entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import I64, U32, ArrayFiller
from torchprof_tui.trace.core.column_file import crc32
from torchprof_tui.trace.core.problems import UNREADABLE_ENTRY, ProblemTally, excerpt
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.decode.column_builder import ColumnBuilder, ColumnsPart
from torchprof_tui.trace.decode.template.template_decoder import TemplateDecoder
from torchprof_tui.trace.json_text.repair import parse_values, scan_structure
from torchprof_tui.trace.json_text.salvage import SalvageResult, find_last_separator, match_entry_lead, salvage
from torchprof_tui.trace.sources.source import UNPACK_ALL_OPTION, Source
from torchprof_tui.trace.text.block_text import BlockText, BlockWriter, FileText, PlainText
from torchprof_tui.trace.text.gzip_text import GzipFileVersion, GzipText

MAX_STREAM_BYTES = 16 << 30  # text of a stream, which may have no end; the largest traces are some GB

MAX_STREAM_BYTES_WITHOUT_EVENT = 256 << 20
"""Text of a stream without a further event: top-level values above 64 MB are not read at all."""

MAX_FILE_BYTES_WITHOUT_EVENT = 4 << 30
"""Text of a local file without a further event: a sparse file may be larger than anything can be read."""


@record
class TextLimits:
    """Bytes of text after which reading stops: in all (None: any number), and since the last event."""

    total: int | None
    without_event: int

    def explain_stop(self, read: int, since_event: int) -> str:
        """Say why reading stops after `read` bytes, the last `since_event` without an event; "" where it goes on."""
        if since_event > self.without_event:
            return f"no event in {self.without_event >> 20:,} MiB of text; {UNPACK_ALL_OPTION} reads on"
        if self.total is not None and read > self.total:
            return f"more than {self.total >> 20:,} MiB of text; {UNPACK_ALL_OPTION} reads on"
        return ""


def choose_text_limits(source: Source) -> TextLimits | None:
    """Choose the limits of a source, None where the user wants all of it."""
    if source.unpack_all:
        return None
    if source.path is not None:
        return TextLimits(None, MAX_FILE_BYTES_WITHOUT_EVENT)
    return TextLimits(MAX_STREAM_BYTES, MAX_STREAM_BYTES_WITHOUT_EVENT)


CHUNK_BYTES = 256 * 1024
"""Bytes of text decoded at a time: so few that the dicts are freed while they are in the processor's cache."""

_MAX_PLAUSIBLE_ENTRY_BYTES = 1 << 20
"""Bytes without an end of an entry that may still be one entry; real entries are below a few hundred KB."""

MAX_ENTRY_BYTES = 16 << 20  # longer entries are given up, so that text without an end does not fill the memory
_CHUNKS_PER_BATCH = 4
"""Chunks that the fast decoder gets at once: it works on arrays, and longer arrays cost less per byte."""

_MAX_SKIPPED_CHUNKS = 64  # most chunks that are skipped before a fast decoder that keeps refusing is tried again


class TextWindow:
    """A sliding buffer over a stream of blocks. `text[position:]` is not used yet.

    `base`: the offset of `text` in the whole text; at first, that of the first block. `stop_reason`: why reading
    stopped at `limits`, before the end of the stream; "" if it did not. `events_end`: offset up to which events were
    read.
    """

    def __init__(self, blocks: Iterator[bytes], base: int = 0, limits: TextLimits | None = None) -> None:
        self.text = b""
        self.position = 0
        self.base = base
        self.ended = False
        self.stop_reason = ""
        self._blocks = blocks
        self._limits = limits
        self.events_end = base

    def jump(self, base: int, text: bytes) -> None:
        """Continue at offset `base` of the whole text, of which `text` is all the rest."""
        self.text, self.position, self.base, self.ended = text, 0, base, True

    @property
    def offset(self) -> int:
        """The offset of `position` in the whole text."""
        return self.base + self.position

    def fill(self, size: int) -> None:
        """Read blocks until at least `size` unused bytes are in the buffer, or all that are left."""
        held = len(self.text) - self.position
        if held >= size or self.ended:
            return
        parts = [self.text[self.position :]]
        while held < size:
            block = next(self._blocks, None)
            if block is None:
                self.ended = True
                break
            parts.append(block)
            held += len(block)
            if self._limits is not None:
                read = self.offset + held
                self.stop_reason = self._limits.explain_stop(read, read - self.events_end)
                if self.stop_reason:
                    self.ended = True
                    break
        self.base += self.position
        self.position = 0
        self.text = b"".join(parts)


@record
class Chunk:
    """Whole entries: `text` as in the file at `offset`, without the commas before and after it.

    `salvage`: the repairs that were needed to parse it, None if there were none.
    """

    offset: int
    text: bytes
    entries: list[Any]
    salvage: SalvageResult | None = None


@record
class DecodedChunk:
    """A chunk that the template decoder has decoded."""

    offset: int
    text: memoryview
    entry_count: int


class Chunker:
    """Iterates over the array at the window chunk by chunk, and leaves the window after it.

    After the last chunk: `closed` is whether its bracket was found, `trailing_comma` whether a comma stood before it,
    `partial_offset` where an entry begins that the file does not finish (-1: none).
    """

    def __init__(
        self, window: TextWindow, chunk_size: int = CHUNK_BYTES, fast_decoder: TemplateDecoder | None = None
    ) -> None:
        self.closed = False
        self.trailing_comma = False
        self.partial_offset = -1
        self._window = window
        self._chunk_size = chunk_size
        self._fast_decoder = fast_decoder
        self._refusal_count = 0  # consecutive refusals of the fast decoder
        self._skip_count = 0  # chunks for which it is not tried
        self._inside_entry = False  # the last scan found no end of an entry, which may be a large one
        self._separator = b""  # the text between two entries, b"" until it is known
        self._has_entries = False  # a comma before the first entry is not a trailing one

    def __iter__(self) -> Iterator[Chunk | DecodedChunk]:
        window, size = self._window, self._chunk_size
        while True:
            for decoded in self._decode_fast(size):
                self._has_entries = True
                yield decoded
            window.fill(size + 1)
            chunk = self._guess_chunk(size) or self._scan_chunk(size) or self._salvage_chunk(size)
            if chunk is not None:
                size = self._chunk_size
                if chunk.text:
                    self._has_entries = True
                    yield chunk
            if self.closed or (window.ended and window.position >= len(window.text)):
                return
            if chunk is None:
                size *= 2  # a large entry

    def _decode_fast(self, size: int) -> Iterator[DecodedChunk]:
        """Yield the chunks that the fast decoder accepts from here on, cut exactly where `_guess_chunk` would cut."""
        window = self._window
        while self._fast_decoder is not None and self._separator and size == self._chunk_size:
            if self._skip_count:
                self._skip_count -= 1
                return
            window.fill(_CHUNKS_PER_BATCH * size + 1)
            cuts: list[int] = []  # where the next few chunks may end
            start = window.position
            while len(cuts) < _CHUNKS_PER_BATCH:
                guess = window.text.rfind(self._separator, start, start + size)
                if guess <= start:
                    break
                cuts.append(guess)
                start = guess + 1
            begins = self._try_decode(cuts)
            if begins is None and len(cuts) > 1:
                cuts = cuts[:1]  # one of them is not plain; the first may be
                begins = self._try_decode(cuts)
            if begins is None:
                self._skip_count = min((1 << self._refusal_count) - 1, _MAX_SKIPPED_CHUNKS)
                self._refusal_count += 1
                return
            self._refusal_count = 0
            base, first = window.position, 0
            for cut in cuts:
                last = int(np.searchsorted(begins, cut - base))
                decoded = DecodedChunk(window.offset, memoryview(window.text)[window.position : cut], last - first)
                window.position, first = cut + 1, last
                yield decoded

    def _try_decode(self, cuts: list[int]) -> I64 | None:
        if not cuts or self._fast_decoder is None:
            return None
        return self._fast_decoder.try_decode(
            memoryview(self._window.text)[self._window.position : cuts[-1]], self._separator
        )

    def _guess_chunk(self, size: int) -> Chunk | None:
        window = self._window
        if not self._separator:
            return None
        cut = window.text.rfind(self._separator, window.position, window.position + size)
        return self._parse_up_to(cut) if cut > 0 else None

    def _scan_chunk(self, size: int) -> Chunk | None:
        window = self._window
        text = window.text[window.position : window.position + size]
        structure = scan_structure(text)
        self._inside_entry = structure.close_offset < 0 and not len(structure.commas)
        if structure.close_offset >= 0 and text.startswith(b"]", structure.close_offset):
            return self._parse_last_chunk(window.position + structure.close_offset)
        if not len(structure.commas):
            return None
        cut = window.position + int(structure.commas[-1])
        chunk = self._parse_up_to(cut)
        if chunk is not None:
            lead = match_entry_lead(window.text, window.position)
            self._separator = b"," + lead if lead else b""
        return chunk

    def _parse_up_to(self, cut: int) -> Chunk | None:
        """Parse the chunk up to a comma, None if it does not parse or holds no entry."""
        window = self._window
        text = window.text[window.position : cut]
        entries = parse_values(text)
        if not entries:
            return None
        chunk = Chunk(window.offset, text, entries)
        window.position = cut + 1
        return chunk

    def _parse_last_chunk(self, close: int) -> Chunk | None:
        """Parse the chunk up to the closing bracket, with or without a trailing comma, None if it does not parse."""
        window = self._window
        text = window.text[window.position : close].rstrip()
        comma = text.endswith(b",") or (self._has_entries and not text)
        entries = parse_values(text.removesuffix(b","))
        if entries is None:
            return None
        chunk = Chunk(window.offset, text.removesuffix(b","), entries)
        self.closed, self.trailing_comma = True, comma
        window.position = close + 1
        return chunk

    def _salvage_chunk(self, size: int) -> Chunk | None:
        """Salvage the text of the window up to the last separator between entries.

        If the end of the file is in the window, up to there; then also look for the closing bracket and for an entry
        that the file does not finish. None if a larger window may help.
        """
        window = self._window
        text = window.text[window.position : window.position + size]
        final = window.ended and window.position + size >= len(window.text)
        given_up = size > MAX_ENTRY_BYTES
        if not final:
            if self._inside_entry and size <= _MAX_PLAUSIBLE_ENTRY_BYTES:
                return None
            cut = find_last_separator(text)
            if cut > 0:
                text = text[:cut]
            elif not given_up:
                return None
        result = salvage(text)
        used = len(text) + (not final)
        if result.close_offset >= 0:
            self.closed, used = True, result.close_offset + 1
            text = text[: result.close_offset]
            result = salvage(text)
        elif result.unreadable and result.unreadable[-1][1] == len(text) and (final or not given_up):
            start = result.unreadable[-1][0]
            if final:
                self.partial_offset = window.offset + start
            elif not start:
                return None
            else:
                used = start
            text = text[: max(start - 1, 0)]
            result = salvage(text)
        chunk = Chunk(window.offset, text, result.values, result)
        window.position += used
        return chunk


@record
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


@record
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

    def decode_list(self) -> ListEnd:
        """Decode a list and leave the window after it."""
        chunker = Chunker(self._window, self._chunk_size, self._template_decoder)
        parsed = False
        for chunk in chunker:
            if isinstance(chunk, Chunk) and chunk.salvage is not None:
                self.damaged |= bool(chunk.salvage.repairs or chunk.salvage.unreadable)
                unreadable = [(UNREADABLE_ENTRY, start) for start, _ in chunk.salvage.unreadable]
                for kind, start in [*chunk.salvage.repairs, *unreadable]:
                    quoted = excerpt(chunk.text[start : start + 1000])
                    self._tally.add(kind, f"at byte {chunk.offset + start}: {quoted}")
                self.unreadable += len(unreadable)
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
                self._window.events_end = self._window.offset
            self._report(self.entry_count)
            parsed = isinstance(chunk, DecodedChunk) or chunk.salvage is None
        return ListEnd(chunker.closed, chunker.trailing_comma, chunker.partial_offset, parsed)

    def finish_part(self) -> DecodedPart:
        """Return what was decoded, for `append_part` in another process; nothing can be decoded afterwards."""
        return DecodedPart(self.columns.finish_part(), *self._finish_chunks(), self.unreadable)

    def _finish_chunks(self) -> tuple[I64, I64, I64, U32]:
        """Return `first`, `offset`, `length` and `checksum` of the chunks, as in FileText, once all text is written."""
        lengths, checksums = self._lengths, self._checksums
        if self._block_writer is not None:
            self._block_writer.close()
            lengths, checksums = self._block_writer.lengths, self._block_writer.checksums
        first, offset, length = (np.array(each, np.int64) for each in (self._first_ordinals, self._offsets, lengths))
        return first, offset, length, np.array(checksums, np.uint32)

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
        first, offset, length, checksum = self._finish_chunks()
        if self._block_writer is not None:
            return BlockText.from_lengths(path, first, length, checksum)
        if gzip_file is not None:
            return GzipText(gzip_file.path, first, offset, length, checksum, gzip_file.fingerprint, path)
        return PlainText(path, first, offset, length, checksum)
