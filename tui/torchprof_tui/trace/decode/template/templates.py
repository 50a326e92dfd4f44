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
from torchprof_tui.trace.decode.arg_columns import CORRELATION, OP_ARGS, PYTHON_ARGS, TRIPLES
from torchprof_tui.trace.decode.interning import (
    COUNTER,
    METADATA,
    NONE,
    OP,
    OTHER,
    PYTHON,
    WITH_ID,
    group_of,
    text_of,
)
from torchprof_tui.trace.model.raw_events import ARGS

MARK = b"\x01"
"""Stands for a run. No text that is valid JSON holds this byte."""

_HEAD = ("ph", "cat", "name", "pid", "tid")

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_INTEGER = re.compile(rb"(?<![.\d])1([0-9]{4})1")
_EXPONENT = re.compile(rb"\d[eE]")
_MARKERS = re.compile(r"1([0-9]{4})1")
_DECIMAL = re.compile(r"-?1([0-9]{4})1\.1([0-9]{4})1")


TIME, DURATION, ID = "ts", "dur", "id"


def three(name: str) -> list[str]:
    """The columns of an arg with three values."""
    return [f"{name} {k}" for k in range(3)]


COLUMNS = [TIME, DURATION, ID, CORRELATION]
for _name in ARGS:
    COLUMNS += three(_name) if _name in TRIPLES else [_name]
"""What numbers are read for; `grid 0`, `grid 1`, `grid 2` are the three of one arg."""


class Number(NamedTuple):
    """Where a number stands: the run of its whole part, that of its fraction (-1: none), its sign."""

    run: int
    fraction: int
    negative: bool


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a skeleton says. Runs are counted from 0 within the entry.

    `head`: runs that make out phase, category, name, pid and tid. `group`: which args were looked for, with OTHER for
    all categories of their own. `numbers`: column → where its value stands. `whole` bool[runs]: runs that are whole
    parts of numbers.
    """

    head: tuple[int, ...]
    group: int
    numbers: dict[str, Number]
    whole: Bool


def learn(skeleton: bytes) -> Pattern | None:
    """What there is to know of entries whose text is a brace and this, runs put back, up to the comma at its end.

    None: not understood.
    """
    pieces = skeleton.removesuffix(b",").split(MARK)
    runs = len(pieces) - 1
    if not skeleton.endswith(b",") or not 0 < runs < 10_000 or b"\\u" in skeleton:
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
    head = _head(entry)
    group = min(group_of(entry.get("ph"), text_of(entry.get("cat"))), OTHER)
    if head is None or group in (METADATA, COUNTER):
        return None
    numbers = {TIME: _number(entry.get("ts"))}
    if "dur" in entry:
        numbers[DURATION] = _number(entry["dur"])
    if entry.get("ph") in WITH_ID and "id" in entry:
        numbers[ID] = _integer(entry.get("id"))
    args = entry.get("args")
    if type(args) is dict:
        numbers |= _args(args, group)
    known = {name: number for name, number in numbers.items() if number is not None}
    if len(known) < len(numbers):
        return None
    whole = np.zeros(runs, np.bool_)
    whole[[int(found) for found in _INTEGER.findall(bare)]] = True
    return Pattern(head, group, known, whole)


def _head(entry: dict[str, Any]) -> tuple[int, ...] | None:
    """The runs in what names the entry and its track; None where something there is neither text nor integer."""
    runs: list[int] = []
    if type(entry.get("name")) is not str or type(entry.get("ph")) is not str:
        return None
    for key in _HEAD:
        value = entry.get(key)
        if value is not None and type(value) not in (str, int):
            return None
        runs += map(int, _MARKERS.findall(str(value)))
    return tuple(runs)


def _integer(value: Any) -> Number | None:
    found = _MARKERS.fullmatch(str(abs(value))) if type(value) is int else None
    return Number(int(found[1]), -1, value < 0) if found else None


def _number(value: Any) -> Number | None:
    if type(value) is not float:
        return _integer(value)
    found = _DECIMAL.fullmatch(repr(value))
    return Number(int(found[1]), int(found[2]), value < 0) if found else None


def _args(args: dict[str, Any], group: int) -> dict[str, Number | None]:
    """The wanted args that are there, None for those that are no plain integers. As `sparse_args.py` has it."""
    if group == NONE:
        return {}
    names = {OP: OP_ARGS, PYTHON: PYTHON_ARGS}.get(group, (CORRELATION, *ARGS))
    found: dict[str, Number | None] = {}
    for name in names:
        keys = ARGS.get(name, (name,))
        value = next((args[key] for key in keys if args.get(key) is not None), None)
        if value is None:
            continue
        if name not in TRIPLES:
            found[name] = _integer(value)
        elif type(value) is list and len(value) == 3:
            found |= dict(zip(three(name), map(_integer, value), strict=True))
        else:
            found[name] = None
    return found
