"""Repeated values become small numbers: dicts whose misses assign the next one."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import orjson

from torchprof_tui.trace.core.arrays import I32, U8, U16, Bool, taken
from torchprof_tui.trace.core.growable_array import Grown
from torchprof_tui.trace.model.event_kind import Kind, kind_of_category

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
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return orjson.dumps(value).decode()


def track_of(pid: Any, tid: Any) -> tuple[str, str]:
    """(pid, tid) as text; torch 1.9 called one stream both `7` and `stream 7`."""
    thread = text_of(tid)
    stream = _STREAM.fullmatch(thread) if thread[:6] == "stream" else None
    return text_of(pid), stream[1] if stream else thread


class Texts(defaultdict[Any, int]):
    """Numbers for strings, in the order in which they turn up. Other hashable values may be looked up as well."""

    def __init__(self) -> None:
        super().__init__(itertools.count().__next__)

    def finish(self, codes: I32) -> tuple[I32, list[str]]:
        """The column, and the text of each of its numbers, every text once."""
        texts = [key if type(key) is str else text_of(key) for key in self]
        self.clear()
        unique = dict.fromkeys(texts)
        if len(unique) == len(texts):
            return codes, texts
        # The same text came as a string and as a number.
        place = {text: k for k, text in enumerate(unique)}
        renumbered = np.array([place[text] for text in texts], np.int32)
        return renumbered[codes], list(unique)


class Form(NamedTuple):
    """What follows from a phase and a category. `phase`, `category`: as in RawEvents. `group`: which args are looked
    for; `with_id`: whether an id is; `crowded`: whether the category found no number.
    """

    phase: int
    category: int
    group: int
    with_id: bool
    crowded: bool


class Shapes(dict[tuple[Any, Any, Any, Any], int]):
    """Numbers for (ph, cat, pid, tid), and what follows from them.

    A file may have a million shapes, but then of few forms: by shape there are only two small columns, the form and
    the track.
    """

    def __init__(self) -> None:
        super().__init__()
        self.categories: dict[str, int] = {"": 0}
        self.tracks: dict[tuple[str, str], int] = {}
        self._forms: list[Form] = []
        self._form_of: dict[tuple[str, str], int] = {}
        self._fresh: list[int] = []  # two numbers a shape, until they are moved to the columns
        self._form = Grown(np.int32)
        self._track = Grown(np.int32)

    def __missing__(self, key: tuple[Any, Any, Any, Any]) -> int:
        ph, cat, pid, tid = key
        code = self[key] = len(self)
        text = text_of(cat)
        kind = (ph if type(ph) is str else "", text)
        form = self._form_of.get(kind)
        if form is None:
            form = self._form_of[kind] = len(self._forms)
            self._forms.append(self._learn(*kind))
        track = track_of(pid, tid)
        self._fresh += (form, self.tracks.setdefault(track, len(self.tracks)))
        return code

    def _learn(self, ph: str, category: str) -> Form:
        crowded = category not in self.categories and len(self.categories) >= MOST_CATEGORIES
        number = 0 if crowded else self.categories.setdefault(category, len(self.categories))
        known = len(ph) == 1 and ph.isascii()
        return Form(ord(ph) if known else 0, number, group_of(ph, category, number), known and ph in WITH_ID, crowded)

    def _settle(self) -> I32:
        """The form of every shape."""
        fresh = np.array(self._fresh, np.int32).reshape(-1, 2)
        self._fresh.clear()
        self._form.extend(fresh[:, 0])
        self._track.extend(fresh[:, 1])
        return self._form.so_far

    def groups(self, shape: I32) -> I32:
        """Which args are looked for in entries of these shapes."""
        found: I32 = self._of_form("group", np.int32)[self._settle()[shape]]
        return found

    def with_id(self, shape: I32) -> Bool:
        """Whether an id is looked for in entries of these shapes."""
        found: Bool = self._of_form("with_id", np.bool_)[self._settle()[shape]]
        return found

    def columns(self, shape: I32) -> tuple[U8, U16, I32, int]:
        """Phase, category and track of entries of these shapes, and for how many there was no number for the category.
        Tracks lie where the shapes were."""
        form = self._settle()
        phase = taken(self._of_form("phase", np.uint8)[form], shape)
        category = taken(self._of_form("category", np.uint16)[form], shape)
        crowded = self._of_form("crowded", np.bool_)[form]
        lost = int(np.count_nonzero(taken(crowded, shape))) if crowded.any() else 0
        return phase, category, taken(self._track.so_far, shape, shape), lost

    def _of_form(self, name: str, dtype: Any) -> Any:
        return np.array([getattr(form, name) for form in self._forms], dtype)


def group_of(ph: Any, category: str, code: int = 0) -> int:
    """Which args are looked for in entries of this phase and category, the number of which is `code`."""
    if ph == "M":
        return METADATA
    if ph == "C":
        return COUNTER
    if isinstance(ph, str) and ph in WITHOUT_ARGS:  # it may be a list
        return NONE
    kind = kind_of_category(category)
    if kind is Kind.OP:
        return OP
    return PYTHON if kind is Kind.PYTHON else OTHER + code
