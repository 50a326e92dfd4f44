"""The few args that analysis needs over all events, taken from a chunk's dicts before they are dropped."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import I64, Array, Bool
from torchprof_tui.trace.model.raw_events import ARGS

CORRELATION = "correlation"

OP_ARGS = ("external_id", "sequence", "forward_thread")
PYTHON_ARGS = ("python_id", "python_parent")

TRIPLE_ARGS = frozenset(("grid", "block"))
"""Args with three values an entry."""

_JSON_KEYS: dict[str, tuple[str, ...]] = {**ARGS, CORRELATION: (CORRELATION,)}
_NAME_OF_KEY = {key: name for name, keys in _JSON_KEYS.items() for key in keys}
_WANTED_KEYS = frozenset(_NAME_OF_KEY)

_ABSENT = -(2**63) + 7
"""What no arg is: marks the entries that have none while a column is made."""

Args = dict[str, Any]


def select_objects(args: list[Any], indices: I64) -> tuple[list[Args], I64]:
    """The args that are objects, and the places of those entries."""
    objects = [type(arg) is dict for arg in args]
    return [arg for arg in args if type(arg) is dict], indices[np.array(objects, np.bool_)]


class ChunkArgColumns:
    """The wanted args of one chunk of n entries, by our own short name."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._columns: dict[str, tuple[Array, Bool]] = {}

    def extract_present(self, args: list[Args], indices: I64) -> None:
        """All wanted args that any of these entries has. Raises TypeError, AttributeError where args are no objects."""
        present = _WANTED_KEYS.intersection(chain.from_iterable(args))
        if present:
            self.extract(dict.fromkeys(_NAME_OF_KEY[key] for key in present), args, indices)

    def extract(self, names: Iterable[str], args: list[Args], indices: I64) -> None:
        """These args of the entries at `places`. Raises AttributeError where args are no objects."""
        for name in names:
            keys = _JSON_KEYS[name]
            values, having = _triple_column(args, keys[0]) if name in TRIPLE_ARGS else _integer_column(args, keys)
            if not len(values):
                continue
            column, has = self._get_or_create_column(name)
            where = indices if having is None else indices[having]
            column[where] = values
            has[where] = True

    def _get_or_create_column(self, name: str) -> tuple[Array, Bool]:
        known = self._columns.get(name)
        if known is None:
            shape = (self._size, 3) if name in TRIPLE_ARGS else (self._size,)
            known = self._columns[name] = (np.full(shape, -1, np.int64), np.zeros(self._size, np.bool_))
        return known

    def correlation(self) -> I64:
        """int64[n], -1 where there is none."""
        return self._get_or_create_column(CORRELATION)[0].astype(np.int64, copy=False)

    def sparse_columns(self) -> dict[str, tuple[I64, Array]]:
        """Places, ascending, and values of all args but the correlation."""
        return {
            name: (np.flatnonzero(has), column[has])
            for name, (column, has) in self._columns.items()
            if name != CORRELATION
        }


def _integer_column(args: list[Args], keys: tuple[str, ...]) -> tuple[I64, I64 | None]:
    """int64[k] of the first of the keys that an entry has, and which entries have one (None: all)."""
    key, *others = keys
    try:
        return np.fromiter(map(itemgetter(key), args), np.int64, len(args)), None
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    try:
        column = np.fromiter([arg.get(key, _ABSENT) for arg in args], np.int64, len(args))
    except (TypeError, ValueError, OverflowError):
        column = np.array([_to_int64(arg.get(key)) for arg in args], np.int64)
    for other in others:
        for place in np.flatnonzero(column == _ABSENT).tolist():
            column[place] = _to_int64(args[place].get(other))
    having = np.flatnonzero(column != _ABSENT)
    return column[having], having


def _to_int64(value: Any) -> int:
    """As int64: addresses above 2^63 wrap; strings count, hexadecimal ones too; _NOTHING for everything else."""
    try:
        number = int(value, 16) if isinstance(value, str) and value[:2].lower() == "0x" else int(value)
    except (TypeError, ValueError, OverflowError):
        return _ABSENT
    if not -(2**63) <= number < 2**64:
        return _ABSENT
    return number - 2**64 if number >= 2**63 else number


def _triple_column(args: list[Args], key: str) -> tuple[I64, I64 | None]:
    """int64[k, 3], and which entries have three numbers there (None: all)."""
    values: list[Any] = [arg.get(key) for arg in args]
    try:
        if set(map(len, values)) == {3}:
            flat = np.fromiter(chain.from_iterable(values), np.int64, 3 * len(values))
            return flat.reshape(-1, 3), None
    except (TypeError, ValueError, OverflowError):
        pass
    having = [place for place, value in enumerate(values) if _is_triple(value)]
    triples = np.array([values[place] for place in having], np.int64).reshape(-1, 3)
    return triples, np.array(having, np.int64)


def _is_triple(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(type(n) is int and abs(n) < 2**63 for n in value)
