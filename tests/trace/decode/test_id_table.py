"""Codes of ids, and their text: compared with a dict of texts."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.trace.core.arrays import Array, ArrayFinisher
from torchprof_tui.trace.decode.interning import IdTable, text_of

values = st.one_of(
    st.integers(-3, 12),
    st.integers(-(2**70), 2**70),
    st.sampled_from(
        ["7", "07", "", "-1", "٣", "0x5", str(10**18), str(10**18 - 1), "9" * 5000, 7.0, 0.5, True, {"local": "0x1"}]
    ),
)
id_lists = st.lists(st.one_of(st.none(), values), max_size=30)


def build_table(id_values: list[Any]) -> IdTable:
    """The table of entries with these ids; None: without one."""
    table = IdTable()
    ordinals = [ordinal for ordinal, value in enumerate(id_values) if value is not None]
    keys = [table.key(id_values[ordinal]) for ordinal in ordinals]
    table.add(np.array(ordinals, np.int64), np.array(keys, np.int64))
    return table


def read_texts(table: IdTable, count: int) -> list[str | None]:
    """The text of each entry's id, by its code."""
    column, texts = table.finish(count)
    assert column.dtype == np.int32
    assert len(set(texts)) == len(texts)
    assert repr(texts) == repr(list(texts))
    assert texts[: len(texts)] == list(texts)
    return [texts[code] if code >= 0 else None for code in column.tolist()]


@given(id_lists)
def test_ids_with_the_same_text_are_equal(id_values: list[Any]) -> None:
    expected = [None if value is None else text_of(value) for value in id_values]
    assert read_texts(build_table(id_values), len(id_values)) == expected


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30))
def test_many_integers_at_once(integers: list[int]) -> None:
    table = IdTable()
    table.add_integers(np.arange(len(integers)), np.array(integers, np.int64))
    assert read_texts(table, len(integers)) == [str(value) for value in integers]


@given(id_lists, id_lists)
def test_appending_the_part_of_another_process(first: list[Any], second: list[Any]) -> None:
    table, other = build_table(first), build_table(second)
    part, arrays = other.finish_part(), list(other.drain_arrays())

    def fill(column: Array, then: ArrayFinisher | None) -> None:
        column[:] = arrays.pop(0)
        if then is not None:
            then(column)

    table.append_part(part, fill, len(first))
    assert not arrays
    id_values = [*first, *second]
    assert read_texts(table, len(id_values)) == [None if value is None else text_of(value) for value in id_values]
