"""A column that grows holds what was appended, large and small, and where memory is short."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.trace.core import growable_array
from torchprof_tui.trace.core.growable_array import GrowableArray


@given(st.lists(st.integers(0, 3000), max_size=40), st.sampled_from([1, 1 << 14, 1 << 22]))
def test_it_holds_what_was_appended(sizes: list[int], large: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growable_array, "_LARGE_BYTES", large)
        column, expected = GrowableArray(np.int64), np.arange(sum(sizes))
        at = 0
        for size in sizes:
            column.extend(expected[at : at + size])
            at += size
            assert len(column) == at
        assert np.array_equal(column.view, expected)
        found = column.finish()
        assert np.array_equal(found, expected)
        assert found.base is None  # its own memory, and no more of it than it needs


def test_room_is_filled_in_where_it_is_to_stay() -> None:
    column = GrowableArray(np.int32)
    column.extend(np.arange(3))
    column.reserve(2000)[:] = np.arange(3, 2003)
    column.extend(np.array([2003]))
    assert column.reserve(0).tolist() == []
    assert np.array_equal(column.finish(), np.arange(2004))


def test_what_was_handed_over_is_not_kept() -> None:
    column = GrowableArray(np.int32)
    column.extend(np.arange(5))
    column.finish()
    assert len(column.view) == 0


def test_room_that_is_only_asked_for_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growable_array, "_LARGE_BYTES", 1)
    asked: list[int] = []
    empty = np.empty

    def short(size: int, dtype: Any) -> Any:
        asked.append(size)
        if size > 8000:
            raise MemoryError
        return empty(size, dtype)

    column = GrowableArray(np.int64)
    monkeypatch.setattr(np, "empty", short)
    column.extend(np.arange(3000))
    assert asked == [12_000, 3750]
    assert np.array_equal(column.view, np.arange(3000))
