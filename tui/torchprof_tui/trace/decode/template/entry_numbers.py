"""Numbers of the entries of one text, by kind, and the columns that they become."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import F64, I64, U8, Array, Bool
from torchprof_tui.trace.decode.arg_columns import CORRELATION
from torchprof_tui.trace.decode.column_builder import EntryColumns
from torchprof_tui.trace.decode.template.layouts import (
    DURATION,
    FRACTION_OF,
    ID,
    NUMBER_COLUMNS,
    TIME,
    VALUE,
    triple_columns,
)
from torchprof_tui.trace.decode.timestamps import EXACT_MICROSECONDS, nanoseconds
from torchprof_tui.trace.model.raw_events import ARGS, NO_DURATION

_MAX_MICROSECONDS = {TIME: 4 * 10**15, DURATION: 8 * 10**12}
"""Beyond, the general decoder is needed: for absurd times (127 years), and durations that doubles have to round."""

_FRACTION_SCALE = np.array([0, 100, 10, 1])
"""Nanoseconds of the last digit of a fraction, by the number of its digits."""

_TIME_DECIMALS = 3
"""Most decimals of a time that are read by digits; more are fractions of a nanosecond, which double and decimal round
differently."""

_EXACT_DIGITS = 15
"""Most digits of a decimal number that are a quotient of two integers without rounding: 10^15 < 2^53."""

_POWERS = 10.0 ** np.arange(_EXACT_DIGITS + 1)

_COLUMN_INDEX = {name: number for number, name in enumerate(NUMBER_COLUMNS)}


@dataclass(frozen=True, slots=True)
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
        """Return the slice of the numbers of a kind."""
        return slice(self.bounds[kind], self.bounds[kind + 1])

    def _read_integers(self, name: str) -> tuple[I64, I64]:
        """Return the entries that have it, and its values, int64[k]."""
        numbers = self._slice_of(_COLUMN_INDEX[name])
        return self.entry[numbers], self.value[numbers]

    def _read_nanoseconds(self, name: str) -> tuple[I64, I64] | None:
        """Return the entries that have it, and its values, int64[k]; None if one is too large."""
        entries, value = self._read_integers(name)
        if value.max(initial=0) > _MAX_MICROSECONDS[name] or value.min(initial=0) < -_MAX_MICROSECONDS[name]:
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
        if not len(entries) or fraction.start == fraction.stop:
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
