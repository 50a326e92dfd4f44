"""Repeated values become small numbers: dicts whose misses assign the next one."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import orjson

from torchprof_tui.trace.core.arrays import I32, U8, U16, Bool, take_chunked
from torchprof_tui.trace.core.growable_array import GrowableArray
from torchprof_tui.trace.model.event_kind import Kind, kind_of_category

MAX_CATEGORIES = 2**16 - 1

PHASES_WITH_ID = frozenset("stfbneSTpFNODC")
"""Phases whose `id` says what they belong to: flows, async events, objects, counters."""

PHASES_WITHOUT_ARGS = frozenset("stfNOD")
"""Phases whose args no column holds."""

GROUP_NONE, GROUP_METADATA, GROUP_COUNTER, GROUP_OP, GROUP_PYTHON, GROUP_OTHER = range(6)
"""Which args are looked for. From OTHER on there is a group for each category."""

_STREAM_TID = re.compile(r"stream (-?\d+)")


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
    stream = _STREAM_TID.fullmatch(thread) if thread[:6] == "stream" else None
    return text_of(pid), stream[1] if stream else thread


class TextTable(defaultdict[Any, int]):
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


class PhaseCategory(NamedTuple):
    """What follows from a phase and a category. `phase`, `category`: as in RawEvents. `group`: which args are looked
    for; `with_id`: whether an id is; `crowded`: whether the category found no number.
    """

    phase: int
    category: int
    group: int
    with_id: bool
    category_overflow: bool


class SignatureTable(dict[tuple[Any, Any, Any, Any], int]):
    """Numbers for (ph, cat, pid, tid), and what follows from them.

    A file may have a million shapes, but then of few forms: by shape there are only two small columns, the form and
    the track.
    """

    def __init__(self) -> None:
        super().__init__()
        self.categories: dict[str, int] = {"": 0}
        self.tracks: dict[tuple[str, str], int] = {}
        self._phase_categories: list[PhaseCategory] = []
        self._phase_category_codes: dict[tuple[str, str], int] = {}
        self._pending: list[int] = []  # two numbers a shape, until they are moved to the columns
        self._phase_category = GrowableArray(np.int32)
        self._track = GrowableArray(np.int32)

    def __missing__(self, key: tuple[Any, Any, Any, Any]) -> int:
        ph, cat, pid, tid = key
        code = self[key] = len(self)
        text = text_of(cat)
        kind = (ph if type(ph) is str else "", text)
        form = self._phase_category_codes.get(kind)
        if form is None:
            form = self._phase_category_codes[kind] = len(self._phase_categories)
            self._phase_categories.append(self._make_phase_category(*kind))
        track = track_of(pid, tid)
        self._pending += (form, self.tracks.setdefault(track, len(self.tracks)))
        return code

    def _make_phase_category(self, ph: str, category: str) -> PhaseCategory:
        crowded = category not in self.categories and len(self.categories) >= MAX_CATEGORIES
        number = 0 if crowded else self.categories.setdefault(category, len(self.categories))
        known = len(ph) == 1 and ph.isascii()
        return PhaseCategory(
            ord(ph) if known else 0, number, arg_group_of(ph, category, number), known and ph in PHASES_WITH_ID, crowded
        )

    def _flush_pending(self) -> I32:
        """The form of every shape."""
        fresh = np.array(self._pending, np.int32).reshape(-1, 2)
        self._pending.clear()
        self._phase_category.extend(fresh[:, 0])
        self._track.extend(fresh[:, 1])
        return self._phase_category.view

    def groups(self, signature: I32) -> I32:
        """Which args are looked for in entries of these shapes."""
        found: I32 = self._gather_field("group", np.int32)[self._flush_pending()[signature]]
        return found

    def with_id(self, signature: I32) -> Bool:
        """Whether an id is looked for in entries of these shapes."""
        found: Bool = self._gather_field("with_id", np.bool_)[self._flush_pending()[signature]]
        return found

    def columns(self, signature: I32) -> tuple[U8, U16, I32, int]:
        """Phase, category and track of entries of these shapes, and for how many there was no number for the category.
        Tracks lie where the shapes were."""
        form = self._flush_pending()
        phase = take_chunked(self._gather_field("phase", np.uint8)[form], signature)
        category = take_chunked(self._gather_field("category", np.uint16)[form], signature)
        crowded = self._gather_field("category_overflow", np.bool_)[form]
        lost = int(np.count_nonzero(take_chunked(crowded, signature))) if crowded.any() else 0
        return phase, category, take_chunked(self._track.view, signature, signature), lost

    def _gather_field(self, name: str, dtype: Any) -> Any:
        return np.array([getattr(form, name) for form in self._phase_categories], dtype)


def arg_group_of(ph: Any, category: str, code: int = 0) -> int:
    """Which args are looked for in entries of this phase and category, the number of which is `code`."""
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
