"""Ids as numbers, and as the text that they stand for: against one dict of texts."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.trace.core.arrays import Array
from torchprof_tui.trace.decode.id_table import IdTable
from torchprof_tui.trace.decode.interning import text_of

values = st.one_of(
    st.integers(-3, 12),
    st.integers(-(2**70), 2**70),
    st.sampled_from(
        ["7", "07", "", "-1", "٣", "0x5", str(10**18), str(10**18 - 1), "9" * 5000, 7.0, 0.5, True, {"local": "0x1"}]
    ),
)
some = st.lists(st.one_of(st.none(), values), max_size=30)


def added(listed: list[Any], ids: IdTable | None = None) -> IdTable:
    ids = IdTable() if ids is None else ids
    places = [place for place, value in enumerate(listed) if value is not None]
    keys = [ids.key(listed[place]) for place in places]
    ids.add(np.array(places, np.int64), np.array(keys, np.int64))
    return ids


def texts(ids: IdTable, count: int) -> list[str | None]:
    column, known = ids.finish(count)
    assert column.dtype == np.int32
    assert len(set(known)) == len(known)
    assert repr(known) == repr(list(known))
    assert known[: len(known)] == list(known)
    return [known[number] if number >= 0 else None for number in column.tolist()]


@given(some)
def test_each_is_told_by_its_text(listed: list[Any]) -> None:
    expected = [None if value is None else text_of(value) for value in listed]
    assert texts(added(listed), len(listed)) == expected


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30))
def test_many_numbers_at_once(listed: list[int]) -> None:
    ids = IdTable()
    ids.add_integers(np.arange(len(listed)), np.array(listed, np.int64))
    assert texts(ids, len(listed)) == [str(value) for value in listed]


@given(some, some)
def test_what_another_has_read(mine: list[Any], theirs: list[Any]) -> None:
    ids, other = added(mine), added(theirs)
    part, handed = other.finish_part(), list(other.drain_arrays())

    def fill(column: Array) -> None:
        column[:] = handed.pop(0)  # type: ignore[assignment]

    ids.append_part(part, fill, len(mine))
    assert not handed
    together = [*mine, *theirs]
    assert texts(ids, len(together)) == [None if value is None else text_of(value) for value in together]
