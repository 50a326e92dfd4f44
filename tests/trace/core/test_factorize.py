"""Tests of block-wise operations on long columns against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.trace.core import arrays
from torchprof_tui.trace.core.arrays import bincount_chunked, factorize, flatnonzero_int32, take_chunked

integers = st.one_of(st.integers(-5, 40), st.integers(-(2**62), 2**62))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_BLOCK_SIZE", 7)


@given(st.lists(integers, max_size=40))
def test_factorize(values: list[int]) -> None:
    codes, uniques = factorize(np.array(values, np.int64))
    assert uniques.tolist() == sorted(set(values))
    assert [sorted(set(values))[code] for code in codes.tolist()] == values


@given(st.lists(st.integers(0, 30), max_size=60), st.sampled_from([np.uint8, np.uint16, np.int32, np.int64]))
def test_bincount_chunked(values: list[int], dtype: type[np.integer]) -> None:
    result = bincount_chunked(np.array(values, dtype), 31)
    assert result.dtype == np.int64
    assert result.tolist() == [values.count(number) for number in range(31)]
    assert bincount_chunked(np.array(values, np.int32), 1 << 17)[:31].tolist() == result.tolist()


@given(st.lists(st.booleans(), max_size=60))
def test_flatnonzero_int32(mask: list[bool]) -> None:
    expected = [index for index, is_true in enumerate(mask) if is_true]
    result = flatnonzero_int32(np.array(mask, np.bool_))
    assert result.dtype == np.int32
    assert result.tolist() == expected
    out = np.empty(len(expected), np.int32)
    assert flatnonzero_int32(np.array(mask, np.bool_), out) is out
    assert out.tolist() == expected


@given(st.lists(st.integers(0, 4), max_size=60), st.sampled_from([np.int32, np.int64]))
def test_take_chunked(indices: list[int], dtype: type[np.integer]) -> None:
    column = np.array([5, 3, 8, -1, 2**40], np.int64)
    expected = [int(column[index]) for index in indices]
    index_array = np.array(indices, dtype)
    assert take_chunked(column, index_array).tolist() == expected
    out = np.empty(len(indices), np.int64)
    assert take_chunked(column, index_array, out) is out
    assert out.tolist() == expected


def test_take_chunked_in_place() -> None:
    indices = np.arange(20, dtype=np.int32)[::-1].copy()
    column = np.arange(100, 120, dtype=np.int32)
    assert take_chunked(column, indices, indices).tolist() == list(range(119, 99, -1))
