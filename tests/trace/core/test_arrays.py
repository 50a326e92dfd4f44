"""Tests of array helpers against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.trace.core.arrays import sorted_unique


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
