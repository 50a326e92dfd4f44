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

from tui.trace.arrays import I64
from tui.trace.digits import MOST_DIGITS
from tui.trace.grown import Grown
from tui.trace.patterns import COLUMNS, DURATION, MARK, TIME, Pattern, learn

MOST_OUTLINES = 1 << 15
"""Outlines that are learnt, each in about 30 µs; a file with more is not made of repeating entries."""

_MOST_WHOLE = 18
"""Digits of an integer: more may not fit 64 bits."""

_DECIMALS = 3
"""Of a time. Beyond are fractions of a nanosecond, which double and decimal round in different ways."""

HEAD, FRACTION_OF = len(COLUMNS), {TIME: len(COLUMNS) + 1, DURATION: len(COLUMNS) + 2}
"""Numbers besides COLUMNS: what makes out an entry's head, and what stands behind the point of a time."""

KINDS = HEAD + 3

ROW = 4

_RUN = re.compile(rb"(0+)")  # what splits a text into what stands around its runs, and in between the runs


class Outlines(dict[bytes, int]):
    """Codes for the outlines of entries; 0 for all not understood. An outline is given without the brace that it begins
    with, and with a comma at its end.

    By code: `size`, its bytes; `skeleton`, a number for its skeleton; `group`, as in Pattern; `heads`, how many runs
    are of the head; `first` and `many`: which of the `rows` are its own, one for each of its numbers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.size = np.zeros(MOST_OUTLINES, np.int64)
        self.skeleton = np.zeros(MOST_OUTLINES, np.int64)
        self.group = np.zeros(MOST_OUTLINES, np.int64)
        self.heads = np.zeros(MOST_OUTLINES, np.int64)
        self.first = np.zeros(MOST_OUTLINES, np.int64)
        self.many = np.zeros(MOST_OUTLINES, np.int64)
        self._rows = Grown(np.int64)
        self._skeletons: dict[bytes, _Skeleton | None] = {}
        self._known: list[tuple[bytes, Pattern]] = []
        self._whole: dict[int, bool] = {}

    def __missing__(self, outline: bytes) -> int:
        code = len(self._known) + 1
        if code >= MOST_OUTLINES:
            return 0
        parts = _RUN.split(outline)
        skeleton = None if MARK in outline else self._skeleton(MARK.join(parts[::2]))
        rows = None if skeleton is None else rows_of(parts, skeleton)
        if skeleton is None or rows is None:
            if len(self) < 2 * MOST_OUTLINES:
                self[outline] = 0
            return 0
        self[outline] = code
        self._known.append((outline, skeleton.pattern))
        self.size[code] = len(outline)
        self.skeleton[code] = skeleton.number
        self.group[code] = skeleton.pattern.group
        self.heads[code] = len(skeleton.pattern.head)
        self.first[code] = len(self._rows) // ROW
        self.many[code] = len(rows) // ROW
        self._rows.extend(np.array(rows, np.int64))
        return code

    def _skeleton(self, text: bytes) -> _Skeleton | None:
        try:
            return self._skeletons[text]
        except KeyError:
            pattern = learn(text)
            known = None if pattern is None else _Skeleton(len(self._skeletons), pattern, _asked(pattern))
            self._skeletons[text] = known
            return known

    @property
    def rows(self) -> I64:
        """int64[k, ROW]: `kind`, a place in COLUMNS, HEAD or FRACTION_OF; where the number ends, in bytes from the
        entry's beginning; its digits; its sign, 1 or -1."""
        return self._rows.so_far.reshape(-1, ROW)

    def is_whole(self, code: int, offset: int) -> bool:
        """Whether the run that begins there, in entries of this outline, is the whole part of a number."""
        key = code << 32 | offset
        known = self._whole.get(key)
        if known is None:
            outline, pattern = self._known[code - 1]
            starts = [run.start() for run in _RUN.finditer(outline)]
            known = self._whole[key] = bool(pattern.whole[starts.index(offset)])
        return known


@dataclass(frozen=True, slots=True)
class _Skeleton:
    """`asked`: (kind, run, sign, most digits) of each number that is wanted, those of the head first."""

    number: int
    pattern: Pattern
    asked: list[tuple[int, int, int, int]]


def _asked(pattern: Pattern) -> list[tuple[int, int, int, int]]:
    asked = [(HEAD, run, 1, MOST_DIGITS) for run in pattern.head]
    for name, number in pattern.numbers.items():
        sign = -1 if number.negative else 1
        asked.append((COLUMNS.index(name), number.run, sign, MOST_DIGITS))
        if number.fraction >= 0:
            asked.append((FRACTION_OF[name], number.fraction, sign, _DECIMALS))
    return asked


def rows_of(parts: list[bytes], skeleton: _Skeleton) -> list[int] | None:
    """The numbers that are asked for, as they stand in `rows`; None where a number is too long for what is done here.

    `parts`: the outline, cut into what stands around its runs and, in between, the runs.
    """
    sizes = list(map(len, parts))
    lengths, ends = sizes[1::2], list(accumulate(sizes))[1::2]
    if max(lengths) > _MOST_WHOLE:
        whole = skeleton.pattern.whole.tolist()
        if any(length > _MOST_WHOLE and is_whole for length, is_whole in zip(lengths, whole, strict=True)):
            return None
    rows: list[int] = []
    for kind, run, sign, most in skeleton.asked:
        if lengths[run] > most:
            return None
        rows += (kind, ends[run], lengths[run], sign)
    return rows
