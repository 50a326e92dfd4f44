"""Templates of entries: parse the text of an entry once, for all entries that differ from it only in digits.

The *template* of an entry is its text with every *run* of digits, of any length, replaced by one RUN_MARK; a
trace of a million entries has some hundred. To parse one, its marks are filled with numbers that identify the mark, the
text is parsed as JSON, and the number found under `ts` is where every entry of the template has its `ts`. The parse is
also the proof: digits cannot change how the rest of a text is parsed, except in three cases: an integer with a leading
zero (`integer_runs`: where that would matter), a number out of range, and a `\\u` escape. Templates with an exponent
or a `\\u` are not supported, nor are those of rare entries. The general decoder handles those and all others that are
not plain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import orjson

from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.decode.arg_columns import CORRELATION, OP_ARGS, PYTHON_ARGS, TRIPLE_ARGS
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

RUN_MARK = b"\x01"
"""Replaces a run. Valid JSON never contains this byte."""

_HEAD_KEYS = ("ph", "cat", "name", "pid", "tid")

_STRING = compile_later(rb'"(?:[^"\\]|\\.)*"')
_INTEGER = compile_later(rb"(?<![.\d])1([0-9]{4})1")
_EXPONENT = compile_later(rb"\d[eE]")
_MARKERS = compile_later(r"1([0-9]{4})1")
_DECIMAL = compile_later(r"-?1([0-9]{4})1\.1([0-9]{4})1")


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


@dataclass(frozen=True, slots=True)
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
    if not masked_text.endswith(b",") or not 0 < run_count < 10_000 or b"\\u" in masked_text:
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
    series = None
    if group == GROUP_COUNTER:
        series, numbers[VALUE] = _locate_sample(entry.get("args"))
    elif type(entry.get("args")) is dict:
        numbers |= _locate_args(entry["args"], group)
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
        numbers[ID] = _locate_integer(entry.get("id"))
    return numbers


def _locate_sample(args: Any) -> tuple[str | None, NumberPosition | None]:
    """Return the series of a counter and the position of its value; (None, None) unless there is exactly one."""
    if type(args) is not dict or len(args) != 1:
        return None, None
    series, value = next(iter(args.items()))
    return (None, None) if _MARKERS.search(series) else (series, _locate_number(value))


def _locate_integer(value: Any) -> NumberPosition | None:
    match = _MARKERS.fullmatch(str(abs(value))) if type(value) is int else None
    return NumberPosition(int(match[1]), -1, value < 0) if match else None


def _locate_number(value: Any) -> NumberPosition | None:
    if type(value) is not float:
        return _locate_integer(value)
    match = _DECIMAL.fullmatch(repr(value))
    return NumberPosition(int(match[1]), int(match[2]), value < 0) if match else None


def _locate_args(args: dict[str, Any], group: int) -> dict[str, NumberPosition | None]:
    """Locate the wanted args, None for values that are not plain integers. The same args as `arg_columns.py`."""
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
