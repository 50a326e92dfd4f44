"""Find the args that analysis needs among the args of many events, by the bytes of their names."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import I64, U8, Array, Bool
from torchprof_tui.trace.decode.arg_columns import CORRELATION, OP_ARGS, PYTHON_ARGS
from torchprof_tui.trace.decode.interning import GROUP_OP, GROUP_OTHER, GROUP_PYTHON
from torchprof_tui.trace.model.raw_events import ARGS
from torchprof_tui.trace.perfetto_protobuf.wire_format import U64

_WORD = 8
_KEYS: list[tuple[str, str]] = [(key, name) for name, keys in ARGS.items() for key in reversed(keys)]
WANTED: tuple[tuple[str, str], ...] = (*_KEYS, (CORRELATION, CORRELATION))
"""(key in args, name of the column); of several keys for one column the one that counts is last."""

DEVICE_MARK = "device id"
"""Extra data of GPU work that only torch writes."""

NAMES: tuple[str, ...] = (*(key for key, _ in WANTED), DEVICE_MARK)
MARK = len(WANTED)
"""The code of DEVICE_MARK; below are the codes of WANTED."""

COLUMNS = [name for _, name in WANTED]
CODE_OF_NAME = {name: code for code, name in enumerate(NAMES)}


_SIZES = np.array([len(name.encode()) for name in NAMES], np.int64)
_MIDDLE = range(_WORD, int(_SIZES.max()) - _WORD, _WORD)
"""Offsets of the words between the first and the last one of the longest name."""


def _build_words(text: str) -> list[int]:
    """Return the first eight bytes of a name, the last eight, and the words at the offsets of `_MIDDLE`."""
    data = text.encode()
    parts = data[:_WORD], data[-_WORD:], *(data[offset : offset + _WORD] for offset in _MIDDLE)
    return [int.from_bytes(part, "little") for part in parts]


_FACTORS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
_WORDS = np.array([_build_words(name) for name in NAMES], np.uint64)


def _hash(first: U64, last: U64, size: I64) -> U64:
    hashed: U64 = first * _FACTORS[0]
    hashed ^= last * _FACTORS[1]
    hashed += size.view(np.uint64)
    hashed *= _FACTORS[0]
    hashed >>= np.uint64(52)
    return hashed


_SLOTS = np.full(4096, -1, np.int64)
_SLOTS[_hash(_WORDS[:, 0], _WORDS[:, 1], _SIZES).astype(np.int64)] = np.arange(len(NAMES))
assert (_SLOTS >= 0).sum() == len(NAMES), "two names have one slot: choose other factors"


def find_names(words: U64, begin: I64, size: I64) -> I64:
    """Return the code of each name in the text, -1 for names that are not wanted. `words`: at every byte."""
    head = np.minimum(size, _WORD)
    first = words[begin] & _MASKS[head]
    tail_begin = begin + np.maximum(size - _WORD, 0)
    last = np.where(size > _WORD, words[tail_begin], first)
    code = _SLOTS[_hash(first, last, size).astype(np.int64)]
    known = np.flatnonzero(code >= 0)
    candidate = code[known]
    same = (_SIZES[candidate] == size[known]) & (_WORDS[candidate, 0] == first[known])
    same &= _WORDS[candidate, 1] == last[known]
    for column, offset in enumerate(_MIDDLE, 2):
        middle_size = np.clip(size[known] - offset, 0, _WORD)
        at_offset = words[begin[known] + np.minimum(size[known], offset)]
        same &= _WORDS[candidate, column] == at_offset & _MASKS[middle_size]
    code[known[~same]] = -1
    return code


def build_allowed() -> Bool:
    """Return bool[arg groups, codes]: whether events of a group have an arg in a column."""
    allowed = np.zeros((GROUP_OTHER + 1, len(NAMES)), np.bool_)
    allowed[GROUP_OTHER, : len(WANTED)] = True
    for code, name in enumerate(COLUMNS):
        allowed[GROUP_OP, code] = name in OP_ARGS
        allowed[GROUP_PYTHON, code] = name in PYTHON_ARGS
    return allowed


def parse_digits(buffer: U8, begin: I64, size: I64) -> tuple[I64, Bool]:
    """Parse numbers written as text: int64[n], and where it is one of up to 18 digits without a leading zero."""
    value = np.zeros(len(begin), np.int64)
    good = (size > 0) & (size <= 18)
    good &= (buffer[begin] != ord("0")) | (size == 1)
    for place in range(int(size[good].max(initial=0))):
        digit = buffer[np.minimum(begin + place, len(buffer) - 1)] - np.uint8(48)
        within = place < size
        good &= (digit < 10) | ~within
        value = np.where(within & good, value * 10 + digit, value)
    return value, good


def collect_columns(row: I64, code: I64, value: I64, count: int) -> tuple[I64, dict[str, tuple[I64, Array]]]:
    """Collect the args of `count` rows: the correlation, int64[count], -1 for none; and the others, by column, as
    (rows ascending, values)."""
    correlation = np.full(count, -1, np.int64)
    args: dict[str, tuple[I64, Array]] = {}
    for wanted in np.flatnonzero(np.bincount(code, minlength=len(WANTED))[: len(WANTED)]).tolist():
        chosen = code == wanted
        rows, values = row[chosen], value[chosen]
        name = COLUMNS[wanted]
        if name == CORRELATION:
            correlation[rows] = values
        else:
            args[name] = merge_arg(args.get(name), rows, values, count)
    return correlation, args


def merge_arg(known: tuple[I64, Array] | None, rows: I64, values: Array, count: int) -> tuple[I64, Array]:
    """Add values to a column; the last value of a row counts."""
    if known is None and (np.diff(rows) > 0).all():
        return rows, values
    last = np.zeros((count, *values.shape[1:]), np.int64)
    has = np.zeros(count, np.bool_)
    for some_rows, some_values in (() if known is None else (known,)) + ((rows, values),):
        last[some_rows] = some_values
        has[some_rows] = True
    present = np.flatnonzero(has)
    return present, last[present]
