"""What the skeleton of an entry says about every entry that has it: parsed once, true of a million.

An entry's *skeleton* is its text with every *run* of digits, whatever its length, replaced by one MARK; a trace of a
million entries has some hundred. To learn one, its marks are filled with numbers that tell which mark they stand for,
the text is parsed as JSON, and the number that turns up under `ts` is where every such entry has its `ts`. The parse is
also the proof: digits cannot change how the rest of a text is read, apart from an integer with a leading zero (`whole`:
where that would matter), a number out of range, and
`\\u` escapes; skeletons with an exponent or a `\\u` are not understood, nor are those of rare entries. Those, and
whatever else is not plain, are for the general reader.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import orjson

from torchprof_tui.trace.core.arrays import Bool
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
"""Stands for a run. No text that is valid JSON holds this byte."""

_HEAD_KEYS = ("ph", "cat", "name", "pid", "tid")

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_INTEGER = re.compile(rb"(?<![.\d])1([0-9]{4})1")
_EXPONENT = re.compile(rb"\d[eE]")
_MARKERS = re.compile(r"1([0-9]{4})1")
_DECIMAL = re.compile(r"-?1([0-9]{4})1\.1([0-9]{4})1")


TIME, DURATION, ID = "ts", "dur", "id"


def triple_columns(name: str) -> list[str]:
    """The columns of an arg with three values."""
    return [f"{name} {k}" for k in range(3)]


NUMBER_COLUMNS = [TIME, DURATION, ID, CORRELATION]
for _name in ARGS:
    NUMBER_COLUMNS += triple_columns(_name) if _name in TRIPLE_ARGS else [_name]
"""What numbers are read for; `grid 0`, `grid 1`, `grid 2` are the three of one arg."""


class NumberPosition(NamedTuple):
    """Where a number stands: the run of its whole part, that of its fraction (-1: none), its sign."""

    run: int
    fraction: int
    negative: bool


@dataclass(frozen=True, slots=True)
class Template:
    """What a skeleton says. Runs are counted from 0 within the entry.

    `head`: runs that make out phase, category, name, pid and tid. `group`: which args were looked for, with OTHER for
    all categories of their own. `numbers`: column → where its value stands. `whole` bool[runs]: runs that are whole
    parts of numbers.
    """

    head_runs: tuple[int, ...]
    group: int
    numbers: dict[str, NumberPosition]
    integer_runs: Bool


def parse_template(masked_text: bytes) -> Template | None:
    """What there is to know of entries whose text is a brace and this, runs put back, up to the comma at its end.

    None: not understood.
    """
    pieces = masked_text.removesuffix(b",").split(RUN_MARK)
    runs = len(pieces) - 1
    if not masked_text.endswith(b",") or not 0 < runs < 10_000 or b"\\u" in masked_text:
        return None
    text = b"{" + b"".join(b"%b1%04d1" % (piece, k) for k, piece in enumerate(pieces[:-1])) + pieces[-1]
    try:
        entry = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    bare = _STRING.sub(b'""', text)
    if type(entry) is not dict or _EXPONENT.search(bare) or text.count(b'"ts"') != 1:
        return None
    if any(map(_MARKERS.search, entry)):  # a key with digits may be `id2`; no key of an arg that is wanted has any
        return None
    head = _find_head_runs(entry)
    group = min(arg_group_of(entry.get("ph"), text_of(entry.get("cat"))), GROUP_OTHER)
    if head is None or group in (GROUP_METADATA, GROUP_COUNTER):
        return None
    numbers = {TIME: _locate_number(entry.get("ts"))}
    if "dur" in entry:
        numbers[DURATION] = _locate_number(entry["dur"])
    if entry.get("ph") in PHASES_WITH_ID and "id" in entry:
        numbers[ID] = _locate_integer(entry.get("id"))
    args = entry.get("args")
    if type(args) is dict:
        numbers |= _locate_args(args, group)
    known = {name: number for name, number in numbers.items() if number is not None}
    if len(known) < len(numbers):
        return None
    whole = np.zeros(runs, np.bool_)
    whole[[int(found) for found in _INTEGER.findall(bare)]] = True
    return Template(head, group, known, whole)


def _find_head_runs(entry: dict[str, Any]) -> tuple[int, ...] | None:
    """The runs in what names the entry and its track; None where something there is neither text nor integer."""
    runs: list[int] = []
    if type(entry.get("name")) is not str or type(entry.get("ph")) is not str:
        return None
    for key in _HEAD_KEYS:
        value = entry.get(key)
        if value is not None and type(value) not in (str, int):
            return None
        runs += map(int, _MARKERS.findall(str(value)))
    return tuple(runs)


def _locate_integer(value: Any) -> NumberPosition | None:
    found = _MARKERS.fullmatch(str(abs(value))) if type(value) is int else None
    return NumberPosition(int(found[1]), -1, value < 0) if found else None


def _locate_number(value: Any) -> NumberPosition | None:
    if type(value) is not float:
        return _locate_integer(value)
    found = _DECIMAL.fullmatch(repr(value))
    return NumberPosition(int(found[1]), int(found[2]), value < 0) if found else None


def _locate_args(args: dict[str, Any], group: int) -> dict[str, NumberPosition | None]:
    """The wanted args that are there, None for those that are no plain integers. As `sparse_args.py` has it."""
    if group == GROUP_NONE:
        return {}
    names = {GROUP_OP: OP_ARGS, GROUP_PYTHON: PYTHON_ARGS}.get(group, (CORRELATION, *ARGS))
    found: dict[str, NumberPosition | None] = {}
    for name in names:
        keys = ARGS.get(name, (name,))
        value = next((args[key] for key in keys if args.get(key) is not None), None)
        if value is None:
            continue
        if name not in TRIPLE_ARGS:
            found[name] = _locate_integer(value)
        elif type(value) is list and len(value) == 3:
            found |= dict(zip(triple_columns(name), map(_locate_integer, value), strict=True))
        else:
            found[name] = None
    return found
