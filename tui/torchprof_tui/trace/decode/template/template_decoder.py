"""The fast reader: chunks of text into columns, all their entries at once, without an object an entry.

The idea: entries repeat. Take the digits out, and a million entries are some thousand different outlines, each of which
is understood once (`outlines.py`): that it is valid JSON, and where its numbers stand. So a chunk's outline is cut
between the entries, one look-up in a dict says of each which outline it has, and its numbers are read by arithmetic,
those of all entries at once. What entries are called, and where they stand, repeats as well, digits included: the
*head* (phase, category, name, pid, tid) is parsed once for every different one, and stands for a *shape* (all of it but
the name) and a name in `columns.py`.

This would hold for any layout in which something fixed stands between two entries, but it costs by the byte, and
orjson by the value: it pays in Kineto's own, not in those that spend a line or an indentation on each number. Whatever
is not plain (metadata, counters, damage, hexadecimal ids, more than three decimals, …) makes `take` refuse the chunk,
having changed nothing: the general reader then reads it, and the next one is tried again. So both give the same
columns, and damage is told by one of them alone.
"""

from __future__ import annotations

import os
from itertools import repeat
from typing import cast

import numpy as np
import orjson

from torchprof_tui.trace.core.arrays import I32, I64, U8, Array
from torchprof_tui.trace.core.growable_array import GrowableArray
from torchprof_tui.trace.decode.arg_columns import CORRELATION
from torchprof_tui.trace.decode.column_builder import ColumnBuilder, EntryColumns
from torchprof_tui.trace.decode.interning import GROUP_OTHER, arg_group_of, text_of
from torchprof_tui.trace.decode.template.digit_mask import U64, DigitMask
from torchprof_tui.trace.decode.template.layouts import (
    FRACTION_OF,
    NUMBER_KIND_COUNT,
    LayoutTable,
    digits_of,
    ends_of,
    negative_of,
)
from torchprof_tui.trace.decode.template.templates import DURATION, ID, NUMBER_COLUMNS, TIME, triple_columns
from torchprof_tui.trace.model.raw_events import ARGS, NO_DURATION

ENTRY_SEPARATOR = b',\n  {\n    "'
"""What stands between two entries in the files that torch writes, from the first Kineto on."""

_ENTRY_START = ENTRY_SEPARATOR[1:]

_SPLIT_MARK = _ENTRY_START[:5]
"""By this the outline is cut: five bytes, as of six on Python looks for them in a way that takes twice as long."""

_MAX_MICROSECONDS = {TIME: 4 * 10**15, DURATION: 8 * 10**12}
"""Microseconds beyond are for the general reader: absurd times (127 years), durations that doubles have to round."""

_FRACTION_SCALE = np.array([0, 100, 10, 1])
"""Nanoseconds that the last digit of a fraction stands for, by its length."""


class TemplateDecoder:
    """Reads chunks into `columns`."""

    def __init__(self, columns: ColumnBuilder) -> None:
        self._columns = columns
        self._digit_mask = DigitMask()
        self._layouts = LayoutTable()
        self._head_codes: dict[int, int] = {}
        self._head_signature = GrowableArray(np.int32)  # of each head
        self._head_name = GrowableArray(np.int32)
        self._hash_factors = np.frombuffer(os.urandom(24), np.uint64) | np.uint64(1)

    def try_decode(self, text: memoryview, separator: bytes) -> I64 | None:
        """Take in whole entries, `between` between two of them. Where they begin, in this text; None: refused."""
        if separator != ENTRY_SEPARATOR or text[: len(_ENTRY_START)] != _ENTRY_START:
            return None
        text_outline, zeros = self._digit_mask.mask_digits(text)
        pieces = text_outline.split(_SPLIT_MARK)[1:]
        pieces[-1] += b","  # as behind all the others
        outline = np.fromiter(map(self._layouts.__getitem__, pieces), np.int32, len(pieces))
        if not outline.all():
            return None
        entries = PlainEntries(text, self._digit_mask, outline, self._layouts)
        if entries.has_leading_zero(zeros):
            return None
        numbers = entries.read_numbers()
        found = numbers.to_columns()
        head = self._intern_heads(entries) if found is not None else None
        if found is None or head is None:
            return None
        self._columns.append_columns(self._head_signature.view[head], self._head_name.view[head], found)
        return entries.begin - len(_SPLIT_MARK)

    def _intern_heads(self, entries: PlainEntries) -> I32 | None:
        """The number of each entry's head; None where one is not what its outline says."""
        keys = entries.hash_heads(self._hash_factors)
        head = np.fromiter(map(self._head_codes.get, keys, repeat(-1)), np.int32, len(keys))
        fresh: dict[int, int] = {}
        for place in np.flatnonzero(head < 0).tolist():
            fresh.setdefault(keys[place], place)
        if not fresh:
            return head
        parsed = [entries.parse_entry(place) for place in fresh.values()]
        groups = [min(arg_group_of(entry.get("ph"), text_of(entry.get("cat"))), GROUP_OTHER) for entry in parsed]
        if groups != entries.arg_groups(list(fresh.values())):
            return None  # digits in a category can make another kind of it
        shapes, names = [], []
        for key, entry in zip(fresh, parsed, strict=True):
            self._head_codes[key] = len(self._head_codes)
            shape, name = self._columns.intern(entry)
            shapes.append(shape)
            names.append(name)
        self._head_signature.extend(np.array(shapes, np.int32))
        self._head_name.extend(np.array(names, np.int32))
        return np.fromiter(map(self._head_codes.__getitem__, keys), np.int32, len(keys))


class PlainEntries:
    """n entries of one text, all of known outlines. `begin` int64[n]: where each begins, _CUT left out."""

    def __init__(self, text: memoryview, digits: DigitMask, outline: I32, outlines: LayoutTable) -> None:
        self._text = text
        self._digit_mask = digits
        self._layout = outline
        self._layouts = outlines
        after = np.cumsum(outlines.byte_length[outline] + len(_SPLIT_MARK))
        self.begin: I64 = np.concatenate([[0], after[:-1]]) + len(_SPLIT_MARK)

    def has_leading_zero(self, zeros: I64) -> bool:
        """Whether one of these zeros is in front of a number, which JSON does not allow (007)."""
        if not len(zeros):
            return False
        entry = np.searchsorted(self.begin, zeros, side="right") - 1
        where = zip(self._layout[entry].tolist(), (zeros - self.begin[entry]).tolist(), strict=True)
        return any(self._layouts.is_integer_part(outline, offset) for outline, offset in where)

    def read_numbers(self) -> EntryNumbers:
        """All that are wanted of these entries, read at once."""
        size = len(self._layout)
        places = self._layouts.number_positions.take(self._layout, axis=1).ravel()  # kind by kind
        where = np.flatnonzero(places != 0)
        places = places[where]
        bound = np.searchsorted(where, np.arange(NUMBER_KIND_COUNT + 1) * size)
        entry = where - np.repeat(np.arange(NUMBER_KIND_COUNT) * size, np.diff(bound))
        digits = digits_of(places)
        value = self._digit_mask.read_values(ends_of(places) + self.begin[entry], digits)
        negative = negative_of(places)
        if negative.any():
            np.negative(value, out=value, where=negative)
        return EntryNumbers(size, bound.tolist(), entry, value, digits)

    def hash_heads(self, factors: U64) -> list[int]:
        """A number of 64 bits for each entry's head: the same for the same skeleton and the same digits in its runs.

        That two different heads among a million get the same is as likely as one in 10^7; `mix`, three odd numbers,
        is random, so that no file can be made for it.
        """
        outlines = self._layouts
        many = outlines.head_run_count[self._layout]
        last = np.cumsum(many)
        # What a run adds depends on its place: 7 at 12 is not 12 at 7.
        place = np.arange(int(last[-1])) - np.repeat(last - many, many)
        row = place + np.repeat(outlines.first_head_run[self._layout], many)
        places = outlines.head_run_positions[row]
        end = ends_of(places) + np.repeat(self.begin, many)
        runs, long, before = self._digit_mask.read_hash_words(end.astype(np.int64), digits_of(places))
        runs *= factors[0]
        runs ^= runs >> np.uint64(32)
        if len(long):
            runs[long] += before
            runs[long] *= factors[1]
            runs[long] ^= runs[long] >> np.uint64(32)
        runs *= (place.view(np.uint64) << np.uint64(1)) + factors[1]
        runs ^= runs >> np.uint64(29)
        sums = np.zeros(len(runs) + 1, np.uint64)
        np.cumsum(runs, out=sums[1:])
        keys = sums[last] - sums[last - many]
        keys += outlines.template_code[self._layout].view(np.uint64) * factors[2]
        return cast("list[int]", keys.tolist())

    def parse_entry(self, index: int) -> dict[str, object]:
        """One of the entries."""
        begin = int(self.begin[index])
        end = begin + int(self._layouts.byte_length[self._layout[index]])
        entry: dict[str, object] = orjson.loads(b"{" + self._text[begin : end - 1])  # without its comma
        return entry

    def arg_groups(self, indices: list[int]) -> list[int]:
        """Which args the outlines of these entries looked for."""
        return cast("list[int]", self._layouts.group[self._layout[indices]].tolist())


class EntryNumbers:
    """Numbers read from n entries, by kind (`outlines.py`), those of a kind in the order of their entries.

    `entry`, `value` int64, `digits` uint8 [all of them]. `bound[kind]`: where those of a kind begin.
    """

    def __init__(self, size: int, bound: list[int], entry: I64, value: I64, digits: U8) -> None:
        self._size = size
        self._bounds = bound
        self._entry = entry
        self._value = value
        self._digits = digits

    def _slice_of(self, kind: int) -> slice:
        """Where the numbers of a kind stand."""
        return slice(self._bounds[kind], self._bounds[kind + 1])

    def to_columns(self) -> EntryColumns | None:
        """The columns; None where a time is beyond what is done here."""
        time = self._read_nanoseconds(TIME)
        lengths = self._read_nanoseconds(DURATION)
        if time is None or lengths is None:
            return None
        duration = np.full(self._size, NO_DURATION, np.int64)
        duration[lengths[0]] = lengths[1]
        correlation = np.full(self._size, -1, np.int64)
        places, values = self._read_integers(CORRELATION)
        correlation[places] = values
        args: dict[str, tuple[I64, Array]] = {}
        for name in ARGS:
            if name in _COLUMN_INDEX:
                places, numbers = self._read_integers(name)
            else:
                sides = [self._read_integers(side) for side in triple_columns(name)]
                places, numbers = sides[0][0], np.stack([values for _, values in sides], axis=1)
            if len(places):
                args[name] = places, numbers
        return EntryColumns(time[1], duration, self._read_integers(ID), correlation, args)

    def _read_nanoseconds(self, name: str) -> tuple[I64, I64] | None:
        """Which entries have it, and int64[k] of those; None where one is too large."""
        whole, fraction = self._slice_of(_COLUMN_INDEX[name]), self._slice_of(FRACTION_OF[name])
        places, value = self._entry[whole], self._value[whole]
        if value.max(initial=0) > _MAX_MICROSECONDS[name] or value.min(initial=0) < -_MAX_MICROSECONDS[name]:
            return None
        value = value * 1000
        thousandths = self._value[fraction] * _FRACTION_SCALE[self._digits[fraction]]
        if len(thousandths) == len(value):
            value += thousandths
        else:
            value[np.searchsorted(places, self._entry[fraction])] += thousandths
        return places, value

    def _read_integers(self, name: str) -> tuple[I64, I64]:
        """Which entries have it, and int64[k] of those."""
        where = self._slice_of(_COLUMN_INDEX[name])
        return self._entry[where], self._value[where]


_COLUMN_INDEX = {name: number for number, name in enumerate(NUMBER_COLUMNS)}
