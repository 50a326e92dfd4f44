"""Separate a text into its layout, which repeats, and the numbers in it.

A *layout* is a text with every digit replaced by a 0: texts in which only numbers differ, with as many digits, have the
same layout. A few SIMD passes over all bytes compute it, block by block, and also store the value of every digit. Two
texts of one layout have their numbers at the same offsets, so a number is read by arithmetic on a word of eight digit
values: the word that ends where the number ends, assembled from two words at multiples of eight, because a gather at
unaligned addresses takes several times as long as both.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from torchprof_tui.trace.core.arrays import I64, U8

MAX_DIGITS = 16
"""Digits of the longest number that can be read: two words."""

WORD_BYTES = 8

_PADDING_BYTES = 2 * WORD_BYTES
"""Bytes before and after the text: the two words that a number is read from may begin before it, or end after it."""

_BLOCK_BYTES = 1 << 16
"""Bytes that are processed at a time: so few that all intermediate arrays stay in the processor's cache."""

_UNUSED_BITS = np.array([max(WORD_BYTES - digits, 0) << 3 for digits in range(MAX_DIGITS + 1)], np.uint64)
"""Bits of a word before a number, by its number of digits."""

_ZERO = np.uint8(ord("0"))
_NINE = np.uint8(9)
_POINT = ord(".")

U64 = npt.NDArray[np.uint64]


class DigitMask:
    """Masks the digits of one text after another, and reads the numbers of the current one."""

    def __init__(self) -> None:
        # The buffers are reused: page faults of fresh memory take longer than all of the arithmetic.
        self._masked: U8 = np.empty(1 << 16, np.uint8)
        self._digit_values: U8 = np.zeros(1 << 16, np.uint8)
        self._non_digit: U8 = np.empty(_BLOCK_BYTES + 2, np.uint8)
        self._is_zero: U8 = np.empty(_BLOCK_BYTES, np.uint8)
        self._is_run_start: U8 = np.empty(_BLOCK_BYTES, np.uint8)

    def mask_digits(self, text: bytes | memoryview) -> tuple[bytes, I64]:
        """Return the layout of a text, and the offsets of the zeros that begin a run of several digits.

        Runs after a point are left out, and so is a run at the first byte. Numbers are read from this text afterwards.
        """
        self._data: U8 = np.frombuffer(text, np.uint8)
        if len(text) > len(self._masked):
            self._masked = np.empty(len(text), np.uint8)
        if len(text) + 2 * _PADDING_BYTES > len(self._digit_values):
            self._digit_values = np.zeros((len(text) // WORD_BYTES + 1) * WORD_BYTES + 2 * _PADDING_BYTES, np.uint8)
        self._words: U64 = self._digit_values.view("<u8")
        layout = self._masked[: len(text)]
        blocks = [
            self._mask_block(begin, layout[begin : begin + _BLOCK_BYTES])
            for begin in range(0, len(layout), _BLOCK_BYTES)
        ]
        before_zero = np.concatenate(blocks)
        return layout.tobytes(), before_zero[self._data[before_zero] != _POINT] + 1

    def _mask_block(self, begin: int, layout: U8) -> I64:
        """Fill in the layout of a block; return the offsets before every 0 that begins a run of several digits.

        `np.maximum` and boolean indexing would be shorter, and ten times slower.
        """
        data = self._data[begin : begin + _BLOCK_BYTES + 2]
        value, non_digit = self._digit_values[_PADDING_BYTES + begin :][: len(data)], self._non_digit[: len(data)]
        np.subtract(data, _ZERO, out=value)  # digits become 0 to 9, all other bytes are larger
        np.greater(value, _NINE, out=non_digit.view(np.bool_))
        np.multiply(value[: len(layout)], non_digit[: len(layout)], out=layout)
        layout += _ZERO
        zero, run_start = self._is_zero[: max(len(data) - 2, 0)], self._is_run_start[: max(len(data) - 2, 0)]
        np.equal(value[1:-1], 0, out=zero.view(np.bool_))
        np.greater(non_digit[:-2], non_digit[2:], out=run_start.view(np.bool_))  # no digit before it, but one after it
        zero &= run_start
        return np.flatnonzero(zero.view(np.bool_)) + begin

    def read_values(self, end: I64, digits: U8) -> I64:
        """Read the numbers of that many digits, at most MAX_DIGITS, that end at these offsets: int64[k]."""
        value = _words_to_integers(self._load_words(end, digits))
        long = np.flatnonzero(digits > WORD_BYTES)
        if len(long):
            value[long] += 100_000_000 * _words_to_integers(
                self._load_words(end[long] - WORD_BYTES, digits[long] - WORD_BYTES)
            )
        return value

    def read_hash_words(self, end: I64, digits: U8) -> tuple[U64, I64, U64]:
        """Read words that distinguish numbers, 07 from 7 too.

        Returns uint64[k] from the last eight digits of each number and its length; int64[m], the indices of the numbers
        that have more digits; and uint64[m] from the digits of those before the last eight.
        """
        last = self._load_words(end, digits)
        long = np.flatnonzero(digits > WORD_BYTES)
        leading = self._load_words(end[long] - WORD_BYTES, digits[long] - WORD_BYTES) if len(long) else last[:0]
        last |= (digits & 15).astype(np.uint64) << np.uint64(4)  # a digit uses the lower four bits of its byte
        return last, long, leading

    def _load_words(self, end: I64, digits: U8) -> U64:
        """Load the values of up to eight digits that end at these offsets: uint64[k].

        Each digit is a byte, the last one the highest byte; the unused bytes are 0.
        """
        end = end + _PADDING_BYTES
        index = end >> 3
        bits = ((end & 7) << 3).view(np.uint64)
        word = self._words.take(index)
        word <<= np.uint64(1)
        word <<= np.uint64(63) - bits  # in two steps, since shifting a word by 64 bits would not clear it
        index -= 1
        word |= self._words.take(index) >> bits
        unused = _UNUSED_BITS[digits]
        word >>= unused
        word <<= unused
        return word


def _words_to_integers(word: U64) -> I64:
    """Combine the eight digits of each word, 0 for missing ones: to pairs, then fours, then all eight: int64[k]."""
    word *= np.uint64(10 << 8 | 1)
    word >>= np.uint64(8)
    word &= np.uint64(0x00FF00FF00FF00FF)
    word *= np.uint64(100 << 16 | 1)
    word >>= np.uint64(16)
    word &= np.uint64(0x0000FFFF0000FFFF)
    word *= np.uint64(10_000 << 32 | 1)
    word >>= np.uint64(32)
    return word.view(np.int64)
