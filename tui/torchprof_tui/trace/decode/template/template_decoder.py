"""Template decoder: decode a chunk into columns, all its entries at once, without an object per entry.

The idea: entries repeat. With their digits masked, a million entries have some thousand different layouts, each of
which is parsed once (`layouts.py`): that proves that it is valid JSON, and yields where its numbers are. So the masked
chunk is split between the entries, one dict look-up yields the layout of each entry, and the numbers of all entries are
read by array arithmetic. Names and tracks repeat as well, digits included: each distinct *head* (phase, category, name,
pid, tid) is parsed once, and stands for a signature (all of it but the name) and a name of `column_builder.py`.

This works for any format with a fixed separator between two entries, but its cost is per byte, and that of orjson per
value: it pays for Kineto's own format and for compact text, not where each number has a line or an indentation. For
anything that is not plain (metadata, counters of several series, damage, hexadecimal ids, unicode escapes, …) this
refuses the chunk and changes nothing: the general decoder then decodes it, and the next chunk is tried again. So both
decoders yield the same columns, and only the general one reports damage.
"""

from __future__ import annotations

import os
import re
from itertools import repeat
from typing import cast

import numpy as np
import orjson

from torchprof_tui.trace.core.arrays import F64, I32, I64, U8, Array, Bool
from torchprof_tui.trace.core.growable_array import GrowableArray
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.decode.column_builder import CORRELATION, ColumnBuilder, EntryColumns
from torchprof_tui.trace.decode.interning import GROUP_OTHER, arg_group_of, text_of
from torchprof_tui.trace.decode.template.layouts import (
    DURATION,
    FRACTION_OF,
    ID,
    MAX_DIGITS,
    NUMBER_COLUMNS,
    NUMBER_KIND_COUNT,
    TIME,
    U64,
    VALUE,
    DigitMask,
    LayoutTable,
    digits_of,
    ends_of,
    negative_of,
    triple_columns,
)
from torchprof_tui.trace.decode.timestamps import EXACT_MICROSECONDS, nanoseconds
from torchprof_tui.trace.model.raw_events import ARGS, NO_DURATION

_MAX_MICROSECONDS = {TIME: 4 * 10**15, DURATION: 8 * 10**12}
"""Beyond, the general decoder is needed: for absurd times (127 years), and durations that doubles have to round."""

_FRACTION_SCALE = np.array([0, 100, 10, 1])  # nanoseconds of the last digit of a fraction, by the number of its digits
_TIME_DECIMALS = 3
"""Most decimals of a time that are read by digits; more are fractions of a nanosecond, which double and decimal round
differently."""

_EXACT_DIGITS = 15  # most digits of a decimal number that are a quotient of two integers without rounding: 10^15 < 2^53
_POWERS = 10.0 ** np.arange(_EXACT_DIGITS + 1)

_COLUMN_INDEX = {name: number for number, name in enumerate(NUMBER_COLUMNS)}


@record
class EntryNumbers:
    """Numbers read from n entries of `text`, by kind (`layouts.py`), and within a kind in the order of the entries.

    `size`: n. `bounds[kind]`: where the numbers of a kind begin. For each number: `entry`, `value` int64, meaningless
    beyond 16 digits, `digits` uint8, `end` int64, the offset of its end in the text, and whether it is `negative`.
    """

    text: memoryview
    size: int
    bounds: list[int]
    entry: I64
    value: I64
    digits: U8
    end: I64
    negative: Bool

    def to_columns(self) -> EntryColumns | None:
        """Build the columns; None if a time or duration is too large."""
        time = self._read_nanoseconds(TIME)
        durations = self._read_nanoseconds(DURATION)
        if time is None or durations is None:
            return None
        duration = np.full(self.size, NO_DURATION, np.int64)
        duration[durations[0]] = durations[1]
        correlation = np.full(self.size, -1, np.int64)
        entries, correlations = self._read_integers(CORRELATION)
        correlation[entries] = correlations
        args: dict[str, tuple[I64, Array]] = {}
        for name in ARGS:
            if name in _COLUMN_INDEX:
                entries, values = self._read_integers(name)
            else:
                triple = [self._read_integers(column) for column in triple_columns(name)]
                entries, values = triple[0][0], np.stack([column for _, column in triple], axis=1)
            if len(entries):
                args[name] = entries, values
        return EntryColumns(time[1], duration, self._read_integers(ID), correlation, args, self._read_values())

    def _slice_of(self, kind: int) -> slice:
        return slice(self.bounds[kind], self.bounds[kind + 1])

    def _read_integers(self, name: str) -> tuple[I64, I64]:
        """Return the entries that have it, and its values, int64[k]."""
        numbers = self._slice_of(_COLUMN_INDEX[name])
        return self.entry[numbers], self.value[numbers]

    def _read_nanoseconds(self, name: str) -> tuple[I64, I64] | None:
        """Return the entries that have it, and its values, int64[k]; None if one is too large."""
        entries, value = self._read_integers(name)
        if (np.abs(value) > _MAX_MICROSECONDS[name]).any():
            return None
        value = value * 1000
        fraction = self._slice_of(FRACTION_OF[name])
        digits = np.minimum(self.digits[fraction], _TIME_DECIMALS)
        index = self._match_fractions(entries, fraction)
        value[index] += self.value[fraction] * _FRACTION_SCALE[digits]
        long = np.flatnonzero(self.digits[fraction] > _TIME_DECIMALS)
        if len(long):
            micro = self._parse_decimals(_COLUMN_INDEX[name], index[long], fraction, long)
            if np.abs(micro).max() >= EXACT_MICROSECONDS:
                return None
            value[index[long]] = nanoseconds(micro)
        return entries, value

    def _read_values(self) -> tuple[I64, F64]:
        """Return the entries that are counters, and their values, float64[k]: the doubles nearest to the text."""
        entries, whole = self._read_integers(VALUE)
        value = whole.astype(np.float64)
        fraction = self._slice_of(FRACTION_OF[VALUE])
        if fraction.start == fraction.stop:
            return entries, value
        index = self._match_fractions(entries, fraction)
        decimals = self.digits[fraction]
        short = self.digits[self._slice_of(_COLUMN_INDEX[VALUE])][index] + decimals <= _EXACT_DIGITS
        power = _POWERS[decimals[short]]
        value[index[short]] = (whole[index[short]] * power + self.value[fraction][short]) / power
        long = np.flatnonzero(~short)
        value[index[long]] = self._parse_decimals(_COLUMN_INDEX[VALUE], index[long], fraction, long)
        return entries, value

    def _match_fractions(self, entries: I64, fraction: slice) -> I64:
        """Return the index in `entries` of each fraction."""
        with_fraction = self.entry[fraction]
        if len(with_fraction) == len(entries):
            return np.arange(len(entries))
        index: I64 = np.searchsorted(entries, with_fraction)
        return index

    def _parse_decimals(self, kind: int, whole: I64, fraction: slice, fractions: I64) -> F64:
        """Parse numbers with many decimals one by one: of a kind, by index of the integer part and of the fraction."""
        numbers = whole + self.bounds[kind]
        begins = self.end[numbers] - self.digits[numbers] - self.negative[numbers]
        ends = self.end[fractions + fraction.start]
        text = self.text
        return np.array([float(text[a:b]) for a, b in zip(begins.tolist(), ends.tolist(), strict=True)], np.float64)


ENTRY_SEPARATOR = re.compile(rb',(?:\n  \{\n    "|\s?\{"[a-z]+")')
"""The text between two entries of the files that are decoded here, as the chunker passes it: what Kineto writes, in all
versions; and compact text, an entry per line or all on one line (torch's Python export, cuspy, `json.dump`).
"""

_MARK_BYTES = 5
"""The masked text is split by its first bytes, which hold a brace; from six bytes on Python uses a search that takes
twice as long. In compact text they hold the beginning of the first key, so that no object in args looks like an entry.
"""


class TemplateDecoder:
    """Decodes plain chunks into `columns`."""

    def __init__(self, columns: ColumnBuilder) -> None:
        self._columns = columns
        self._digit_mask = DigitMask()
        self._mark = b""  # what separates the entries, before and after their comma; b"" until text has been seen
        self._layouts = LayoutTable()
        self._head_codes: dict[int, int] = {}
        self._head_signature = GrowableArray(np.int32)  # by head code
        self._head_name = GrowableArray(np.int32)
        self._hash_factors = np.frombuffer(os.urandom(24), np.uint64) | np.uint64(1)  # odd: they lose no bit

    def try_decode(self, text: memoryview, separator: bytes) -> I64 | None:
        """Decode whole entries with `separator` between them; return where they begin in the text, None if refused."""
        if not self._set_mark(bytes(text[:_MARK_BYTES]), separator):
            return None
        masked_text, zeros = self._digit_mask.mask_digits(text)
        pieces = masked_text.split(self._mark)[1:]
        pieces[-1] += b","  # as after all other entries
        layout = np.fromiter(map(self._layouts.__getitem__, pieces), np.int32, len(pieces))
        if not layout.all():
            return None
        entries = PlainEntries(text, self._digit_mask, layout, self._layouts)
        if entries.has_leading_zero(zeros):
            return None
        columns = entries.read_numbers().to_columns()
        head = self._intern_heads(entries) if columns is not None else None
        if columns is None or head is None:
            return None
        series = self._columns.intern_series(self._layouts.series_names)[
            self._layouts.series[entries.layout[columns.counters[0]]]
        ]
        self._columns.append_columns(self._head_signature.view[head], self._head_name.view[head], columns, series)
        return entries.begin - _MARK_BYTES

    def _set_mark(self, mark: bytes, separator: bytes) -> bool:
        """Tell whether text that begins with `mark` can be split by it; all text of a file must begin with the same."""
        if not ENTRY_SEPARATOR.fullmatch(separator) or not separator.startswith(b"," + mark):
            return False
        if mark == self._mark or self._head_codes:
            return mark == self._mark
        self._mark, self._layouts = mark, LayoutTable(mark[mark.index(b"{") :])
        return True

    def _intern_heads(self, entries: PlainEntries) -> I32 | None:
        """Return the head code of each entry; None if a head does not match the arg group of its layout."""
        keys = entries.hash_heads(self._hash_factors)
        head = np.fromiter(map(self._head_codes.get, keys, repeat(-1)), np.int32, len(keys))
        new_heads: dict[int, int] = {}  # key -> index of the first entry that has it
        for index in np.flatnonzero(head < 0).tolist():
            new_heads.setdefault(keys[index], index)
        if not new_heads:
            return head
        parsed = [entries.parse_entry(index) for index in new_heads.values()]
        groups = [min(arg_group_of(entry.get("ph"), text_of(entry.get("cat"))), GROUP_OTHER) for entry in parsed]
        if groups != self._layouts.group[entries.layout[list(new_heads.values())]].tolist():
            return None  # categories that differ only in digits may have different kinds
        signatures, names = [], []
        for key, entry in zip(new_heads, parsed, strict=True):
            self._head_codes[key] = len(self._head_codes)
            signature, name = self._columns.intern(entry)
            signatures.append(signature)
            names.append(name)
        self._head_signature.extend(np.array(signatures, np.int32))
        self._head_name.extend(np.array(names, np.int32))
        return np.fromiter(map(self._head_codes.__getitem__, keys), np.int32, len(keys))


_HASH_SHIFT = np.uint64(32)
"""Bits by which a product is shifted into itself: a multiplication changes only the bits above those that differ."""


class PlainEntries:
    """n entries of one text, all of known layouts. `begin` int64[n]: where each begins, after its first _MARK_BYTES."""

    def __init__(self, text: memoryview, digit_mask: DigitMask, layout: I32, layouts: LayoutTable) -> None:
        self._text = text
        self._digit_mask = digit_mask
        self.layout = layout
        self._layouts = layouts
        end = np.cumsum(layouts.byte_length[layout] + _MARK_BYTES)
        self.begin: I64 = np.concatenate([[0], end[:-1]]) + _MARK_BYTES

    def has_leading_zero(self, zeros: I64) -> bool:
        """Tell whether one of these zeros begins a number such as 007, which JSON does not allow."""
        entry = np.searchsorted(self.begin, zeros) - 1
        positions = zip(self.layout[entry].tolist(), (zeros - self.begin[entry]).tolist(), strict=True)
        return any(self._layouts.is_integer_part(layout, offset) for layout, offset in positions)

    def read_numbers(self) -> EntryNumbers:
        """Read all wanted numbers of these entries."""
        size = len(self.layout)
        positions = self._layouts.number_positions.take(self.layout, axis=1).ravel()  # kind by kind
        present = np.flatnonzero(positions != 0)
        positions = positions[present]
        bound = np.searchsorted(present, np.arange(NUMBER_KIND_COUNT + 1) * size)
        entry = present - np.repeat(np.arange(NUMBER_KIND_COUNT) * size, np.diff(bound))
        digits = digits_of(positions)
        end = ends_of(positions) + self.begin[entry]
        value = self._digit_mask.read_values(end, np.minimum(digits, MAX_DIGITS))
        negative = negative_of(positions)
        if negative.any():
            np.negative(value, out=value, where=negative)
        return EntryNumbers(self._text, size, bound.tolist(), entry, value, digits, end, negative)

    def hash_heads(self, factors: U64) -> list[int]:
        """Compute a 64-bit hash of each entry's head: equal for the same template and the same digits in its runs.

        The probability that two different heads among a million collide is one in 10^7; `factors`, three odd numbers,
        are random, so that no file can be crafted to collide.
        """
        layouts = self._layouts
        run_count = layouts.head_run_count[self.layout]
        last = np.cumsum(run_count)
        # A run's contribution depends on its number in the head: 7 in run 12 differs from 12 in run 7.
        number = np.arange(int(last[-1])) - np.repeat(last - run_count, run_count)
        row = number + np.repeat(layouts.first_head_run[self.layout], run_count)
        positions = layouts.head_run_positions[row]
        end = ends_of(positions) + np.repeat(self.begin, run_count)
        runs, long, leading = self._digit_mask.read_hash_words(end.astype(np.int64), digits_of(positions))
        by_digits, by_number, by_template = factors
        runs *= by_digits
        runs ^= runs >> _HASH_SHIFT
        runs[long] ^= leading
        runs[long] *= by_number
        runs[long] ^= runs[long] >> _HASH_SHIFT
        runs *= (number.view(np.uint64) << np.uint64(1)) ^ by_number
        runs ^= runs >> _HASH_SHIFT
        sums = np.zeros(len(runs) + 1, np.uint64)
        np.cumsum(runs, out=sums[1:])
        keys = sums[last] - sums[last - run_count]
        keys ^= layouts.template_code[self.layout].view(np.uint64) * by_template
        return cast("list[int]", keys.tolist())

    def parse_entry(self, index: int) -> dict[str, object]:
        begin = int(self.begin[index])
        end = begin + int(self._layouts.byte_length[self.layout[index]])
        entry: dict[str, object] = orjson.loads(
            self._layouts.opening + self._text[begin : end - 1]
        )  # without its comma
        return entry
