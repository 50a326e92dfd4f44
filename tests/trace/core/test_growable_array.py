"""Tests of GrowableArray: small and large arrays, and systems that do not overcommit memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.trace.core import growable_array
from torchprof_tui.trace.core.growable_array import GrowableArray


@given(st.lists(st.integers(0, 3000), max_size=40), st.sampled_from([1, 1 << 14, 1 << 22]))
def test_view_and_finish_hold_the_appended_values(sizes: list[int], large_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growable_array, "_LARGE_BYTES", large_bytes)
        column, expected = GrowableArray(np.int64), np.arange(sum(sizes))
        end = 0
        for size in sizes:
            column.extend(expected[end : end + size])
            end += size
            assert len(column) == end
        assert np.array_equal(column.view, expected)
        finished = column.finish()
        assert np.array_equal(finished, expected)
        assert finished.base is None  # owns its memory, of exactly its size


def test_reserved_values_are_written_in_place() -> None:
    column = GrowableArray(np.int32)
    column.extend(np.arange(3))
    column.reserve(2000)[:] = np.arange(3, 2003)
    column.extend(np.array([2003]))
    assert column.reserve(0).tolist() == []
    assert np.array_equal(column.finish(), np.arange(2004))


def test_finished_array_is_not_kept() -> None:
    column = GrowableArray(np.int32)
    column.extend(np.arange(5))
    column.finish()
    assert len(column.view) == 0


def test_grows_less_if_memory_is_not_overcommitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growable_array, "_LARGE_BYTES", 1)
    sizes_requested: list[int] = []
    empty = np.empty

    def limited_empty(size: int, dtype: Any) -> Any:
        sizes_requested.append(size)
        if size > 8000:
            raise MemoryError
        return empty(size, dtype)

    column = GrowableArray(np.int64)
    monkeypatch.setattr(np, "empty", limited_empty)
    column.extend(np.arange(3000))
    assert sizes_requested == [12_000, 3750]
    assert np.array_equal(column.view, np.arange(3000))
