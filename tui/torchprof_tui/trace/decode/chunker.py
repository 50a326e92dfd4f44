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
from torchprof_tui.trace.json_text.repair import readable
from torchprof_tui.trace.json_text.salvage import Salvage, cut_after, lead_of, salvage
from torchprof_tui.trace.json_text.scan import scan

CHUNK = 256 * 1024
"""Bytes of text decoded at a time: small enough that the dicts die young and in the processor's cache."""

_MAY_BE_WHOLE = 1 << 20
"""Bytes without an end of an entry that may still be one whole entry; real ones are below a few hundred KB."""

LARGEST_ENTRY = 16 << 20
"""An entry longer than this is given up: text without an end must not fill the memory."""

_TOGETHER = 4
"""Chunks that are offered to a taker at once: it works on arrays, and longer ones cost less a byte."""

_LONGEST_PAUSE = 64
"""Chunks after which a taker that keeps refusing is asked again, at the most."""


class Window:
    """A stream of blocks, seen through a buffer that slides over it. `text[at:]` is what is not yet used.

    `base`: where the blocks begin in the whole text.
    """

    def __init__(self, blocks: Iterator[bytes], base: int = 0) -> None:
        self.text = b""
        self.at = 0
        self.base = base  # where `text` begins in the whole
        self.ended = False
        self._blocks = blocks

    def jump(self, base: int, text: bytes) -> None:
        """Stand at another place of the whole text, of which this is all the rest."""
        self.text, self.at, self.base, self.ended = text, 0, base, True

    @property
    def offset(self) -> int:
        """Where `at` lies in the whole text."""
        return self.base + self.at

    def fill(self, size: int) -> None:
        """Hold at least `size` unused bytes, or all that are left."""
        held = len(self.text) - self.at
        if held >= size or self.ended:
            return
        parts = [self.text[self.at :]]
        while held < size:
            block = next(self._blocks, None)
            if block is None:
                self.ended = True
                break
            parts.append(block)
            held += len(block)
        self.base += self.at
        self.at = 0
        self.text = b"".join(parts)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole entries: `text` as it stands in the file at `offset`, without what separates it from its neighbours.

    `salvage` tells what it took to read it, None where it simply parsed.
    """

    offset: int
    text: bytes
    entries: list[Any]
    salvage: Salvage | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """A chunk that a `Taker` has read: how many entries it held."""

    offset: int
    text: memoryview
    entries: int


class Taker(Protocol):
    """Reads plain chunks itself, and faster."""

    def take(self, text: memoryview, between: bytes) -> I64 | None:
        """Take whole entries, `between` between two of them. Where they begin in the text; None: refused.

        What is taken would have parsed; what is refused has changed nothing.
        """
        ...


class Entries:
    """The entries of the array that begins at the window's place, chunk by chunk; then the window stands behind it.

    After the last chunk: `closed` tells whether its bracket was there, `comma` whether a comma stood before that,
    `partial` where an entry begins that the file does not finish (-1 for none).
    """

    def __init__(self, window: Window, size: int = CHUNK, taker: Taker | None = None) -> None:
        self.closed = False
        self.comma = False
        self.partial = -1
        self._window = window
        self._size = size
        self._taker = taker
        self._refused = 0  # how often in a row the taker refused
        self._pause = 0  # for how many chunks it is not asked
        self._inside = False  # whether the last scan met no end of an entry: it may be a large one
        self._between = b""  # what stands between two entries, as far as it is known
        self._some = False  # whether an entry has been met: a comma alone is no comma too many

    def __iter__(self) -> Iterator[Chunk | Taken]:
        window, size = self._window, self._size
        while True:
            for taken in self._taken(size):
                self._some = True
                yield taken
            window.fill(size + 1)
            chunk = self._guessed(size) or self._scanned(size) or self._damaged(size)
            if chunk is not None:
                size = self._size
                if chunk.text:
                    self._some = True
                    yield chunk
            if self.closed or (window.ended and window.at >= len(window.text)):
                return
            if chunk is None:
                size *= 2  # a large entry

    def _taken(self, size: int) -> Iterator[Taken]:
        """The chunks that the taker takes, from here on, cut exactly where `_guessed` would have cut them."""
        window = self._window
        while self._taker is not None and self._between and size == self._size:
            if self._pause:
                self._pause -= 1
                return
            window.fill(_TOGETHER * size + 1)
            cuts = self._cuts(size)
            begins = self._offer(cuts)
            if begins is None and len(cuts) > 1:
                cuts = cuts[:1]  # one of them is not plain: the first may be, alone
                begins = self._offer(cuts)
            if begins is None:
                self._pause = min((1 << self._refused) - 1, _LONGEST_PAUSE)
                self._refused += 1
                return
            self._refused = 0
            base, first = window.at, 0
            for cut in cuts:
                last = int(np.searchsorted(begins, cut - base))
                taken = Taken(window.offset, memoryview(window.text)[window.at : cut], last - first)
                window.at, first = cut + 1, last
                yield taken

    def _offer(self, cuts: list[int]) -> I64 | None:
        if not cuts or self._taker is None:
            return None
        return self._taker.take(memoryview(self._window.text)[self._window.at : cuts[-1]], self._between)

    def _cuts(self, size: int) -> list[int]:
        """Where the next few chunks would end by a guess."""
        window = self._window
        at = window.at
        cuts: list[int] = []
        while len(cuts) < _TOGETHER:
            cut = window.text.rfind(self._between, at, at + size)
            if cut <= at:
                break
            cuts.append(cut)
            at = cut + 1
        return cuts

    def _guessed(self, size: int) -> Chunk | None:
        window = self._window
        if not self._between:
            return None
        cut = window.text.rfind(self._between, window.at, window.at + size)
        return self._proven(cut) if cut > 0 else None

    def _scanned(self, size: int) -> Chunk | None:
        window = self._window
        text = window.text[window.at : window.at + size]
        if text.endswith(b"\\"):
            text = text.rstrip(b"\\")
        found = scan(text)
        self._inside = found.close < 0 and not len(found.commas)
        if found.close >= 0 and text.startswith(b"]", found.close):
            return self._last(window.at + found.close)
        if not len(found.commas):
            return None
        cut = window.at + int(found.commas[-1])
        chunk = self._proven(cut)
        if chunk is not None:
            lead = lead_of(window.text, window.at)
            self._between = b"," + lead if lead else b""
        return chunk

    def _proven(self, cut: int) -> Chunk | None:
        """The chunk up to a comma, if it parses and holds anything."""
        window = self._window
        text = window.text[window.at : cut]
        entries = readable(text)
        if not entries:
            return None
        chunk = Chunk(window.offset, text, entries)
        window.at = cut + 1
        return chunk

    def _last(self, close: int) -> Chunk | None:
        """The chunk up to the closing bracket, if it parses, with or without a comma too many."""
        window = self._window
        text = window.text[window.at : close].rstrip()
        comma = text.endswith(b",") or (self._some and not text)
        entries = readable(text.removesuffix(b","))
        if entries is None:
            return None
        chunk = Chunk(window.offset, text.removesuffix(b","), entries)
        self.closed, self.comma = True, comma
        window.at = close + 1
        return chunk

    def _damaged(self, size: int) -> Chunk | None:
        """What the window holds up to the last place that looks like one between entries, taken apart.

        Up to the end of the file, where that is in the window: then the closing bracket is looked for, and an entry
        that the file does not finish. None where a larger window may show more.
        """
        window = self._window
        text = window.text[window.at : window.at + size]
        final = window.ended and window.at + size >= len(window.text)
        given_up = size > LARGEST_ENTRY
        if not final:
            if self._inside and size <= _MAY_BE_WHOLE:
                return None
            cut = cut_after(text)
            if cut > 0:
                text = text[:cut]
            elif not given_up:
                return None
        found = salvage(text)
        used = len(text) + (not final)
        if found.close >= 0:
            self.closed, used = True, found.close + 1
            text = text[: found.close]
            found = salvage(text)
        elif found.unreadable and found.unreadable[-1][1] == len(text) and (final or not given_up):
            start = found.unreadable[-1][0]
            if final:
                self.partial = window.offset + start
            elif not start:
                return None
            else:
                used = start
            text = text[: max(start - 1, 0)]
            found = salvage(text)
        chunk = Chunk(window.offset, text, found.values, found)
        window.at += used
        return chunk
