"""Intern repeated values as small integer codes, in dicts that assign the next code to a missing key.

Few entries have an id; a file has about as many ids as launches, almost all of them integers. Integers are stored as
they are and get codes from 0 on all at once in the end; only other ids are looked up one by one.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, U8, U16, Array, ArrayFiller, Bool, factorize
from torchprof_tui.trace.core.bounded_json import dump_bounded
from torchprof_tui.trace.core.growable_array import GrowableArray
from torchprof_tui.trace.core.thread_tasks import take_parallel
from torchprof_tui.trace.model.event_kind import Kind, kind_of_category

MAX_CATEGORIES = 2**16 - 1

PHASES_WITH_ID = frozenset("stfbneSTpFNODC")  # phases whose `id` groups entries: flows, async events, objects, counters
PHASES_WITHOUT_ARGS = frozenset("stfNOD")  # phases whose args are in no column

GROUP_NONE, GROUP_METADATA, GROUP_COUNTER, GROUP_OP, GROUP_PYTHON, GROUP_OTHER = range(6)
"""Arg groups, which decide what args are extracted. From GROUP_OTHER on there is a group for each category."""

_STREAM_TID = re.compile(r"stream (-?\d+)")


def text_of(value: Any) -> str:
    """Convert a name, an id or a category of any type to text: 12, 12.0 and "12" are the same, None is ""."""
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return dump_bounded(value).decode()


def track_of(pid: Any, tid: Any) -> tuple[str, str]:
    """Convert (pid, tid) to text; torch 1.9 called one stream both `7` and `stream 7`."""
    thread = text_of(tid)
    stream = _STREAM_TID.fullmatch(thread) if thread[:6] == "stream" else None
    return text_of(pid), stream[1] if stream else thread


class TextTable(defaultdict[Any, int]):
    """Codes for strings, in the order of their first use. Other hashable values may be looked up as well."""

    def __init__(self) -> None:
        super().__init__(itertools.count().__next__)

    def finish(self, codes: I32) -> tuple[I32, list[str]]:
        """Return the column, and the text of each code, every text once."""
        texts = [key if type(key) is str else text_of(key) for key in self]
        self.clear()
        unique = dict.fromkeys(texts)
        if len(unique) == len(texts):
            return codes, texts
        # Some text occurred as a string and as a number.
        code_of = {text: code for code, text in enumerate(unique)}
        recoded = np.array([code_of[text] for text in texts], np.int32)
        return recoded[codes], list(unique)


class PhaseCategory(NamedTuple):
    """What a phase and a category determine.

    `phase`, `category`: as in RawEvents. `group`: the arg group. `with_id`: whether the id is extracted.
    `category_overflow`: whether the category has no code because there are too many.
    """

    phase: int
    category: int
    group: int
    with_id: bool
    category_overflow: bool


class SignatureTable(dict[tuple[Any, Any, Any, Any], int]):
    """Codes for signatures, (ph, cat, pid, tid), and the columns that a signature determines.

    A file may have a million signatures, but then few pairs of phase and category, so there are only two small columns
    by signature: the code of that pair, and the track.
    """

    def __init__(self) -> None:
        super().__init__()
        self.categories: dict[str, int] = {"": 0}
        self.tracks: dict[tuple[str, str], int] = {}
        self._phase_categories: list[PhaseCategory] = []
        self._phase_category_codes: dict[tuple[str, str], int] = {}
        self._pending: list[int] = []  # two codes per signature, until they are moved to the columns
        self._phase_category = GrowableArray(np.int32)
        self._track = GrowableArray(np.int32)

    def __missing__(self, key: tuple[Any, Any, Any, Any]) -> int:
        ph, cat, pid, tid = key
        code = self[key] = len(self)
        pair = (ph if type(ph) is str else "", text_of(cat))
        pair_code = self._phase_category_codes.get(pair)
        if pair_code is None:
            pair_code = self._phase_category_codes[pair] = len(self._phase_categories)
            phase, category = pair
            overflow = category not in self.categories and len(self.categories) >= MAX_CATEGORIES
            category_code = 0 if overflow else self.categories.setdefault(category, len(self.categories))
            group = arg_group_of(phase, category, category_code)
            known = len(phase) == 1 and phase.isascii()
            with_id = known and phase in PHASES_WITH_ID
            self._phase_categories.append(
                PhaseCategory(ord(phase) if known else 0, category_code, group, with_id, overflow)
            )
        track = track_of(pid, tid)
        self._pending += (pair_code, self.tracks.setdefault(track, len(self.tracks)))
        return code

    def _flush_pending(self) -> I32:
        """Move pending signatures to the columns. Returns the phase-category code of every signature."""
        pending = np.array(self._pending, np.int32).reshape(-1, 2)
        self._pending.clear()
        self._phase_category.extend(pending[:, 0])
        self._track.extend(pending[:, 1])
        return self._phase_category.view

    def groups(self, signature: I32) -> I32:
        """Return the arg group of entries with these signatures."""
        groups: I32 = self._gather_field("group", np.int32)[self._flush_pending()[signature]]
        return groups

    def with_id(self, signature: I32) -> Bool:
        """Tell whether the id of entries with these signatures is extracted."""
        with_id: Bool = self._gather_field("with_id", np.bool_)[self._flush_pending()[signature]]
        return with_id

    def columns(self, signature: I32) -> tuple[U8, U16, I32, int]:
        """Return phase, category and track of entries with these signatures, and how many have no category code.

        The tracks overwrite `signature`.
        """
        pair_code = self._flush_pending()
        phase = take_parallel(self._gather_field("phase", np.uint8)[pair_code], signature)
        category = take_parallel(self._gather_field("category", np.uint16)[pair_code], signature)
        overflow = self._gather_field("category_overflow", np.bool_)[pair_code]
        overflow_count = int(np.count_nonzero(take_parallel(overflow, signature))) if overflow.any() else 0
        return phase, category, take_parallel(self._track.view, signature, signature), overflow_count

    def _gather_field(self, name: str, dtype: Any) -> Any:
        return np.array([getattr(pair, name) for pair in self._phase_categories], dtype)


def arg_group_of(ph: Any, category: str, code: int = 0) -> int:
    """Return the arg group of entries of this phase and category; `code` is the category's."""
    if ph == "M":
        return GROUP_METADATA
    if ph == "C":
        return GROUP_COUNTER
    if isinstance(ph, str) and ph in PHASES_WITHOUT_ARGS:  # it may be a list
        return GROUP_NONE
    kind = kind_of_category(category)
    if kind is Kind.OP:
        return GROUP_OP
    return GROUP_PYTHON if kind is Kind.PYTHON else GROUP_OTHER + code


_MAX_DIGITS = 18
_MAX_INTEGER_KEY = 10**_MAX_DIGITS  # integers from 0 up to here are their own key; the keys of texts are negative


TablePart: TypeAlias = tuple[int, list[str]]
"""The rows of a table of one part of a file: how many, and the texts in the order of their codes, without the columns,
which come from `PartTable.drain_arrays`."""


class PartTable:
    """Base of tables that are made part by part, in several processes: columns of equal length, and codes of texts."""

    def __init__(self, *columns: GrowableArray) -> None:
        self._texts: dict[str, int] = {}
        self._columns = columns

    def finish_part(self) -> TablePart:
        """Return what was added, for `append_part`; nothing can be added afterwards."""
        return len(self._columns[0]), list(self._texts)

    def drain_arrays(self) -> Iterator[Array]:
        """Yield the columns of a part, for `append_part` to fill in."""
        for column in self._columns:
            yield column.finish()

    def make_room(self, parts: list[TablePart]) -> None:
        """Make room for these parts, before the first is appended."""
        for column in self._columns:
            column.make_room(sum(count for count, _ in parts))


class IdTable(PartTable):
    """Collects the ids of entries in the order of the file. The text of key -1 - k has code k."""

    def __init__(self) -> None:
        self._entries, self._keys = GrowableArray(np.int32), GrowableArray(np.int64)
        super().__init__(self._entries, self._keys)

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

    def append_part(self, part: TablePart, fill: ArrayFiller, entries_before: int) -> None:
        """Append the ids of a part that another process decoded, after `entries_before` entries."""
        count, texts = part
        known = np.array([self.key(text) for text in texts], np.int64)

        def renumber_texts(keys: I64) -> None:
            other = np.flatnonzero(keys < 0)
            keys[other] = known[-1 - keys[other]]

        fill(
            self._entries.reserve(count), lambda entries: np.add(entries, entries_before, out=entries, casting="unsafe")
        )
        fill(self._keys.reserve(count), renumber_texts if texts else None)

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

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        key = int(self._keys[index])
        return str(key) if key >= 0 else self._texts[-1 - key]

    def __repr__(self) -> str:
        return repr(list(self))
