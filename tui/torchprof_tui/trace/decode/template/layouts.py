r"""Layouts of entries: where each number is, by the text with its digits masked.

A *layout* is a text with every digit replaced by a 0. A few SIMD passes over all bytes compute it, block by block, and
store the value of every digit. Texts of one layout have their numbers at the same offsets, so a single dict look-up of
an entry's layout yields everything about it except the numbers. These are read by arithmetic on a word of eight digit
values: the word that ends where the number ends, assembled from two words at multiples of eight, because a gather at
unaligned addresses takes several times as long as both.

The *template* of an entry is its text with every *run* of digits, of any length, replaced by one RUN_MARK; a
trace of a million entries has some hundred, and as numbers differ in length, some thousand layouts. To parse one, its
marks are filled with numbers that identify the mark, the text is parsed as JSON, and the number found under `ts` is
where every entry of the template has its `ts`. The parse is also the proof: digits cannot change how the rest of a text
is parsed, except in three cases: an integer with a leading zero (`integer_runs`: where that would matter), a number out
of range, and a `\u` escape. Templates with an exponent or a `\u` are not supported, nor are those of rare entries. The
general decoder handles those and all others that are not plain.
"""

from __future__ import annotations

import re
from itertools import accumulate, compress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool
from torchprof_tui.trace.core.growable_array import GrowableArray
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.decode.column_builder import CORRELATION, OP_ARGS, PYTHON_ARGS, TRIPLE_ARGS
from torchprof_tui.trace.decode.interning import (
    GROUP_COUNTER,
    GROUP_METADATA,
    GROUP_NONE,
    GROUP_OP,
    GROUP_OTHER,
    GROUP_PYTHON,
    PHASES_WITH_ID,
    arg_group_of,
    text_of,
)
from torchprof_tui.trace.model.raw_events import ARGS

MAX_DIGITS = 16  # digits of the longest number that can be read: two words

WORD_BYTES = 8

_PADDING_BYTES = 2 * WORD_BYTES
"""Bytes before and after the text: the two words that a number is read from may begin before it, or end after it."""

_PADDING_WORDS = 2 * _PADDING_BYTES // WORD_BYTES + 1  # of both sides and of a last word that the text does not fill

_BLOCK_BYTES = 1 << 16
"""Bytes that are processed at a time: so few that all intermediate arrays stay in the processor's cache."""

_FIRST_TEXT_BYTES = 1 << 16  # text that the buffers hold at first
_NEXT_BYTES = 2  # bytes after a block that tell whether a 0 at its end begins a run of several digits

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
        self._allocate(_FIRST_TEXT_BYTES)
        self._non_digit: U8 = np.empty(_BLOCK_BYTES + _NEXT_BYTES, np.uint8)
        self._is_zero: U8 = np.empty(_BLOCK_BYTES, np.uint8)
        self._is_run_start: U8 = np.empty(_BLOCK_BYTES, np.uint8)

    def _allocate(self, size: int) -> None:
        self._masked: U8 = np.empty(size, np.uint8)
        self._words: U64 = np.zeros(size // WORD_BYTES + _PADDING_WORDS, "<u8")
        self._digit_values: U8 = self._words.view(np.uint8)

    def mask_digits(self, text: bytes | memoryview) -> tuple[bytes, I64]:
        """Return the layout of a text, and the offsets of the zeros that begin a run of several digits.

        Runs after a point are left out, and so is a run at the first byte. Numbers are read from this text afterwards.
        """
        self._data: U8 = np.frombuffer(text, np.uint8)
        if len(text) > len(self._masked):
            self._allocate(len(text))
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
        data = self._data[begin : begin + _BLOCK_BYTES + _NEXT_BYTES]
        value, non_digit = self._digit_values[_PADDING_BYTES + begin :][: len(data)], self._non_digit[: len(data)]
        np.subtract(data, _ZERO, out=value)  # digits become 0 to 9, all other bytes are larger
        np.greater(value, _NINE, out=non_digit.view(np.bool_))
        np.multiply(value[: len(layout)], non_digit[: len(layout)], out=layout)
        layout += _ZERO
        size = max(len(data) - _NEXT_BYTES, 0)
        zero, run_start = self._is_zero[:size], self._is_run_start[:size]
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


RUN_MARK = b"\x01"  # replaces a run. Valid JSON never contains this byte
_HEAD_KEYS = ("ph", "cat", "name", "pid", "tid")

_STRING = compile_later(rb'"(?:[^"\\]|\\.)*"')
_INTEGER = compile_later(rb"(?<![.\d])1([0-9]{4})1")
_EXPONENT = compile_later(rb"\d[eE]")
_MARKERS = compile_later(r"1([0-9]{4})1")
_NUMBER = compile_later(r"(-)?1([0-9]{4})1(?:\.1([0-9]{4})1)?")
_MAX_RUNS = 10_000  # a marker has four digits


TIME, DURATION, ID, VALUE = "ts", "dur", "id", "value"


def triple_columns(name: str) -> list[str]:
    """Return the names of the columns of an arg with three values."""
    return [f"{name} {k}" for k in range(3)]


NUMBER_COLUMNS = [TIME, DURATION, ID, VALUE, CORRELATION]
for _name in ARGS:
    NUMBER_COLUMNS += triple_columns(_name) if _name in TRIPLE_ARGS else [_name]
"""The columns whose numbers are read; `grid 0`, `grid 1`, `grid 2` are the three of one arg, `value` is a counter's."""


class NumberPosition(NamedTuple):
    """The runs of a number: of its integer part and of its fraction (-1: none); and its sign."""

    run: int
    fraction: int
    negative: bool


@record
class Template:
    """What a template determines. Runs are counted from 0 within the entry.

    `head_runs`: runs in phase, category, name, pid and tid. `group`: the arg group, at most GROUP_OTHER. `numbers`:
    column → position of its value. `integer_runs` bool[runs]: runs that are integer parts of numbers. `series`: the key
    of a counter's value, None for all other entries.
    """

    head_runs: tuple[int, ...]
    group: int
    numbers: dict[str, NumberPosition]
    integer_runs: Bool
    series: str | None = None


def parse_template(masked_text: bytes, opening: bytes = b"{") -> Template | None:
    """Parse the template of entries whose text is `opening` followed by `masked_text`, up to the comma at its end.

    None if the template is not supported.
    """
    pieces = masked_text.removesuffix(b",").split(RUN_MARK)
    run_count = len(pieces) - 1
    if not masked_text.endswith(b",") or run_count > _MAX_RUNS or b"\\u" in masked_text:
        return None
    text = opening + b"".join(b"%b1%04d1" % (piece, k) for k, piece in enumerate(pieces[:-1])) + pieces[-1]
    try:
        entry = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    bare = _STRING.sub(b'""', text)
    if type(entry) is not dict or _EXPONENT.search(bare) or text.count(b'"ts"') != 1:
        return None
    if any(map(_MARKERS.search, entry)):  # a key with digits may be `id2`; no wanted arg has digits in its key
        return None
    head_runs = _find_head_runs(entry)
    group = min(arg_group_of(entry.get("ph"), text_of(entry.get("cat"))), GROUP_OTHER)
    if head_runs is None or group == GROUP_METADATA:
        return None
    numbers = _locate_entry_numbers(entry)
    args, series = entry.get("args"), None
    if group == GROUP_COUNTER:
        if type(args) is not dict or len(args) != 1:
            return None
        ((series, value),) = args.items()
        numbers[VALUE] = None if _MARKERS.search(series) else _locate_number(value)
    elif type(args) is dict:
        numbers |= _locate_args(args, group)
    known = {name: number for name, number in numbers.items() if number is not None}
    if len(known) < len(numbers):
        return None
    integer_runs = np.zeros(run_count, np.bool_)
    integer_runs[[int(run) for run in _INTEGER.findall(bare)]] = True
    return Template(head_runs, group, known, integer_runs, series)


def _find_head_runs(entry: dict[str, Any]) -> tuple[int, ...] | None:
    """Find the runs in the values that identify the entry and its track; None if one is neither text nor integer."""
    runs: list[int] = []
    if type(entry.get("name")) is not str or type(entry.get("ph")) is not str:
        return None
    for key in _HEAD_KEYS:
        value = entry.get(key)
        if value is not None and type(value) not in (str, int):
            return None
        runs += map(int, _MARKERS.findall(str(value)))
    return tuple(runs)


def _locate_entry_numbers(entry: dict[str, Any]) -> dict[str, NumberPosition | None]:
    """Locate the time, the duration and the id of an entry, None for values that are not plain numbers."""
    numbers = {TIME: _locate_number(entry.get("ts"))}
    if "dur" in entry:
        numbers[DURATION] = _locate_number(entry["dur"])
    if entry.get("ph") in PHASES_WITH_ID and "id" in entry:
        numbers[ID] = _locate_integer(entry["id"])
    return numbers


def _locate_integer(value: Any) -> NumberPosition | None:
    return _locate_number(value) if type(value) is int else None


def _locate_number(value: Any) -> NumberPosition | None:
    match = _NUMBER.fullmatch(repr(value)) if type(value) in (int, float) else None
    if match is None:
        return None
    sign, run, fraction = match.groups()
    return NumberPosition(int(run), -1 if fraction is None else int(fraction), sign is not None)


def _locate_args(args: dict[str, Any], group: int) -> dict[str, NumberPosition | None]:
    """Locate the wanted args, None for values that are not plain integers. The same args as `column_builder.py`."""
    if group == GROUP_NONE:
        return {}
    names = {GROUP_OP: OP_ARGS, GROUP_PYTHON: PYTHON_ARGS}.get(group, (CORRELATION, *ARGS))
    positions: dict[str, NumberPosition | None] = {}
    for name in names:
        keys = ARGS.get(name, (name,))
        value = next((args[key] for key in keys if args.get(key) is not None), None)
        if value is None:
            continue
        if name not in TRIPLE_ARGS:
            positions[name] = _locate_integer(value)
        elif type(value) is list and len(value) == 3:
            positions |= dict(zip(triple_columns(name), map(_locate_integer, value), strict=True))
        else:
            positions[name] = None
    return positions


MAX_LAYOUTS = 1 << 15
"""Most layouts that are parsed, each in about 30 µs; a file with more does not consist of repeating entries."""

_MAX_INTEGER_DIGITS = 18  # most digits of an integer: more may not fit in 64 bits

_MAX_ENTRY_BYTES = 1 << 24
"""Longest entry: a position has 25 bits for the end of a number. No entry of a plain chunk is nearly as long."""

_MAX_FRACTION_DIGITS = 20
"""Most decimals: doubles from a tenth of a microsecond on have no more. Those of which digits are not arithmetic on
words are read one by one (`template_decoder.py`)."""

FRACTION_OF = {name: len(NUMBER_COLUMNS) + k for k, name in enumerate((TIME, DURATION, VALUE))}
"""Number kinds after those of NUMBER_COLUMNS: the fractions of times and of the values of counters."""

NUMBER_KIND_COUNT = len(NUMBER_COLUMNS) + len(FRACTION_OF)

_SIGN_BIT, _END_BIT = 5, 6
"""First bits of the sign and the end in a packed position; the number of digits begins at bit 0."""

_DIGITS_MASK = (1 << _SIGN_BIT) - 1

_ZERO_RUN = re.compile(rb"(0+)")  # splitting by it yields the text around the runs and, in between, the runs


class LayoutTable(dict[bytes, int]):
    """Codes for the layouts of entries; 0 for all that are not supported. A layout is looked up without `opening`, the
    text that every entry begins with (a brace, and perhaps the first key), and with a comma at its end.

    By code: `byte_length`; `template_code`, the code of its template; `group`, as in Template. `number_positions`
    [NUMBER_KIND_COUNT, codes]: the packed position of its number of a kind (index in NUMBER_COLUMNS, or FRACTION_OF),
    to be unpacked by `ends_of`, `digits_of` and `negative_of`; 0: it has none. `head_run_count`: how many runs its head
    has; they are those of `head_run_positions` from `first_head_run` on. `series`: of a counter, the index of the key
    of its value in `series_names`. Ends are counted in bytes from the beginning
    of the entry.
    """

    def __init__(self, opening: bytes = b"{") -> None:
        super().__init__()
        self.opening = opening
        self.byte_length = np.zeros(MAX_LAYOUTS, np.int64)
        self.template_code = np.zeros(MAX_LAYOUTS, np.int64)
        self.group = np.zeros(MAX_LAYOUTS, np.int64)
        self.number_positions = np.zeros((NUMBER_KIND_COUNT, MAX_LAYOUTS), np.int32)
        self.head_run_count = np.zeros(MAX_LAYOUTS, np.int64)
        self.first_head_run = np.zeros(MAX_LAYOUTS, np.int64)
        self.series = np.zeros(MAX_LAYOUTS, np.int32)
        self.series_names: list[str] = []
        self._pending_head_positions: list[int] = []
        self._head_positions = GrowableArray(np.int32)  # receives the values of the list
        self._templates: dict[bytes, _NumberedTemplate | None] = {}
        self._layouts: list[tuple[bytes, Template]] = []
        self._integer_part_cache: dict[int, bool] = {}

    def __missing__(self, layout: bytes) -> int:
        code = len(self._layouts) + 1
        if code >= MAX_LAYOUTS:
            return 0
        parts = _ZERO_RUN.split(layout)
        numbered = None if RUN_MARK in layout else self._get_template(RUN_MARK.join(parts[::2]))
        if numbered is None or not self._add_layout(code, parts, numbered):
            if len(self) < 2 * MAX_LAYOUTS:
                self[layout] = 0
            return 0
        self[layout] = code
        self._layouts.append((layout, numbered.template))
        return code

    def _add_layout(self, code: int, parts: list[bytes], numbered: _NumberedTemplate) -> bool:
        """Fill in the values of a layout. False if a number is too long.

        `parts`: the layout, split into the text around its runs and, in between, the runs.
        """
        sizes = list(map(len, parts))
        lengths, ends = sizes[1::2], list(accumulate(sizes))
        head_runs = numbered.template.head_runs
        if ends[-1] >= _MAX_ENTRY_BYTES or any(lengths[run] > most for _, run, _, most in numbered.wanted_numbers):
            return False
        integers = compress(lengths, numbered.template.integer_runs.tolist())
        if any(length > _MAX_INTEGER_DIGITS for length in integers) or any(
            lengths[run] > MAX_DIGITS for run in head_runs
        ):
            return False
        self.byte_length[code] = ends[-1]
        self.template_code[code] = numbered.code
        self.group[code] = numbered.template.group
        if (series := numbered.template.series) is not None:
            if series not in self.series_names:  # a file has few
                self.series_names.append(series)
            self.series[code] = self.series_names.index(series)
        for kind, run, negative, _ in numbered.wanted_numbers:
            self.number_positions[kind, code] = ends[2 * run + 1] << _END_BIT | negative << _SIGN_BIT | lengths[run]
        self.head_run_count[code] = len(head_runs)
        self.first_head_run[code] = len(self._head_positions) + len(self._pending_head_positions)
        self._pending_head_positions += [ends[2 * run + 1] << _END_BIT | lengths[run] for run in head_runs]
        return True

    @property
    def head_run_positions(self) -> I32:
        """int32: the packed positions of the head runs of all layouts."""
        if self._pending_head_positions:
            self._head_positions.extend(np.array(self._pending_head_positions, np.int32))
            self._pending_head_positions.clear()
        return self._head_positions.view

    def _get_template(self, text: bytes) -> _NumberedTemplate | None:
        if text not in self._templates:
            template = parse_template(text, self.opening)
            wanted = []
            for name, number in {} if template is None else template.numbers.items():
                wanted.append((NUMBER_COLUMNS.index(name), number.run, number.negative, MAX_DIGITS))
                if number.fraction >= 0:
                    wanted.append((FRACTION_OF[name], number.fraction, number.negative, _MAX_FRACTION_DIGITS))
            code = len(self._templates)
            self._templates[text] = None if template is None else _NumberedTemplate(code, template, wanted)
        return self._templates[text]

    def is_integer_part(self, code: int, offset: int) -> bool:
        """Tell whether the run at this offset, in entries of this layout, is the integer part of a number."""
        key = code << 32 | offset
        known = self._integer_part_cache.get(key)
        if known is None:
            layout, template = self._layouts[code - 1]
            starts = [run.start() for run in _ZERO_RUN.finditer(layout)]
            known = self._integer_part_cache[key] = bool(template.integer_runs[starts.index(offset)])
        return known


def ends_of(positions: I32) -> I32:
    """Extract the offsets at which the numbers end."""
    return positions >> _END_BIT


def digits_of(positions: I32) -> U8:
    """Extract the numbers of digits: 1 to MAX_DIGITS, of a fraction to _MAX_FRACTION_DIGITS."""
    return (positions & _DIGITS_MASK).astype(np.uint8)


def negative_of(positions: I32) -> Bool:
    """Tell whether the numbers have a minus sign."""
    return (positions & 1 << _SIGN_BIT).astype(np.bool_)


@record
class _NumberedTemplate:
    """`wanted_numbers`: (kind, run, whether negative, most digits) of each number that is read."""

    code: int
    template: Template
    wanted_numbers: list[tuple[int, int, bool, int]]
