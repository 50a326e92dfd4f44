"""Import large packages when a test first uses them: each worker of pytest-xdist collects all files of tests."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest


class LaterModule:
    """A module that is imported when one of its public attributes is first read: pytest itself reads others."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


def skip_without(*names: str) -> None:
    """Skip a file of tests, or a test, where one of these packages is missing; none is imported."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}", allow_module_level=True)


def import_later(name: str) -> Any:
    """Return a package as a `LaterModule`, or skip as `skip_without` does."""
    skip_without(name)
    return LaterModule(name)
