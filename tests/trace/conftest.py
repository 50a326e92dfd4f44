from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for one test, which has nothing in it yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(folder))
    return folder
