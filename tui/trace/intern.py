"""Repeated values become small numbers: dicts whose misses assign the next one."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from typing import Any

import numpy as np
import orjson

from tui.trace.arrays import I32, Bool
from tui.trace.grown import Grown
from tui.trace.kinds import Kind, kind_of_category

MOST_CATEGORIES = 2**16 - 1

WITH_ID = frozenset("stfbneSTpFNODC")
"""Phases whose `id` says what they belong to: flows, async events, objects, counters."""

WITHOUT_ARGS = frozenset("stfNOD")
"""Phases whose args no column holds."""

NONE, METADATA, COUNTER, OP, PYTHON, OTHER = range(6)
"""Which args are looked for. From OTHER on there is a group for each category."""

_STREAM = re.compile(r"stream (-?\d+)")


def text_of(value: Any) -> str:
    """A name, an id or a category as text, whatever its type: 12, 12.0 and "12" are the same, None is ""."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return orjson.dumps(value).decode()


def track_of(pid: Any, tid: Any) -> tuple[str, str]:
    """(pid, tid) as text; torch 1.9 called one stream both `7` and `stream 7`."""
    thread = text_of(tid)
    stream = _STREAM.fullmatch(thread)
    return text_of(pid), stream[1] if stream else thread


class Texts(defaultdict[Any, int]):
    """Numbers for strings, in the order in which they turn up. Other hashable values may be looked up as well."""

    def __init__(self) -> None:
        super().__init__(itertools.count().__next__)

    def finish(self, codes: I32) -> tuple[I32, list[str]]:
        """The column, and the text of each of its numbers, every text once. -1 in the column stays."""
        # Ids are integers, and as many as there are launches.
        texts = [key if type(key) is str else str(key) if type(key) is int else text_of(key) for key in self]
        self.clear()
        unique = dict.fromkeys(texts)
        if len(unique) == len(texts):
            return codes, texts
        # The same text came as a string and as a number.
        place = {text: k for k, text in enumerate(unique)}
        renumbered = np.array([*(place[text] for text in texts), -1], np.int32)
        return renumbered[codes], list(unique)


class Shapes(dict[tuple[Any, Any, Any, Any], int]):
    """Numbers for (ph, cat, pid, tid), and what follows from them; lists by number.

    `phase`, `category`, `track`: as in RawEvents. `crowded`: whether the category found no number.
    """

    def __init__(self) -> None:
        super().__init__()
        self.phase: list[int] = []
        self.category: list[int] = []
        self.track: list[int] = []
        self.crowded: list[bool] = []
        self.categories: dict[str, int] = {"": 0}
        self.tracks: dict[tuple[str, str], int] = {}
        self._groups: list[int] = []
        self._with_id: list[bool] = []
        self._group_column = Grown(np.int32)  # the lists' values, moved here: a file may have a million shapes
        self._with_id_column = Grown(np.bool_)

    def __missing__(self, key: tuple[Any, Any, Any, Any]) -> int:
        ph, cat, pid, tid = key
        code = self[key] = len(self)
        known_phase = isinstance(ph, str) and len(ph) == 1 and ph.isascii()
        self.phase.append(ord(ph) if known_phase else 0)
        text = text_of(cat)
        crowded = text not in self.categories and len(self.categories) >= MOST_CATEGORIES
        category = 0 if crowded else self.categories.setdefault(text, len(self.categories))
        self.crowded.append(crowded)
        self.category.append(category)
        self.track.append(self.tracks.setdefault(track_of(pid, tid), len(self.tracks)))
        self._with_id.append(known_phase and ph in WITH_ID)
        self._groups.append(group_of(ph, text, category))
        return code

    def groups(self) -> I32:
        """By number: which args are looked for."""
        self._group_column.extend(np.array(self._groups, np.int32))
        self._groups.clear()
        return self._group_column.so_far

    def with_id(self) -> Bool:
        """By number: whether an id is looked for."""
        self._with_id_column.extend(np.array(self._with_id, np.bool_))
        self._with_id.clear()
        return self._with_id_column.so_far


def group_of(ph: Any, category: str, code: int = 0) -> int:
    """Which args are looked for in entries of this phase and category, the number of which is `code`."""
    if ph == "M":
        return METADATA
    if ph == "C":
        return COUNTER
    if ph in WITHOUT_ARGS:
        return NONE
    kind = kind_of_category(category)
    if kind is Kind.OP:
        return OP
    return PYTHON if kind is Kind.PYTHON else OTHER + code
