"""Earlier runs: list them in order, and read their requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchprof_tui.runs.history import list_past_runs, read_request, save_request
from torchprof_tui.runs.recording_request import RecordingRequest


def test_a_request_is_stored_beside_its_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "train-1"
    folder.mkdir(parents=True)
    save_request(
        str(folder), RecordingRequest(("python", "train.py", "--lr", "1"), ("--active", "2"), "/v/bin/python", "runs")
    )
    stored = read_request(str(folder / "train.pt.trace.json.gz"))
    # The output folder is absolute, so that the repeated run writes to the same folder from anywhere.
    absolute = RecordingRequest(
        ("python", "train.py", "--lr", "1"), ("--active", "2"), "/v/bin/python", str(tmp_path / "runs")
    )
    assert stored is not None
    assert (stored.request, stored.cwd, stored.is_own) == (absolute, str(tmp_path), True)
    assert read_request(str(tmp_path / "other.json")) is None
    save_request(str(tmp_path / "missing"), absolute)  # errors are ignored


def test_the_newest_come_first_and_the_rest_is_left_out(tmp_path: Path) -> None:
    for number, hour in enumerate((3, 9, 5)):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        save_request(str(folder), RecordingRequest(("mlp", str(number))))
        facts = {"started": f"2026-01-01T{hour:02}:00:00.000+00:00", "seconds": 2.5, "exit_status": -2, "kept": []}
        (folder / "manifest.json").write_text(json.dumps(facts))
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "request.json").write_text('{"command": 3}')
    (tmp_path / "not ours").mkdir()
    runs = list_past_runs(str(tmp_path))
    assert [run.request.command[1] for run in runs] == ["1", "2", "0"]
    assert (runs[0].result.exit_status, runs[0].result.seconds) == (130, 2.5)
    assert [run.request.command[1] for run in list_past_runs(str(tmp_path), limit=1)] == ["1"]
    assert list_past_runs(str(tmp_path / "none")) == []
