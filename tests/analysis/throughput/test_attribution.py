"""Test that the work of an operator is attributed to its kernels once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.analysis.throughput.attribution import attribute_work


def attribute(*pieces: tuple[int, int, int, int, bool]) -> list[float]:
    """Fractions of pieces (operator, variant, kernel name, duration, is a product)."""
    columns = list(zip(*pieces, strict=True)) or [()] * 5
    op, variant, name, duration, product = (np.array(column, np.int64) for column in columns)
    fractions = attribute_work(op, variant, name.astype(np.int32), duration, product.astype(np.bool_))
    return [float(fraction) for fraction in fractions]


def test_the_only_kernel_does_all() -> None:
    assert attribute((1, 0, 7, 10, False), (2, 0, 7, 30, False)) == [1, 1]


def test_launches_of_one_kernel_share_by_time() -> None:
    assert attribute((1, 0, 7, 10, False), (1, 0, 7, 30, False)) == [0.25, 0.75]


def test_of_several_kernels_that_of_the_product_does_it() -> None:
    assert attribute((1, 0, 7, 80, True), (1, 0, 8, 20, True)) == [1, 0]
    assert attribute((1, 0, 7, 80, False), (1, 0, 8, 20, False)) == [0, 0]
    assert attribute((1, 0, 7, 50, True), (1, 0, 8, 50, True)) == [0, 0]


def test_the_two_gradients_are_separate_work() -> None:
    assert attribute((1, 1, 7, 50, True), (1, 2, 8, 50, True)) == [1, 1]


def test_nothing_to_attribute() -> None:
    assert attribute() == []


_PIECES = st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 3), st.integers(0, 1000), st.booleans())


@given(st.lists(_PIECES, max_size=30))
def test_no_work_is_attributed_twice(pieces: list[tuple[int, int, int, int, bool]]) -> None:
    total: dict[tuple[int, int], float] = {}
    for (op, variant, *_), fraction in zip(pieces, attribute(*pieces), strict=True):
        assert 0 <= fraction <= 1
        total[op, variant] = total.get((op, variant), 0) + fraction
    assert all(fraction <= 1 + 1e-9 for fraction in total.values())
