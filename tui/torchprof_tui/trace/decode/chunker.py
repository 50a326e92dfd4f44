"""Cuts the text of a JSON array into chunks of whole entries, for any layout, and proves every cut.

A chunk that begins where an entry begins, and that parses when brackets are put around it, ends where an entry
ends: the document's own parser would have met the same tokens and stand at the same depth. So a cut may be guessed.
The guess is the text that stands between two entries (`},\\n  {\\n    "` in Kineto's layout), looked for from the
end of the window backwards; where it fails, a scan that knows strings and depth finds the true one. Where no cut
lets the chunk parse, the text is damaged: it is cut at that same text between entries, and `salvage.py` takes the
chunk apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.json_text.repair import parse_values
from torchprof_tui.trace.json_text.salvage import SalvageResult, find_last_separator, match_entry_lead, salvage
from torchprof_tui.trace.json_text.scan import scan_structure

CHUNK_BYTES = 256 * 1024
"""Bytes of text decoded at a time: small enough that the dicts die young and in the processor's cache."""

_MAX_PLAUSIBLE_ENTRY_BYTES = 1 << 20
"""Bytes without an end of an entry that may still be one whole entry; real ones are below a few hundred KB."""

MAX_ENTRY_BYTES = 16 << 20
"""An entry longer than this is given up: text without an end must not fill the memory."""

_CHUNKS_PER_BATCH = 4
"""Chunks that are offered to a taker at once: it works on arrays, and longer ones cost less a byte."""

_MAX_SKIPPED_CHUNKS = 64
"""Chunks after which a taker that keeps refusing is asked again, at the most."""


class TextWindow:
    """A stream of blocks, seen through a buffer that slides over it. `text[at:]` is what is not yet used.

    `base`: where the blocks begin in the whole text.
    """

    def __init__(self, blocks: Iterator[bytes], base: int = 0) -> None:
        self.text = b""
        self.position = 0
        self.base = base  # where `text` begins in the whole
        self.ended = False
        self._blocks = blocks

    def jump(self, base: int, text: bytes) -> None:
        """Stand at another place of the whole text, of which this is all the rest."""
        self.text, self.position, self.base, self.ended = text, 0, base, True

    @property
    def offset(self) -> int:
        """Where `at` lies in the whole text."""
        return self.base + self.position

    def fill(self, size: int) -> None:
        """Hold at least `size` unused bytes, or all that are left."""
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
        self.base += self.position
        self.position = 0
        self.text = b"".join(parts)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole entries: `text` as it stands in the file at `offset`, without what separates it from its neighbours.

    `salvage` tells what it took to read it, None where it simply parsed.
    """

    offset: int
    text: bytes
    entries: list[Any]
    salvage: SalvageResult | None = None


@dataclass(frozen=True, slots=True)
class DecodedChunk:
    """A chunk that a `Taker` has read: how many entries it held."""

    offset: int
    text: memoryview
    entry_count: int


class FastDecoder(Protocol):
    """Reads plain chunks itself, and faster."""

    def try_decode(self, text: memoryview, separator: bytes) -> I64 | None:
        """Take whole entries, `between` between two of them. Where they begin in the text; None: refused.

        What is taken would have parsed; what is refused has changed nothing.
        """
        ...


class Chunker:
    """The entries of the array that begins at the window's place, chunk by chunk; then the window stands behind it.

    After the last chunk: `closed` tells whether its bracket was there, `comma` whether a comma stood before that,
    `partial` where an entry begins that the file does not finish (-1 for none).
    """

    def __init__(
        self, window: TextWindow, chunk_size: int = CHUNK_BYTES, fast_decoder: FastDecoder | None = None
    ) -> None:
        self.closed = False
        self.trailing_comma = False
        self.partial_offset = -1
        self._window = window
        self._chunk_size = chunk_size
        self._fast_decoder = fast_decoder
        self._refusal_count = 0  # how often in a row the taker refused
        self._skip_count = 0  # for how many chunks it is not asked
        self._inside_entry = False  # whether the last scan met no end of an entry: it may be a large one
        self._separator = b""  # what stands between two entries, as far as it is known
        self._has_entries = False  # whether an entry has been met: a comma alone is no comma too many

    def __iter__(self) -> Iterator[Chunk | DecodedChunk]:
        window, size = self._window, self._chunk_size
        while True:
            for taken in self._decode_fast(size):
                self._has_entries = True
                yield taken
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
        """The chunks that the taker takes, from here on, cut exactly where `_guessed` would have cut them."""
        window = self._window
        while self._fast_decoder is not None and self._separator and size == self._chunk_size:
            if self._skip_count:
                self._skip_count -= 1
                return
            window.fill(_CHUNKS_PER_BATCH * size + 1)
            cuts = self._guess_ends(size)
            begins = self._try_decode(cuts)
            if begins is None and len(cuts) > 1:
                cuts = cuts[:1]  # one of them is not plain: the first may be, alone
                begins = self._try_decode(cuts)
            if begins is None:
                self._skip_count = min((1 << self._refusal_count) - 1, _MAX_SKIPPED_CHUNKS)
                self._refusal_count += 1
                return
            self._refusal_count = 0
            base, first = window.position, 0
            for cut in cuts:
                last = int(np.searchsorted(begins, cut - base))
                taken = DecodedChunk(window.offset, memoryview(window.text)[window.position : cut], last - first)
                window.position, first = cut + 1, last
                yield taken

    def _try_decode(self, cuts: list[int]) -> I64 | None:
        if not cuts or self._fast_decoder is None:
            return None
        return self._fast_decoder.try_decode(
            memoryview(self._window.text)[self._window.position : cuts[-1]], self._separator
        )

    def _guess_ends(self, size: int) -> list[int]:
        """Where the next few chunks would end by a guess."""
        window = self._window
        at = window.position
        cuts: list[int] = []
        while len(cuts) < _CHUNKS_PER_BATCH:
            cut = window.text.rfind(self._separator, at, at + size)
            if cut <= at:
                break
            cuts.append(cut)
            at = cut + 1
        return cuts

    def _guess_chunk(self, size: int) -> Chunk | None:
        window = self._window
        if not self._separator:
            return None
        cut = window.text.rfind(self._separator, window.position, window.position + size)
        return self._parse_up_to(cut) if cut > 0 else None

    def _scan_chunk(self, size: int) -> Chunk | None:
        window = self._window
        text = window.text[window.position : window.position + size]
        if text.endswith(b"\\"):
            text = text.rstrip(b"\\")
        found = scan_structure(text)
        self._inside_entry = found.close_offset < 0 and not len(found.commas)
        if found.close_offset >= 0 and text.startswith(b"]", found.close_offset):
            return self._parse_last_chunk(window.position + found.close_offset)
        if not len(found.commas):
            return None
        cut = window.position + int(found.commas[-1])
        chunk = self._parse_up_to(cut)
        if chunk is not None:
            lead = match_entry_lead(window.text, window.position)
            self._separator = b"," + lead if lead else b""
        return chunk

    def _parse_up_to(self, cut: int) -> Chunk | None:
        """The chunk up to a comma, if it parses and holds anything."""
        window = self._window
        text = window.text[window.position : cut]
        entries = parse_values(text)
        if not entries:
            return None
        chunk = Chunk(window.offset, text, entries)
        window.position = cut + 1
        return chunk

    def _parse_last_chunk(self, close: int) -> Chunk | None:
        """The chunk up to the closing bracket, if it parses, with or without a comma too many."""
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
        """What the window holds up to the last place that looks like one between entries, taken apart.

        Up to the end of the file, where that is in the window: then the closing bracket is looked for, and an entry
        that the file does not finish. None where a larger window may show more.
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
        found = salvage(text)
        used = len(text) + (not final)
        if found.close_offset >= 0:
            self.closed, used = True, found.close_offset + 1
            text = text[: found.close_offset]
            found = salvage(text)
        elif found.unreadable and found.unreadable[-1][1] == len(text) and (final or not given_up):
            start = found.unreadable[-1][0]
            if final:
                self.partial_offset = window.offset + start
            elif not start:
                return None
            else:
                used = start
            text = text[: max(start - 1, 0)]
            found = salvage(text)
        chunk = Chunk(window.offset, text, found.values, found)
        window.position += used
        return chunk
