"""Text as what repeats and what does not: the bytes between its numbers, and the numbers.

A *run* is an unbroken sequence of digits. A text's *skeleton* is the text with every run, whatever its length, replaced
by one MARK. Both come from a few passes over all bytes at once; the value of a run is arithmetic on the eight-byte
words that end where it ends.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tui.trace.arrays import I64

MARK = b"\x01"
"""Stands for a run. No text that is valid JSON holds this byte."""

MOST_DIGITS = 16
"""Digits of the longest run whose value can be asked for: two words."""

_MARK = MARK[0]
_DIGITS = b"0123456789"
_PAD = b" " * MOST_DIGITS
"""Before the text: a word that ends in the first run must begin inside the buffer."""

U64 = npt.NDArray[np.uint64]


class Runs:
    """The r runs of one text. `start`, `end` int64[r]: offsets into the text, ascending.

    `padded` is the text with room before it; what is said of offsets is said of the text itself.
    """

    def __init__(self, text: bytes | memoryview) -> None:
        self.padded = b"".join((_PAD, text, b" "))
        data = np.frombuffer(self.padded, np.uint8)
        digit = (data - np.uint8(ord("0"))) < 10
        edges = np.flatnonzero(digit[1:] != digit[:-1])
        edges -= MOST_DIGITS - 1
        self.start: I64 = edges[::2].copy()
        self.end: I64 = edges[1::2].copy()
        self._data = data[MOST_DIGITS:]
        # _words[k]: the eight bytes before offset k + 8 - MOST_DIGITS, wherever that is in memory.
        self._words = np.ndarray((len(data) - 7,), np.dtype("<u8"), self.padded, 0, (1,))

    def __len__(self) -> int:
        return len(self.start)

    def skeleton(self) -> bytes:
        """`padded`, with each run replaced by one MARK; the text must hold none."""
        marked = np.frombuffer(self.padded, np.uint8).copy()
        marked[MOST_DIGITS:][self.start] = _MARK
        skeleton: bytes = marked.tobytes().translate(None, _DIGITS)
        return skeleton

    def text(self, begin: int, end: int) -> bytes:
        """A part of the text."""
        return self.padded[MOST_DIGITS + begin : MOST_DIGITS + end]

    def words(self, end: I64, digits: I64) -> U64:
        """uint64[k]: up to eight digits that end at these offsets, the first in the lowest byte that is not 0."""
        foreign = ((8 - digits) << 3).view(np.uint64)
        word: U64 = self._words[end + (MOST_DIGITS - 8)]
        word >>= foreign
        word <<= foreign
        return word

    def values(self, end: I64, digits: I64) -> I64:
        """int64[k]: the numbers of that many digits, at most MOST_DIGITS, that end at these offsets."""
        value = _value(self.words(end, np.minimum(digits, 8)))
        long = np.flatnonzero(digits > 8)
        if len(long):
            value[long] += 100_000_000 * _value(self.words(end[long] - 8, digits[long] - 8))
        return value

    def longer_than(self, digits: int) -> I64:
        """The runs of more digits."""
        return np.flatnonzero(self.end - self.start > digits)

    def leading_zero(self) -> I64:
        """The runs of several digits of which the first is 0, those behind a point left out."""
        several = np.flatnonzero(self._data[self.start] == ord("0"))
        several = several[self.end[several] - self.start[several] > 1]
        before = np.maximum(self.start[several] - 1, 0)
        found: I64 = several[self._data[before] != ord(".")]
        return found


def _value(word: U64) -> I64:
    """int64[k] of eight digits in each word, 0 for the missing ones: pairs, then fours, then all eight at once."""
    word &= np.uint64(0x0F0F0F0F0F0F0F0F)
    word *= np.uint64(10 << 8 | 1)
    word >>= np.uint64(8)
    word &= np.uint64(0x00FF00FF00FF00FF)
    word *= np.uint64(100 << 16 | 1)
    word >>= np.uint64(16)
    word &= np.uint64(0x0000FFFF0000FFFF)
    word *= np.uint64(10_000 << 32 | 1)
    word >>= np.uint64(32)
    return word.view(np.int64)
