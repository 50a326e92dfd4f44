"""Convert `ts` and `dur`, microseconds in the file, to exact integer nanoseconds.

A double holds three decimals of a microsecond below 2^43 (101 days; Kineto's base time is at most three months ago).
Above that, as in traces that count from the epoch, the digits are parsed again from the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import compress
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import F64, I64, Bool
from torchprof_tui.trace.core.bounded_json import dump_bounded
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.problems import BAD_DURATION, BAD_TIME, ROUNDED_TIME, ProblemTally, excerpt
from torchprof_tui.trace.model.raw_events import NO_DURATION, NO_TIME

EXACT_MICROSECONDS = 2.0**43
"""Below, doubles are at most 2^-10 apart: rounding to thousandths restores the written digits."""

_MAX_MICROSECONDS = 2.0**62 / 1000  # 146 years. Beyond, sums of times would overflow int64.

_TS_DIGITS = compile_later(rb'"ts"\s*:\s*"?(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)')
_THREE_DECIMALS = compile_later(rb"(?:-?\d+\.\d{3} )*\Z")


def nanoseconds(microseconds: F64) -> I64:
    """Round to nanoseconds, whole part and fraction apart: multiplying a float by 1000 loses the last digit."""
    whole = np.floor(microseconds)
    result: I64 = whole.astype(np.int64)
    result *= 1000
    result += np.rint((microseconds - whole) * 1000).astype(np.int64)
    return result


def parse_times(values: Sequence[Any], text: bytes, tally: ProblemTally) -> I64:
    """Parse the `ts` of n entries, None for an entry without one: int64[n]; `text` holds the entries in that order."""
    micro = _to_floats(values)
    result = _convert_microseconds(values, micro, NO_TIME, BAD_TIME, tally)
    if _exceeds_exact_range(micro).any() and any(type(value) is not int for value in values):
        _restore_exact_times(values, micro, text, result, tally)
    return result


def parse_durations(values: Sequence[Any], tally: ProblemTally) -> I64:
    """Parse the `dur` of n entries, None for an entry without one: int64[n]."""
    return _convert_microseconds(values, _to_floats(values), NO_DURATION, BAD_DURATION, tally)


def _to_floats(values: Sequence[Any]) -> F64:
    """Convert to float: numbers in strings too; NaN for None and everything else."""
    try:
        return np.fromiter(values, np.float64, len(values))
    except (TypeError, ValueError):
        return np.fromiter(map(_to_float, values), np.float64, len(values))


def _to_float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan


def _convert_microseconds(values: Sequence[Any], micro: F64, missing: int, kind: str, tally: ProblemTally) -> I64:
    """Convert to ns; `missing` where there is no number or an absurd one, which is counted and set to 0 in `micro`."""
    bad = ~(np.abs(micro) < _MAX_MICROSECONDS)
    count = int(np.count_nonzero(bad))
    if not count:
        return nanoseconds(micro)
    wrong = count - values.count(None)
    if wrong:
        example = next(
            value for value, is_bad in zip(values, bad.tolist(), strict=True) if is_bad and value is not None
        )
        tally.add(kind, excerpt(repr(example) if isinstance(example, str) else dump_bounded(example)), wrong)
    micro[bad] = 0
    result = nanoseconds(micro)
    result[bad] = missing
    return result


def _restore_exact_times(values: Sequence[Any], micro: F64, text: bytes, result: I64, tally: ProblemTally) -> None:
    """Replace times that doubles cannot hold by the written ones; other times must not depend on their neighbours."""
    rows = np.flatnonzero(result != NO_TIME)
    digits: list[bytes] = _TS_DIGITS.findall(text)
    if len(digits) != len(rows) or not np.array_equal(_parse_digits(digits), micro[rows]):
        # Args may hold a "ts" too, and a repaired entry may have written its own differently.
        rounded = _count_non_integers(values, rows[_exceeds_exact_range(micro[rows])])
        rows, digits = _match_digits(rows, micro[rows], digits)
        lost = rounded - _count_non_integers(values, rows[_exceeds_exact_range(micro[rows])])
        if lost:
            tally.add(ROUNDED_TIME, f"{lost} in one chunk of the file", lost)
    far = _exceeds_exact_range(micro[rows])
    rows, digits = rows[far], list(compress(digits, far.tolist()))
    joined = b" ".join([*digits, b""])
    if _THREE_DECIMALS.match(joined):
        result[rows] = np.fromiter(map(int, joined.replace(b".", b"").split()), np.int64, len(rows))
    else:
        result[rows] = [int((Decimal(each.decode()) * 1000).to_integral_value()) for each in digits]


def _exceeds_exact_range(micro: F64) -> Bool:
    return np.abs(micro) >= EXACT_MICROSECONDS


def _count_non_integers(values: Sequence[Any], rows: I64) -> int:
    return sum(type(values[row]) is not int for row in rows.tolist())


def _parse_digits(digits: Sequence[bytes]) -> F64:
    return np.fromiter(map(float, digits), np.float64, len(digits))


def _match_digits(rows: I64, micro: F64, digits: list[bytes]) -> tuple[I64, list[bytes]]:
    """Match rows with written digits by value, in order. Returns the rows that have a match, and the digits of each."""
    written = _parse_digits(digits).tolist()
    next_index = 0
    matches: list[tuple[int, bytes]] = []
    for row, value in zip(rows.tolist(), micro.tolist(), strict=True):
        try:
            index = written.index(value, next_index)
        except ValueError:
            continue
        matches.append((row, digits[index]))
        next_index = index + 1
    return np.fromiter((row for row, _ in matches), np.int64, len(matches)), [text for _, text in matches]
