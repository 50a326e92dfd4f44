from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.helpers.expectation_checks")


@pytest.fixture(scope="package", autouse=True)
def frozen() -> Iterator[None]:
    """A hundred traces are decoded here: the collector need not look through all that pytest holds for each of them."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
