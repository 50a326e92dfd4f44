"""Tests of array helpers against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.trace.core.arrays import (
    I64,
    find_largest,
    find_median,
    find_percentiles,
    is_in,
    number_distinct,
    sorted_unique,
)


@given(st.lists(st.integers(-5, 5) | st.integers(-(2**31), 2**31 - 1)), st.sampled_from([np.int32, np.int64]))
def test_distinct_values_ascend_and_keep_their_type(values: list[int], kind: type[np.generic]) -> None:
    column = np.array(values, kind)
    found = sorted_unique(column)
    assert found.tolist() == sorted(set(values))
    assert found.dtype == column.dtype


@pytest.mark.parametrize("shape", [(0,), (3, 4)])
def test_distinct_values_of_any_shape(shape: tuple[int, ...]) -> None:
    column = np.arange(int(np.prod(shape))).reshape(shape) // 2
    assert sorted_unique(column).tolist() == np.unique(column).tolist()


@given(st.lists(st.integers(-5, 5), max_size=30), st.integers(0, 12))
def test_the_largest_are_those_of_a_stable_sort(values: list[int], count: int) -> None:
    column = np.array(values, np.int64)
    assert find_largest(column, count).tolist() == np.argsort(-column, kind="stable")[:count].tolist()


def test_distinct_values_of_numbers_that_compare_with_nothing() -> None:
    assert sorted_unique(np.array([3.0, np.nan, 1.0]))[:2].tolist() == [1.0, 3.0]


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=40), st.lists(st.integers(0, 100), max_size=4))
def test_percentiles_are_those_of_numpy(values: list[int], percents: list[int]) -> None:
    column = np.array(values, np.int64)
    rows = np.stack([column, column[::-1] // 3])
    for each in (column, rows):
        assert find_percentiles(each, percents).tolist() == np.percentile(each, percents, axis=-1).tolist()


@given(st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=12))
def test_the_median_is_that_of_numpy(values: list[int]) -> None:
    for column in (np.array(values, np.int64), np.array(values) / 7, np.array([values, values])):
        assert find_median(column) == np.median(column)
    assert np.isnan(find_median([]))


@given(st.lists(st.integers(0, 9), max_size=30))
def test_distinct_rows_are_numbered_as_by_a_sort(values: list[int]) -> None:
    rows = np.array(values, np.int32)
    distinct, number = number_distinct(rows, 10)
    expected, inverse = np.unique(rows, return_inverse=True)
    assert (distinct.tolist(), number.tolist()) == (expected.tolist(), inverse.tolist())


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("high", [5, 1_000, 2_000_000_000])
def test_is_in_finds_the_same_as_numpy(high: int, dtype: type) -> None:
    rng = np.random.default_rng(3)
    values: I64 = rng.integers(-1, high, 500).astype(dtype)
    chosen: I64 = rng.integers(-1, high, 300).astype(dtype)
    for others in (chosen, values[::2], chosen[:1], chosen[:0]):
        assert is_in(values, others).tolist() == np.isin(values, others).tolist()
    assert is_in(values[:0], chosen).tolist() == []
