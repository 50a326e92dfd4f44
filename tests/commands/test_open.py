"""`torchprof-tui TRACE`: what the terminal shows before the app has been imported."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.helpers.paths import SAMPLES
from torchprof_tui.cli import main
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.trace.loading.resolve import ResolvedInput

NAME = "matmul_add_64_cold_eager.pt.trace.json.gz"


def test_the_name_is_on_the_terminal_before_anything_slow_begins(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def stop(*_: Any, **__: Any) -> None:
        said.append(capfd.readouterr().err)
        raise UsageError("stopped")

    monkeypatch.setattr(os, "isatty", lambda _: True)
    monkeypatch.setattr(ResolvedInput, "create_opener", stop)
    assert main([str(SAMPLES / NAME)]) == 2
    (line,) = said
    assert line.endswith(f"opening {NAME} …")
    assert capfd.readouterr().err.startswith("\r\x1b[K")  # erased before the error
