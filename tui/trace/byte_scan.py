"""The fast reader: chunks of text into columns, all their entries at once, without an object an entry.

The idea: entries repeat. Take the digits out, and a million entries are some hundred different texts, each of which is
parsed once (`patterns.py`). So a chunk is split into its digit runs and its skeleton (`digit_runs.py`), the skeleton is
cut between the entries, and one look-up in a dict says of each entry that it is valid JSON and which of its runs is
what. Numbers are then read by arithmetic over all entries. What entries are called, and where they stand, repeats as
well, runs included: the *head* (phase, category, name, pid, tid) is parsed once for every different one.

This would hold for any layout in which something fixed stands between two entries, but it costs by the byte, and
orjson by the value: it pays in Kineto's own, not in those that spend a line or an indentation on each number. Whatever
is not plain (metadata, counters, damage, hexadecimal ids, more than three decimals, …) makes `take` refuse the chunk,
having changed nothing: the general reader then reads it, and the next one is tried again. So both give the same
columns, and damage is told by one of them alone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import repeat
from typing import cast

import numpy as np
import orjson

from tui.trace.arrays import I32, I64, Array
from tui.trace.columns import Columns, Found
from tui.trace.digit_runs import MARK, MOST_DIGITS, U64, Runs
from tui.trace.intern import OTHER, group_of, text_of
from tui.trace.patterns import COLUMNS, DURATION, ID, TIME, Patterns, three
from tui.trace.raw import ARGS, NO_DURATION
from tui.trace.sparse_args import CORRELATION

_BETWEEN = b',\n  {\n    "'
"""What stands between two entries in the files that torch writes, from the first Kineto on."""

_LEAD = _BETWEEN[1:]

_MOST = {TIME: 4 * 10**15, DURATION: 8 * 10**12}
"""Microseconds beyond are for the general reader: absurd times (127 years), durations that doubles have to round."""

_WHOLE_DIGITS = 18
"""More may not fit 64 bits."""

_DECIMALS = 3
_SCALE = np.array([0, 100, 10, 1])
"""Nanoseconds that the last digit of a fraction stands for, by its length."""


class ByteScan:
    """Reads chunks into `columns`."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._patterns = Patterns()
        self._heads: dict[int, int] = {}
        self._shape: list[int] = []  # of each head
        self._name: list[int] = []
        self._mix = np.frombuffer(os.urandom(24), np.uint64) | np.uint64(1)

    def take(self, text: memoryview, between: bytes) -> I64 | None:
        """Take in whole entries, `between` between two of them. Where they begin, in this text; None: refused."""
        if between != _BETWEEN or text[: len(_LEAD)] != _LEAD:
            return None
        runs = Runs(text)
        if MARK in runs.padded:
            return None
        pieces = runs.skeleton().split(_BETWEEN)
        pieces[0] = pieces[0][MOST_DIGITS + len(_LEAD) :]
        pieces[-1] = pieces[-1][:-1]
        pattern = np.fromiter(map(self._patterns.__getitem__, pieces), np.int32, len(pieces))
        if not pattern.all():
            return None
        entries = Entries(len(text), runs, pattern, self._patterns)
        if entries.has_bad_number():
            return None
        numbers = entries.numbers()
        found = entries.found(numbers) if numbers is not None else None
        head = self._headed(entries) if found is not None else None
        if found is None or head is None:
            return None
        self._columns.put(np.array(self._shape, np.int32)[head], np.array(self._name, np.int32)[head], found)
        return entries.begin - len(_LEAD)

    def _headed(self, entries: Entries) -> I32 | None:
        """The number of each entry's head; None where one is not what its pattern says."""
        keys = entries.head_keys(self._mix)
        if keys is None:
            return None
        head = np.fromiter(map(self._heads.get, keys, repeat(-1)), np.int32, len(keys))
        fresh: dict[int, int] = {}
        for place in np.flatnonzero(head < 0).tolist():
            fresh.setdefault(keys[place], place)
        if not fresh:
            return head
        parsed = [entries.parse(place) for place in fresh.values()]
        groups = [min(group_of(entry.get("ph"), text_of(entry.get("cat"))), OTHER) for entry in parsed]
        if groups != entries.groups(list(fresh.values())):
            return None  # digits in a category can make another kind of it
        for key, entry in zip(fresh, parsed, strict=True):
            self._heads[key] = len(self._shape)
            shape, name = self._columns.intern(entry)
            self._shape.append(shape)
            self._name.append(name)
        return np.fromiter(map(self._heads.__getitem__, keys), np.int32, len(keys))


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers read from a text, by what they are: `ts` and what else stands in COLUMNS, its fraction as `ts.`.

    `places`: which entries have it. `digits`: how many it was written with.
    """

    places: dict[str, I64]
    value: dict[str, I64]
    digits: dict[str, I64]


class Entries:
    """n entries of one text, all of known patterns. `begin` int64[n]: where each begins, its lead left out."""

    def __init__(self, size: int, runs: Runs, pattern: I32, patterns: Patterns) -> None:
        self._size = size
        self._runs = runs
        self._pattern = pattern
        self._patterns = patterns
        many = patterns.runs[pattern]
        self._first = np.cumsum(many) - many
        self.begin: I64 = runs.start[self._first] - patterns.first[pattern]

    def has_bad_number(self) -> bool:
        """Whether the digits make a number of some run that JSON does not allow (007), or that may not fit 64 bits."""
        runs = np.concatenate([self._runs.leading_zero(), self._runs.longer_than(_WHOLE_DIGITS)])
        entry = np.searchsorted(self._first, runs, side="right") - 1
        return bool(self._patterns.is_whole(self._pattern[entry], runs - self._first[entry]).any())

    def numbers(self) -> Numbers | None:
        """All that are wanted of these entries, read at once; None where one is too long."""
        patterns, pattern = self._patterns, self._pattern
        present = np.flatnonzero(np.bincount(pattern))
        places: dict[str, I64] = {}
        asked: dict[str, I64] = {}
        for column in np.flatnonzero((patterns.run[:, present] >= 0).any(axis=1)).tolist():
            for name, table in ((COLUMNS[column], patterns.run), (f"{COLUMNS[column]}.", patterns.fraction)):
                if table is patterns.run or (table[column, present] >= 0).any():
                    run = table[column][pattern]
                    having = places[name] = np.flatnonzero(run >= 0)
                    asked[name] = self._first[having] + run[having]
        every = np.concatenate(list(asked.values()))
        end = self._runs.end[every]
        digits = end - self._runs.start[every]
        if digits.max() > MOST_DIGITS:
            return None
        bounds = np.cumsum([len(runs) for runs in asked.values()])[:-1]
        return Numbers(
            places,
            dict(zip(asked, np.split(self._runs.values(end, digits), bounds), strict=True)),
            dict(zip(asked, np.split(digits, bounds), strict=True)),
        )

    def _head_runs(self) -> I64:
        """The runs of all heads, one head after the other."""
        patterns, pattern = self._patterns, self._pattern
        length = patterns.head_length[pattern]
        before = np.cumsum(length) - length
        within = np.arange(int(length.sum())) + np.repeat(patterns.head_first[pattern] - before, length)
        runs: I64 = patterns.head[within] + np.repeat(self._first, length)
        return runs

    def found(self, numbers: Numbers) -> Found | None:
        """The columns; None where a time has more digits than double and decimal agree on."""
        size = len(self._pattern)
        time = self._nanoseconds(TIME, numbers)
        duration = np.full(size, NO_DURATION, np.int64)
        if DURATION in numbers.places:
            lengths = self._nanoseconds(DURATION, numbers)
            if lengths is None:
                return None
            duration[numbers.places[DURATION]] = lengths
        if time is None:
            return None
        correlation = np.full(size, -1, np.int64)
        if CORRELATION in numbers.places:
            correlation[numbers.places[CORRELATION]] = self._signed(CORRELATION, numbers)
        nobody = np.zeros(0, np.int64)
        ids = (numbers.places[ID], self._signed(ID, numbers)) if ID in numbers.places else (nobody, nobody)
        args: dict[str, tuple[I64, Array]] = {}
        for name in ARGS:
            if name in numbers.places:
                args[name] = numbers.places[name], self._signed(name, numbers)
            elif (first := three(name)[0]) in numbers.places:
                sides = [self._signed(side, numbers) for side in three(name)]
                args[name] = numbers.places[first], np.stack(sides, axis=1)
        return Found(time, duration, ids, correlation, args)

    def _nanoseconds(self, name: str, numbers: Numbers) -> I64 | None:
        """int64[k] of those that have it; None where one is too large, or has more than three decimals."""
        places, value = numbers.places[name], numbers.value[name]
        if value.max() > _MOST[name]:
            return None
        value = value * 1000
        fraction = f"{name}."
        if fraction in numbers.places:
            decimals = numbers.digits[fraction]
            if decimals.max() > _DECIMALS:
                return None
            at = np.searchsorted(places, numbers.places[fraction])
            value[at] += numbers.value[fraction] * _SCALE[decimals]
        return self._sign(name, places, value)

    def _signed(self, name: str, numbers: Numbers) -> I64:
        return self._sign(name, numbers.places[name], numbers.value[name])

    def _sign(self, name: str, places: I64, value: I64) -> I64:
        negative = self._patterns.negative[COLUMNS.index(name)]
        if not negative.any():
            return value
        return np.where(negative[self._pattern[places]], -value, value)

    def head_keys(self, mix: U64) -> list[int] | None:
        """A number of 64 bits for each entry's head: the same for the same pattern and the same digits in its runs.

        That two different heads among a million get the same is as likely as one in 10^7; `mix`, three odd numbers,
        is random, so that no file can be made for it. None where a run is too long.
        """
        every = self._head_runs()
        end = self._runs.end[every]
        digits = end - self._runs.start[every]
        if digits.max(initial=0) > MOST_DIGITS:
            return None
        runs = self._runs.words(end, np.minimum(digits, 8))
        long = np.flatnonzero(digits > 8)
        if len(long):
            runs[long] *= mix[0]
            runs[long] += self._runs.words(end[long] - 8, digits[long] - 8)
        runs *= mix[0]
        runs ^= runs >> np.uint64(32)
        # What a run adds depends on its place: 7 at 12 is not 12 at 7.
        length = self._patterns.head_length[self._pattern]
        last = np.cumsum(length)
        place = np.arange(len(runs)) - np.repeat(last - length, length)
        runs *= (place.view(np.uint64) << np.uint64(1)) + mix[1]
        runs ^= runs >> np.uint64(29)
        sums = np.zeros(len(runs) + 1, np.uint64)
        np.cumsum(runs, out=sums[1:])
        keys = sums[last] - sums[last - length]
        keys += self._pattern.astype(np.uint64) * mix[2]
        return cast("list[int]", keys.tolist())

    def parse(self, place: int) -> dict[str, object]:
        """One of the entries."""
        begin = int(self.begin[place])
        last = place + 1 == len(self.begin)
        end = self._size if last else int(self.begin[place + 1]) - len(_BETWEEN)
        entry: dict[str, object] = orjson.loads(_LEAD + self._runs.text(begin, end))
        return entry

    def groups(self, places: list[int]) -> list[int]:
        """Which args the patterns of these entries looked for."""
        return cast("list[int]", self._patterns.group[self._pattern[places]].tolist())
