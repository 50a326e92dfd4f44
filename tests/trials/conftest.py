"""Skip the tests that start programs which load torch where it is not installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


@pytest.fixture(autouse=True)
def skip_without_torch(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("slow") and find_spec("torch") is None:
        pytest.skip("torch is not installed")
