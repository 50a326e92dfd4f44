"""What the skeleton of an entry says about every entry that has it: parsed once, true of a million.

A trace of a million entries has some hundred skeletons (`digit_runs.py`). To learn one, its marks are filled with
numbers that tell which mark they stand for, the text is parsed as JSON, and the number that turns up under `ts` is
where every such entry has its `ts`. The parse is also the proof: digits cannot change how the rest of a text is
read, apart from an integer with a leading zero (`whole`: where that would matter), a number out of range, and
`\\u` escapes; skeletons with an exponent or a `\\u` are not understood, nor are those of rare entries. Those, and
whatever else is not plain, are for the general reader.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import orjson

from tui.trace.arrays import I32, I64, Bool
from tui.trace.digit_runs import MARK
from tui.trace.intern import COUNTER, METADATA, NONE, OP, OTHER, PYTHON, WITH_ID, group_of, text_of
from tui.trace.raw import ARGS
from tui.trace.sparse_args import CORRELATION, OP_ARGS, PYTHON_ARGS, TRIPLES

MOST_PATTERNS = 4096
"""Skeletons that are learnt; a file with more is not made of repeating entries."""

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

    `first`: bytes before the first run. `head`: runs that make out phase, category, name, pid and tid. `group`: which
    args were looked for, with OTHER for all categories of their own. `numbers`: column → where its value stands.
    `whole` bool[runs]: runs that are whole parts of numbers.
    """

    runs: int
    first: int
    head: tuple[int, ...]
    group: int
    numbers: dict[str, Number]
    whole: Bool


class Patterns(dict[bytes, int]):
    """Numbers for skeletons, given without the brace and the quote that they begin with; 0 for all not understood.

    What each says, as arrays by that number: `runs`, `first` and `group` as in Pattern; `run`, `fraction` and
    `negative` [columns, patterns] as in Number, with a run of -1 where there is no such number; its head's runs are
    `head[head_first:head_first + head_length]`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runs = np.zeros(MOST_PATTERNS, np.int64)
        self.first = np.zeros(MOST_PATTERNS, np.int64)
        self.group = np.zeros(MOST_PATTERNS, np.int32)
        self.run = np.full((len(COLUMNS), MOST_PATTERNS), -1, np.int16)
        self.fraction = self.run.copy()
        self.negative = np.zeros(self.run.shape, np.bool_)
        self.head_first = np.zeros(MOST_PATTERNS, np.int64)
        self.head_length = np.zeros(MOST_PATTERNS, np.int64)
        self._count = 1
        self._head: list[int] = []
        self._head_column = np.zeros(0, np.int64)
        self._whole = bytearray()
        self._whole_first = np.zeros(MOST_PATTERNS, np.int64)

    def __missing__(self, skeleton: bytes) -> int:
        pattern = learn(skeleton) if self._count < MOST_PATTERNS else None
        if pattern is None:
            if len(self) < 2 * MOST_PATTERNS:
                self[skeleton] = 0
            return 0
        code = self[skeleton] = self._count
        self._count += 1
        self._keep(code, pattern)
        return code

    def _keep(self, code: int, pattern: Pattern) -> None:
        self.runs[code] = pattern.runs
        self.first[code] = pattern.first
        self.group[code] = pattern.group
        for name, number in pattern.numbers.items():
            column = COLUMNS.index(name)
            self.run[column, code] = number.run
            self.fraction[column, code] = number.fraction
            self.negative[column, code] = number.negative
        self.head_first[code] = len(self._head)
        self.head_length[code] = len(pattern.head)
        self._head += pattern.head
        self._whole_first[code] = len(self._whole)
        self._whole += pattern.whole.tobytes()

    @property
    def head(self) -> I64:
        """The heads' runs of all patterns, one after the other."""
        if len(self._head_column) != len(self._head):
            self._head_column = np.array(self._head, np.int64)
        return self._head_column

    def is_whole(self, patterns: I32, runs: I64) -> Bool:
        """Whether these runs, counted within entries of these patterns, are whole parts of numbers."""
        found: Bool = np.frombuffer(bytes(self._whole), np.bool_)[self._whole_first[patterns] + runs]
        return found


def learn(skeleton: bytes) -> Pattern | None:
    """What there is to know of entries whose text is `{"` and this, runs put back. None: not understood."""
    pieces = skeleton.split(MARK)
    runs = len(pieces) - 1
    if not 0 < runs < 10_000 or b"\\u" in skeleton:
        return None
    text = b'{"' + b"".join(b"%b1%04d1" % (piece, k) for k, piece in enumerate(pieces[:-1])) + pieces[-1]
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
    return Pattern(runs, len(pieces[0]), head, group, known, whole)


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
