"""Fixtures of the pattern tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.helpers.expectation_checks")


@pytest.fixture(scope="package", autouse=True)
def freeze_objects() -> Iterator[None]:
    """Freeze pytest's objects: a hundred traces are decoded here, and the collector would scan these objects each
    time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
