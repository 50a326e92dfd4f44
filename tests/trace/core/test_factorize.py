"""Long columns gone through piece by piece: as numpy does it at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.trace.core import arrays
from torchprof_tui.trace.core.arrays import flatnonzero_int32, take_chunked
from torchprof_tui.trace.core.factorize import bincount_chunked, factorize

whole = st.one_of(st.integers(-5, 40), st.integers(-(2**62), 2**62))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_BLOCK_SIZE", 7)


@given(st.lists(whole, max_size=40))
def test_numbers_without_gaps(values: list[int]) -> None:
    places, known = factorize(np.array(values, np.int64))
    assert known.tolist() == sorted(set(values))
    assert [sorted(set(values))[place] for place in places.tolist()] == values


@given(st.lists(st.integers(0, 30), max_size=60), st.sampled_from([np.uint8, np.uint16, np.int32, np.int64]))
def test_how_often(values: list[int], dtype: type[np.integer]) -> None:
    found = bincount_chunked(np.array(values, dtype), 31)
    assert found.dtype == np.int64
    assert found.tolist() == [values.count(number) for number in range(31)]
    assert bincount_chunked(np.array(values, np.int32), 1 << 17)[:31].tolist() == found.tolist()


@given(st.lists(st.booleans(), max_size=60))
def test_where_it_is_true(mask: list[bool]) -> None:
    expected = [place for place, is_true in enumerate(mask) if is_true]
    found = flatnonzero_int32(np.array(mask, np.bool_))
    assert found.dtype == np.int32
    assert found.tolist() == expected
    into = np.empty(len(expected), np.int32)
    assert flatnonzero_int32(np.array(mask, np.bool_), into) is into
    assert into.tolist() == expected


@given(st.lists(st.integers(0, 4), max_size=60), st.sampled_from([np.int32, np.int64]))
def test_taken(which: list[int], dtype: type[np.integer]) -> None:
    column = np.array([5, 3, 8, -1, 2**40], np.int64)
    expected = [int(column[place]) for place in which]
    places = np.array(which, dtype)
    assert take_chunked(column, places).tolist() == expected
    into = np.empty(len(which), np.int64)
    assert take_chunked(column, places, into) is into
    assert into.tolist() == expected


def test_taken_where_the_places_were() -> None:
    places = np.arange(20, dtype=np.int32)[::-1].copy()
    numbers = np.arange(100, 120, dtype=np.int32)
    assert take_chunked(numbers, places, places).tolist() == list(range(119, 99, -1))
