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
from torchprof_tui.trace.core.growable_array import GrowableArray
from torchprof_tui.trace.decode.template.digit_mask import MAX_DIGITS
from torchprof_tui.trace.decode.template.templates import (
    DURATION,
    NUMBER_COLUMNS,
    RUN_MARK,
    TIME,
    Template,
    parse_template,
)

MAX_LAYOUTS = 1 << 15
"""Outlines that are learnt, each in about 30 µs; a file with more is not made of repeating entries."""

_MAX_INTEGER_DIGITS = 18
"""Digits of an integer: more may not fit 64 bits."""

_MAX_ENTRY_BYTES = 1 << 24
"""Of an entry: a place has 25 bits for where a number ends in it. No entry of a plain chunk is nearly as long."""

_MAX_FRACTION_DIGITS = 3
"""Of a time. Beyond are fractions of a nanosecond, which double and decimal round in different ways."""

FRACTION_OF = {TIME: len(NUMBER_COLUMNS), DURATION: len(NUMBER_COLUMNS) + 1}
"""Numbers besides COLUMNS: what stands behind the point of a time."""

NUMBER_KIND_COUNT = len(NUMBER_COLUMNS) + len(FRACTION_OF)

_SIGN_BIT, _END_BIT = 5, 6
"""The first bits of a place's parts: its digits (from bit 0 on), its sign, its end."""

_DIGITS_MASK = (1 << _SIGN_BIT) - 1

_ZERO_RUN = re.compile(rb"(0+)")  # what splits a text into what stands around its runs, and in between the runs


class LayoutTable(dict[bytes, int]):
    """Codes for the outlines of entries; 0 for all not understood. An outline is given without the brace that it begins
    with, and with a comma at its end.

    By code: `size`, its bytes; `skeleton`, a number for its skeleton; `group`, as in Pattern. `places` [KINDS, codes]:
    where its number of a kind (its index in COLUMNS, or FRACTION_OF) stands, as `ends_of`, `digits_of` and
    `negative_of` tell; 0: it has none. `heads`: how many runs are of its head; theirs are those of
    `head_places` from `first_head` on. An end is counted in bytes from the entry's beginning.
    """

    def __init__(self) -> None:
        super().__init__()
        self.byte_length = np.zeros(MAX_LAYOUTS, np.int64)
        self.template_code = np.zeros(MAX_LAYOUTS, np.int64)
        self.group = np.zeros(MAX_LAYOUTS, np.int64)
        self.number_positions = np.zeros((NUMBER_KIND_COUNT, MAX_LAYOUTS), np.int32)
        self.head_run_count = np.zeros(MAX_LAYOUTS, np.int64)
        self.first_head_run = np.zeros(MAX_LAYOUTS, np.int64)
        self._pending_head_positions: list[int] = []
        self._head_positions = GrowableArray(np.int32)  # the list's values, moved here
        self._templates: dict[bytes, _NumberedTemplate | None] = {}
        self._layouts: list[tuple[bytes, Template]] = []
        self._integer_part_cache: dict[int, bool] = {}

    def __missing__(self, outline: bytes) -> int:
        code = len(self._layouts) + 1
        if code >= MAX_LAYOUTS:
            return 0
        parts = _ZERO_RUN.split(outline)
        skeleton = None if RUN_MARK in outline else self._get_template(RUN_MARK.join(parts[::2]))
        if skeleton is None or not self._add_layout(code, parts, skeleton):
            if len(self) < 2 * MAX_LAYOUTS:
                self[outline] = 0
            return 0
        self[outline] = code
        self._layouts.append((outline, skeleton.template))
        return code

    def _add_layout(self, code: int, parts: list[bytes], skeleton: _NumberedTemplate) -> bool:
        """Fill in the rows of an outline. False where a number is too long for what is done here.

        `parts`: the outline, cut into what stands around its runs and, in between, the runs.
        """
        sizes = list(map(len, parts))
        lengths, ends = sizes[1::2], list(accumulate(sizes))
        head = skeleton.template.head_runs
        if ends[-1] >= _MAX_ENTRY_BYTES or any(lengths[run] > most for _, run, _, most in skeleton.wanted_numbers):
            return False
        if max(lengths) > MAX_DIGITS:
            whole = skeleton.template.integer_runs.tolist()
            if any(length > _MAX_INTEGER_DIGITS and is_whole for length, is_whole in zip(lengths, whole, strict=True)):
                return False
            if any(lengths[run] > MAX_DIGITS for run in head):
                return False
        self.byte_length[code] = ends[-1]
        self.template_code[code] = skeleton.code
        self.group[code] = skeleton.template.group
        for kind, run, negative, _ in skeleton.wanted_numbers:
            self.number_positions[kind, code] = ends[2 * run + 1] << _END_BIT | negative << _SIGN_BIT | lengths[run]
        self.head_run_count[code] = len(head)
        self.first_head_run[code] = len(self._head_positions) + len(self._pending_head_positions)
        self._pending_head_positions += [ends[2 * run + 1] << _END_BIT | lengths[run] for run in head]
        return True

    @property
    def head_run_positions(self) -> I32:
        """Of the runs of all heads."""
        if self._pending_head_positions:
            self._head_positions.extend(np.array(self._pending_head_positions, np.int32))
            self._pending_head_positions.clear()
        return self._head_positions.view

    def _get_template(self, text: bytes) -> _NumberedTemplate | None:
        try:
            return self._templates[text]
        except KeyError:
            pattern = parse_template(text)
            known = (
                None
                if pattern is None
                else _NumberedTemplate(len(self._templates), pattern, _list_wanted_numbers(pattern))
            )
            self._templates[text] = known
            return known

    def is_integer_part(self, code: int, offset: int) -> bool:
        """Whether the run that begins there, in entries of this outline, is the whole part of a number."""
        key = code << 32 | offset
        known = self._integer_part_cache.get(key)
        if known is None:
            outline, pattern = self._layouts[code - 1]
            starts = [run.start() for run in _ZERO_RUN.finditer(outline)]
            known = self._integer_part_cache[key] = bool(pattern.integer_runs[starts.index(offset)])
        return known


def ends_of(positions: I32) -> I32:
    """Where the numbers end."""
    return positions >> _END_BIT


def digits_of(positions: I32) -> U8:
    """How many digits they have: 1 to MOST_DIGITS."""
    return (positions & _DIGITS_MASK).astype(np.uint8)


def negative_of(positions: I32) -> Bool:
    """Whether a minus stands before them."""
    return (positions & 1 << _SIGN_BIT).astype(np.bool_)


@dataclass(frozen=True, slots=True)
class _NumberedTemplate:
    """`asked`: (kind, run, whether negative, most digits) of each number that is wanted."""

    code: int
    template: Template
    wanted_numbers: list[tuple[int, int, bool, int]]


def _list_wanted_numbers(pattern: Template) -> list[tuple[int, int, bool, int]]:
    asked = []
    for name, number in pattern.numbers.items():
        asked.append((NUMBER_COLUMNS.index(name), number.run, number.negative, MAX_DIGITS))
        if number.fraction >= 0:
            asked.append((FRACTION_OF[name], number.fraction, number.negative, _MAX_FRACTION_DIGITS))
    return asked
