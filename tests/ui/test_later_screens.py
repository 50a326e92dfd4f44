"""Test that the screens are imported in pieces, each with a collection of what it created."""

from __future__ import annotations

import gc
import importlib

import pytest

from torchprof_tui.ui import later_screens


@pytest.mark.parametrize("is_enabled", [False, True])
def test_what_an_import_created_is_collected_where_python_does_not(
    monkeypatch: pytest.MonkeyPatch, is_enabled: bool
) -> None:
    calls: list[object] = []
    monkeypatch.setattr(importlib, "import_module", calls.append)
    monkeypatch.setattr(gc, "isenabled", lambda: is_enabled)
    monkeypatch.setattr(gc, "collect", calls.append)
    later_screens.import_screens()
    assert calls[::2] == [name for name in calls if isinstance(name, str)] or is_enabled
    assert calls.count(1) == (0 if is_enabled else len(calls) // 2)
