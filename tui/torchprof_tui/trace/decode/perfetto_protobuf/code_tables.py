"""Codes of interned text for many events at once: of names, categories, tracks and their combinations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64

_MAX_DENSE = 1 << 20
"""Numbers below are looked up in an array."""


class CodeLookup:
    """Codes of integer keys, each computed once by `find`, which is called with the key."""

    def __init__(self, find: Callable[[int], int]) -> None:
        self._find = find
        self._dense = np.full(64, -1, np.int32)
        self._sparse: dict[int, int] = {}

    def look_up(self, keys: I64) -> I32:
        """Return the code of each key, int32[n]; keys are not negative."""
        if not len(keys):
            return np.zeros(0, np.int32)
        highest = int(keys.max())
        if highest >= _MAX_DENSE:
            return self._look_up_sparse(keys)
        if highest >= len(self._dense):
            grown = np.full(max(2 * len(self._dense), highest + 1), -1, np.int32)
            grown[: len(self._dense)] = self._dense
            self._dense = grown
        codes: I32 = self._dense[keys]
        missing = codes < 0
        if missing.any():
            for key in np.unique(keys[missing]).tolist():
                self._dense[key] = self._find(key)
            codes = self._dense[keys]
        return codes

    def _look_up_sparse(self, keys: I64) -> I32:
        distinct, index = np.unique(keys, return_inverse=True)
        codes = []
        for key in distinct.tolist():
            code = self._sparse.get(key)
            if code is None:
                code = self._sparse[key] = self._find(key)
            codes.append(code)
        return np.array(codes, np.int32)[index]


class PerTable:
    """One CodeLookup for each table of interned text; `find` is called with the table's index and the key."""

    def __init__(self, find: Callable[[int, int], int]) -> None:
        self._find = find
        self._lookups: dict[int, CodeLookup] = {}

    def look_up(self, table: I64 | int, keys: I64) -> I32:
        """Return the code of each key in its table; one table for all, or int64[n]."""
        if isinstance(table, int):
            return self._get(table).look_up(keys)
        codes = np.zeros(len(keys), np.int32)
        for index in np.unique(table).tolist():
            chosen = table == index
            codes[chosen] = self._get(index).look_up(keys[chosen])
        return codes

    def _get(self, table: int) -> CodeLookup:
        lookup = self._lookups.get(table)
        if lookup is None:
            lookup = self._lookups[table] = CodeLookup(lambda key: self._find(table, key))
        return lookup
