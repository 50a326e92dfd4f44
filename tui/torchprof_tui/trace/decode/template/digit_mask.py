"""Text as what repeats and what does not: its outline, and the numbers in it.

An *outline* is a text with every digit replaced by a 0: still text that reads like the original, and one that repeats
where only numbers differ. A few passes of the processor's widest instructions over all bytes make it, block by block;
they leave the value of every digit behind. Two texts of one outline have their numbers at the same places, so a number
is arithmetic on a word of eight such values: the one that ends where the number does, put together from two that begin
at multiples of eight, because a gather at odd addresses takes several times as long as both.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from torchprof_tui.trace.core.arrays import I64, U8

MAX_DIGITS = 16
"""Digits of the longest number whose value can be asked for: two words."""

WORD_BYTES = 8

_PADDING_BYTES = 2 * WORD_BYTES
"""Bytes before the text and behind it: the two words that a number is read from may begin before the text, or end
behind it."""

_BLOCK_BYTES = 1 << 16
"""Bytes that are looked at together: small enough that all that is made of them stays near the processor."""

_UNUSED_BITS = np.array([max(WORD_BYTES - digits, 0) << 3 for digits in range(MAX_DIGITS + 1)], np.uint64)
"""Bits of a word that lie before a number of so many digits."""

_ZERO = np.uint8(ord("0"))
_NINE = np.uint8(9)
_POINT = ord(".")

U64 = npt.NDArray[np.uint64]


class DigitMask:
    """Texts, one after the other."""

    def __init__(self) -> None:
        # Kept from text to text: the kernel takes longer to hand out fresh memory than all of the arithmetic.
        self._masked: U8 = np.empty(1 << 16, np.uint8)
        self._digit_values: U8 = np.zeros(1 << 16, np.uint8)
        self._non_digit: U8 = np.empty(_BLOCK_BYTES + 2, np.uint8)
        self._is_zero: U8 = np.empty(_BLOCK_BYTES, np.uint8)
        self._is_run_start: U8 = np.empty(_BLOCK_BYTES, np.uint8)

    def mask_digits(self, text: bytes | memoryview) -> tuple[bytes, I64]:
        """The text with every digit replaced by a 0; and the offsets of every 0 that begins a run of several digits,
        those behind a point left out. A text's first byte is not looked at for the latter.

        From here on, values are those of this text."""
        self._data: U8 = np.frombuffer(text, np.uint8)
        if len(text) > len(self._masked):
            self._masked = np.empty(len(text), np.uint8)
        if len(text) + 2 * _PADDING_BYTES > len(self._digit_values):
            self._digit_values = np.zeros((len(text) // WORD_BYTES + 1) * WORD_BYTES + 2 * _PADDING_BYTES, np.uint8)
        self._words: U64 = self._digit_values.view("<u8")
        outline = self._masked[: len(text)]
        zeros = [
            self._mask_block(begin, outline[begin : begin + _BLOCK_BYTES])
            for begin in range(0, len(outline), _BLOCK_BYTES)
        ]
        before = np.concatenate(zeros)
        return outline.tobytes(), before[self._data[before] != _POINT] + 1

    def _mask_block(self, begin: int, outline: U8) -> I64:
        """Fill in the outline of a block; the offsets before every 0 that begins a run. (`np.maximum` and boolean
        indexing would say it in fewer words, at ten times the cost.)"""
        data = self._data[begin : begin + _BLOCK_BYTES + 2]
        low, foreign = self._digit_values[_PADDING_BYTES + begin :][: len(data)], self._non_digit[: len(data)]
        np.subtract(data, _ZERO, out=low)  # digits are 0 to 9 now, and everything else is more
        np.greater(low, _NINE, out=foreign.view(np.bool_))
        np.multiply(low[: len(outline)], foreign[: len(outline)], out=outline)
        outline += _ZERO
        zero, first = self._is_zero[: max(len(data) - 2, 0)], self._is_run_start[: max(len(data) - 2, 0)]
        np.equal(low[1:-1], 0, out=zero.view(np.bool_))
        np.greater(foreign[:-2], foreign[2:], out=first.view(np.bool_))  # no digit before it, but one after it
        zero &= first
        return np.flatnonzero(zero.view(np.bool_)) + begin

    def read_values(self, end: I64, digits: U8) -> I64:
        """int64[k]: the numbers of that many digits, at most MOST_DIGITS, that end at these offsets."""
        value = _words_to_integers(self._load_words(end, digits))
        long = np.flatnonzero(digits > WORD_BYTES)
        if len(long):
            value[long] += 100_000_000 * _words_to_integers(
                self._load_words(end[long] - WORD_BYTES, digits[long] - WORD_BYTES)
            )
        return value

    def read_hash_words(self, end: I64, digits: U8) -> tuple[U64, I64, U64]:
        """What tells numbers apart, 07 from 7 too: uint64[k] for the same numbers, made of their last eight digits; the
        places, int64[m], of those that have more; and uint64[m] made of their digits before the last eight."""
        last = self._load_words(end, digits)
        long = np.flatnonzero(digits > WORD_BYTES)
        before = self._load_words(end[long] - WORD_BYTES, digits[long] - WORD_BYTES) if len(long) else last[:0]
        last |= (digits & 15).astype(np.uint64) << np.uint64(4)  # a digit has four bits of a byte
        return last, long, before

    def _load_words(self, end: I64, digits: U8) -> U64:
        """uint64[k]: the values of up to eight digits that end at these offsets, a byte each, the last in the highest
        byte, 0 in the others."""
        end = end + _PADDING_BYTES
        place = end >> 3
        bits = ((end & 7) << 3).view(np.uint64)
        word = self._words.take(place)
        word <<= np.uint64(1)
        word <<= np.uint64(63) - bits  # a shift by 64 is none
        place -= 1
        word |= self._words.take(place) >> bits
        foreign = _UNUSED_BITS[digits]
        word >>= foreign
        word <<= foreign
        return word


def _words_to_integers(word: U64) -> I64:
    """int64[k] of eight digits in each word, 0 for the missing ones: pairs, then fours, then all eight at once."""
    word *= np.uint64(10 << 8 | 1)
    word >>= np.uint64(8)
    word &= np.uint64(0x00FF00FF00FF00FF)
    word *= np.uint64(100 << 16 | 1)
    word >>= np.uint64(16)
    word &= np.uint64(0x0000FFFF0000FFFF)
    word *= np.uint64(10_000 << 32 | 1)
    word >>= np.uint64(32)
    return word.view(np.int64)
