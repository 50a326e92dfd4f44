"""Number the ids of flows, async events, objects and counters: entries with the same id belong together.

Few entries have an id; a file has about as many ids as launches, almost all of them integers. Integers are stored as
they are and get codes from 0 on all at once in the end; only other ids are looked up one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Array
from torchprof_tui.trace.core.factorize import factorize
from torchprof_tui.trace.core.growable_array import ArrayFiller, GrowableArray
from torchprof_tui.trace.decode.interning import text_of

_MAX_DIGITS = 18
_MAX_INTEGER_KEY = 10**_MAX_DIGITS
"""Integers from 0 up to here are their own key; the keys of texts are negative."""


@dataclass(frozen=True, slots=True)
class IdTablePart:
    """The ids of one part of a file: how many, and the text of key -1 - k. The arrays are in `IdTable.drain_arrays`."""

    count: int
    texts: list[str]


class IdTable:
    """Collects the ids of entries in the order of the file."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}
        self._entries = GrowableArray(np.int32)
        self._keys = GrowableArray(np.int64)

    def key(self, value: Any) -> int:
        """Return the key of an id; 12, 12.0 and "12" have the same key."""
        if type(value) is int and 0 <= value < _MAX_INTEGER_KEY:
            return value
        text = text_of(value)
        if len(text) <= _MAX_DIGITS and text.isascii() and text.isdigit() and str(int(text)) == text:
            return int(text)
        return -1 - self._texts.setdefault(text, len(self._texts))

    def add(self, entries: I64, keys: I64) -> None:
        """Add the next entries that have an id, and its key."""
        self._entries.extend(entries)
        self._keys.extend(keys)

    def add_integers(self, entries: I64, values: I64) -> None:
        """Add the next entries that have an id, which is an integer of up to 64 bits."""
        other = np.flatnonzero((values < 0) | (values >= _MAX_INTEGER_KEY))
        if len(other):
            values = values.copy()
            values[other] = [self.key(value) for value in values[other].tolist()]
        self.add(entries, values)

    def finish_part(self) -> IdTablePart:
        """Return what was added, for `append_part`; nothing can be added afterwards."""
        return IdTablePart(len(self._keys), list(self._texts))

    def drain_arrays(self) -> Iterator[Array]:
        """Yield the arrays that `append_part` fills in: the entries, by ordinal in the part, and their keys."""
        yield self._entries.finish()
        yield self._keys.finish()

    def make_room(self, parts: list[IdTablePart]) -> None:
        """Make room for these parts, before the first is appended."""
        for column in (self._entries, self._keys):
            column.make_room(sum(part.count for part in parts))

    def append_part(self, part: IdTablePart, fill: ArrayFiller, entries_before: int) -> None:
        """Append the ids of a part that another process decoded, after `entries_before` entries."""
        known = np.array([self.key(text) for text in part.texts], np.int64)

        def renumber_texts(keys: I64) -> None:
            other = np.flatnonzero(keys < 0)
            keys[other] = known[-1 - keys[other]]

        fill(
            self._entries.reserve(part.count),
            lambda entries: np.add(entries, entries_before, out=entries, casting="unsafe"),
        )
        fill(self._keys.reserve(part.count), renumber_texts if part.texts else None)

    def finish(self, count: int) -> tuple[I32, Sequence[str]]:
        """Return int32[count], the code of each entry's id, -1 for none; and the text of each code."""
        codes, keys = factorize(self._keys.finish())
        column = np.full(count, -1, np.int32)
        column[self._entries.finish()] = codes
        return column, IdTexts(keys, list(self._texts))


class IdTexts(Sequence[str]):
    """Ids as text, each created on access, because few are ever read. `keys` int64[k], ascending."""

    def __init__(self, keys: I64, texts: list[str]) -> None:
        self._keys = keys
        self._texts = texts

    def __len__(self) -> int:
        return len(self._keys)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        key = int(self._keys[index])
        return str(key) if key >= 0 else self._texts[-1 - key]

    def __repr__(self) -> str:
        return repr(list(self))
