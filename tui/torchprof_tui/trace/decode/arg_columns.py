"""Extract the args that analysis needs for all events from the dicts of a chunk, into columns."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import I64, Array, Bool
from torchprof_tui.trace.model.raw_events import ARGS, UNREADABLE_NUMBER

CORRELATION = "correlation"

OP_ARGS = ("external_id", "sequence", "forward_thread")
PYTHON_ARGS = ("python_id", "python_parent")

TRIPLE_ARGS = frozenset(("grid", "block"))
"""Args with three values per entry."""

_JSON_KEYS: dict[str, tuple[str, ...]] = {**ARGS, CORRELATION: (CORRELATION,)}
_NAME_OF_KEY = {key: name for name, keys in _JSON_KEYS.items() for key in keys}
_WANTED_KEYS = frozenset(_NAME_OF_KEY)

_ABSENT = -(2**63) + 7
"""A value that no arg has: marks entries without the arg while a column is built."""

Args = dict[str, Any]


def select_objects(args: list[Any], indices: I64) -> tuple[list[Args], I64]:
    """Select the args that are objects, and the indices of those entries."""
    objects = [type(arg) is dict for arg in args]
    return [arg for arg in args if type(arg) is dict], indices[np.array(objects, np.bool_)]


class ChunkArgColumns:
    """The wanted args of one chunk of n entries, by the short names of `raw_events.ARGS`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._columns: dict[str, tuple[Array, Bool]] = {}

    def extract_present(self, args: list[Args], indices: I64) -> None:
        """Extract all wanted args that any entry has. Raises TypeError, AttributeError if some args are no object."""
        present = _WANTED_KEYS.intersection(chain.from_iterable(args))
        if present:
            self.extract(dict.fromkeys(_NAME_OF_KEY[key] for key in present), args, indices)

    def extract(self, names: Iterable[str], args: list[Args], indices: I64) -> None:
        """Extract these args of the entries at `indices`. Raises AttributeError if some args are no object."""
        for name in names:
            keys = _JSON_KEYS[name]
            values, present = _triple_column(args, keys[0]) if name in TRIPLE_ARGS else _integer_column(args, keys)
            if not len(values):
                continue
            column, has = self._get_or_create_column(name)
            rows = indices if present is None else indices[present]
            column[rows] = values
            has[rows] = True

    def _get_or_create_column(self, name: str) -> tuple[Array, Bool]:
        known = self._columns.get(name)
        if known is None:
            shape = (self._size, 3) if name in TRIPLE_ARGS else (self._size,)
            known = self._columns[name] = (np.full(shape, -1, np.int64), np.zeros(self._size, np.bool_))
        return known

    def correlation(self) -> I64:
        """Return the correlation, int64[n], -1 for entries without one."""
        return self._get_or_create_column(CORRELATION)[0].astype(np.int64, copy=False)

    def sparse_columns(self) -> dict[str, tuple[I64, Array]]:
        """Return, for each arg but the correlation, the indices of entries that have it, ascending, and its values."""
        return {
            name: (np.flatnonzero(has), column[has])
            for name, (column, has) in self._columns.items()
            if name != CORRELATION
        }


def _integer_column(args: list[Args], keys: tuple[str, ...]) -> tuple[I64, I64 | None]:
    """Return the value of the first key that an entry has, int64[k], and the indices of those with one (None: all)."""
    key, *other_keys = keys
    wraps = keys == ARGS["address"]
    try:
        return np.fromiter(map(itemgetter(key), args), np.int64, len(args)), None
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    try:
        column = np.fromiter([arg.get(key, _ABSENT) for arg in args], np.int64, len(args))
    except (TypeError, ValueError, OverflowError):
        column = np.array([_to_int64(arg.get(key), wraps) for arg in args], np.int64)
    for other_key in other_keys:
        for index in np.flatnonzero(column == _ABSENT).tolist():
            column[index] = _to_int64(args[index].get(other_key), wraps)
    present = np.flatnonzero(column != _ABSENT)
    return column[present], present


def _to_int64(value: Any, wraps: bool) -> int:
    """Convert to int64: strings may be hexadecimal; unsigned numbers from 2^63 on wrap if `wraps`, as addresses do.

    2^64 - 1 is -1, which means "unknown", for all. _ABSENT for nothing (null, an empty string), UNREADABLE_NUMBER for
    everything else.
    """
    if value is None or value == "":
        return _ABSENT
    try:
        number = int(value, 16) if isinstance(value, str) and value[:2].lower() == "0x" else int(value)
    except (TypeError, ValueError, OverflowError):
        return UNREADABLE_NUMBER
    if number == 2**64 - 1 or (wraps and 2**63 <= number < 2**64):
        return number - 2**64
    return number if -(2**63) <= number < 2**63 else UNREADABLE_NUMBER


def _triple_column(args: list[Args], key: str) -> tuple[I64, I64 | None]:
    """Return the triples, int64[k, 3], and the indices of the entries that have a value there (None: all).

    UNREADABLE_NUMBER, three times, for what is not three integers.
    """
    values: list[Any] = [arg.get(key) for arg in args]
    try:
        if set(map(len, values)) == {3}:
            flat = np.fromiter(chain.from_iterable(values), np.int64, 3 * len(values))
            return flat.reshape(-1, 3), None
    except (TypeError, ValueError, OverflowError):
        pass
    present = [index for index, value in enumerate(values) if value is not None]
    unreadable = [UNREADABLE_NUMBER] * 3
    triples = np.array(
        [values[index] if _is_triple(values[index]) else unreadable for index in present], np.int64
    ).reshape(-1, 3)
    return triples, np.array(present, np.int64)


def _is_triple(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(type(n) is int and abs(n) < 2**63 for n in value)
