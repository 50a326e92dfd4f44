"""Tests of RangeArgmax against numpy.argmax."""

from __future__ import annotations

import numpy as np
import pytest

from torchprof_tui.trace.model.row_index import RangeArgmax


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 31, 255, 256, 257, 4097, 70_000])
@pytest.mark.parametrize("distinct", [1, 3, 10**12])
def test_finds_the_first_maximum_of_any_range(size: int, distinct: int) -> None:
    """Sizes around the powers of the block's 16; few distinct values, so that most ranges have several maxima."""
    random = np.random.default_rng([size, distinct])
    values = random.integers(0, distinct, size, dtype=np.int64)
    bounds = np.sort(random.integers(0, size, (400, 2)), axis=1)
    first, last = bounds[:, 0], bounds[:, 1] + 1
    first[0], last[0] = 0, size

    found = RangeArgmax.build(values).query(lambda positions: values[positions], size, first, last)

    assert found.tolist() == [a + int(values[a:b].argmax()) for a, b in zip(first, last, strict=True)]


def test_all_ranges_of_a_small_array() -> None:
    values = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 9, 2, 6] * 3, dtype=np.int64)
    ranges = [(a, b) for a in range(len(values)) for b in range(a + 1, len(values) + 1)]
    first, last = (np.array(side) for side in zip(*ranges, strict=True))

    found = RangeArgmax.build(values).query(lambda positions: values[positions], len(values), first, last)

    assert found.tolist() == [a + int(values[a:b].argmax()) for a, b in ranges]


def test_empty_array() -> None:
    built = RangeArgmax.build(np.empty(0, dtype=np.int64))
    assert len(built.masks) == 0
    assert len(built.best) == 0
