"""What the outline of an entry says about every entry that has it: which of its bytes are which number.

A trace of a million entries has some hundred skeletons (`patterns.py`), and as numbers differ in length, some thousand
outlines (`digits.py`). Entries of one outline have each number at the same distance from their beginning, so one
look-up of an entry's outline in a dict tells all that there is to know of it but the numbers themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from torchprof_tui.trace.core.arrays import I32, U8, Bool
from torchprof_tui.trace.core.growable_array import Grown
from torchprof_tui.trace.decode.template.digit_mask import MOST_DIGITS
from torchprof_tui.trace.decode.template.templates import COLUMNS, DURATION, MARK, TIME, Pattern, learn

MOST_OUTLINES = 1 << 15
"""Outlines that are learnt, each in about 30 µs; a file with more is not made of repeating entries."""

_MOST_WHOLE = 18
"""Digits of an integer: more may not fit 64 bits."""

_MOST_BYTES = 1 << 24
"""Of an entry: a place has 25 bits for where a number ends in it. No entry of a plain chunk is nearly as long."""

_DECIMALS = 3
"""Of a time. Beyond are fractions of a nanosecond, which double and decimal round in different ways."""

FRACTION_OF = {TIME: len(COLUMNS), DURATION: len(COLUMNS) + 1}
"""Numbers besides COLUMNS: what stands behind the point of a time."""

KINDS = len(COLUMNS) + len(FRACTION_OF)

_SIGN, _END = 5, 6
"""The first bits of a place's parts: its digits (from bit 0 on), its sign, its end."""

_DIGITS = (1 << _SIGN) - 1

_RUN = re.compile(rb"(0+)")  # what splits a text into what stands around its runs, and in between the runs


class Outlines(dict[bytes, int]):
    """Codes for the outlines of entries; 0 for all not understood. An outline is given without the brace that it begins
    with, and with a comma at its end.

    By code: `size`, its bytes; `skeleton`, a number for its skeleton; `group`, as in Pattern. `places` [KINDS, codes]:
    where its number of a kind (its index in COLUMNS, or FRACTION_OF) stands, as `ends_of`, `digits_of` and
    `negative_of` tell; 0: it has none. `heads`: how many runs are of its head; theirs are those of
    `head_places` from `first_head` on. An end is counted in bytes from the entry's beginning.
    """

    def __init__(self) -> None:
        super().__init__()
        self.size = np.zeros(MOST_OUTLINES, np.int64)
        self.skeleton = np.zeros(MOST_OUTLINES, np.int64)
        self.group = np.zeros(MOST_OUTLINES, np.int64)
        self.places = np.zeros((KINDS, MOST_OUTLINES), np.int32)
        self.heads = np.zeros(MOST_OUTLINES, np.int64)
        self.first_head = np.zeros(MOST_OUTLINES, np.int64)
        self._head_rows: list[int] = []
        self._head = Grown(np.int32)  # the list's values, moved here
        self._skeletons: dict[bytes, _Skeleton | None] = {}
        self._known: list[tuple[bytes, Pattern]] = []
        self._whole: dict[int, bool] = {}

    def __missing__(self, outline: bytes) -> int:
        code = len(self._known) + 1
        if code >= MOST_OUTLINES:
            return 0
        parts = _RUN.split(outline)
        skeleton = None if MARK in outline else self._skeleton(MARK.join(parts[::2]))
        if skeleton is None or not self._learn(code, parts, skeleton):
            if len(self) < 2 * MOST_OUTLINES:
                self[outline] = 0
            return 0
        self[outline] = code
        self._known.append((outline, skeleton.pattern))
        return code

    def _learn(self, code: int, parts: list[bytes], skeleton: _Skeleton) -> bool:
        """Fill in the rows of an outline. False where a number is too long for what is done here.

        `parts`: the outline, cut into what stands around its runs and, in between, the runs.
        """
        sizes = list(map(len, parts))
        lengths, ends = sizes[1::2], list(accumulate(sizes))
        head = skeleton.pattern.head
        if ends[-1] >= _MOST_BYTES or any(lengths[run] > most for _, run, _, most in skeleton.asked):
            return False
        if max(lengths) > MOST_DIGITS:
            whole = skeleton.pattern.whole.tolist()
            if any(length > _MOST_WHOLE and is_whole for length, is_whole in zip(lengths, whole, strict=True)):
                return False
            if any(lengths[run] > MOST_DIGITS for run in head):
                return False
        self.size[code] = ends[-1]
        self.skeleton[code] = skeleton.number
        self.group[code] = skeleton.pattern.group
        for kind, run, negative, _ in skeleton.asked:
            self.places[kind, code] = ends[2 * run + 1] << _END | negative << _SIGN | lengths[run]
        self.heads[code] = len(head)
        self.first_head[code] = len(self._head) + len(self._head_rows)
        self._head_rows += [ends[2 * run + 1] << _END | lengths[run] for run in head]
        return True

    @property
    def head_places(self) -> I32:
        """Of the runs of all heads."""
        if self._head_rows:
            self._head.extend(np.array(self._head_rows, np.int32))
            self._head_rows.clear()
        return self._head.so_far

    def _skeleton(self, text: bytes) -> _Skeleton | None:
        try:
            return self._skeletons[text]
        except KeyError:
            pattern = learn(text)
            known = None if pattern is None else _Skeleton(len(self._skeletons), pattern, _asked(pattern))
            self._skeletons[text] = known
            return known

    def is_whole(self, code: int, offset: int) -> bool:
        """Whether the run that begins there, in entries of this outline, is the whole part of a number."""
        key = code << 32 | offset
        known = self._whole.get(key)
        if known is None:
            outline, pattern = self._known[code - 1]
            starts = [run.start() for run in _RUN.finditer(outline)]
            known = self._whole[key] = bool(pattern.whole[starts.index(offset)])
        return known


def ends_of(places: I32) -> I32:
    """Where the numbers end."""
    return places >> _END


def digits_of(places: I32) -> U8:
    """How many digits they have: 1 to MOST_DIGITS."""
    return (places & _DIGITS).astype(np.uint8)


def negative_of(places: I32) -> Bool:
    """Whether a minus stands before them."""
    return (places & 1 << _SIGN).astype(np.bool_)


@dataclass(frozen=True, slots=True)
class _Skeleton:
    """`asked`: (kind, run, whether negative, most digits) of each number that is wanted."""

    number: int
    pattern: Pattern
    asked: list[tuple[int, int, bool, int]]


def _asked(pattern: Pattern) -> list[tuple[int, int, bool, int]]:
    asked = []
    for name, number in pattern.numbers.items():
        asked.append((COLUMNS.index(name), number.run, number.negative, MOST_DIGITS))
        if number.fraction >= 0:
            asked.append((FRACTION_OF[name], number.fraction, number.negative, _DECIMALS))
    return asked
