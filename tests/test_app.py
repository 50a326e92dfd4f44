"""Test what the app prints about a bug of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.worker import WorkerFailed

from torchprof_tui.app import TorchprofApp


def test_a_bug_in_a_thread_is_reported_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    missing = " ".join(("a key", "that is not there"))

    def fail() -> None:
        raise KeyError(missing)

    app = TorchprofApp()
    with pytest.raises(KeyError) as raised:
        fail()
    app._exception = WorkerFailed(raised.value)
    app._exit_renderables.append("what textual would print")
    app._print_error_renderables()
    printed = capsys.readouterr().err
    assert printed.startswith("torchprof-tui: crashed (KeyError); please report it, the details are in ")
    report = Path(printed.split()[-1])
    assert report.is_relative_to(tmp_path)
    text = report.read_text(encoding="utf-8")
    assert "in fail" in text
    assert missing not in text  # it might be a name in a trace
