"""Earlier runs: list them in order, and read their requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.helpers.hostile_json import documents
from tests.helpers.long_run import scale_examples
from torchprof_tui.runs.history import list_past_runs, read_request, save_request
from torchprof_tui.runs.recording_request import RecordingRequest
from torchprof_tui.runs.run_result import read_result
from torchprof_tui.trace.core.errors import UnreadableFileError


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


def test_runs_with_damaged_files_are_listed_with_the_reason(tmp_path: Path) -> None:
    manifests = ('{"seconds": "long", "kept": []}', '{"started": 1e300}', '{"exit_status": {}}', "[" * 100_000, "null")
    for number, text in enumerate(manifests):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        save_request(str(folder), RecordingRequest(("mlp", str(number))))
        (folder / "manifest.json").write_text(text)
    (tmp_path / "dangling").symlink_to(tmp_path / "missing")
    runs = list_past_runs(str(tmp_path))
    assert sorted((run.request.command[1], run.result.problems) for run in runs) == [
        ("0", ("manifest.json: seconds is not a number",)),
        ("1", ("manifest.json: started is not a time",)),
        ("2", ("manifest.json: exit_status is not a whole number",)),
        ("3", ("manifest.json: the file is not an object",)),
        ("4", ("manifest.json: the file is not an object",)),
    ]


def test_a_current_folder_that_vanished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    save_request(str(tmp_path), RecordingRequest(("mlp",)))  # os.getcwd fails; the request is not kept
    assert read_request(str(tmp_path / "x.json")) is None
    assert read_request("x.json") is None
    assert list_past_runs() == []


@given(documents(), documents())
@settings(max_examples=scale_examples(0.5), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_files_of_a_run_are_read_or_one_line(tmp_path: Path, manifest: object, request_file: object) -> None:
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    for name in ("manifest.json", "manifest.rank0.json"):
        (folder / name).write_text(json.dumps(manifest))
    (folder / "request.json").write_text(json.dumps(request_file))
    result = read_result(str(folder), 0, 1.0, ())
    assert all(line.startswith("manifest.rank0.json: ") and line.isprintable() for line in result.problems)
    try:
        stored = read_request(str(folder / "a.json"))
    except UnreadableFileError:
        stored = None
    assert stored is None or not stored.is_own
    assert [run.stored for run in list_past_runs(str(tmp_path))] == ([stored] if stored is not None else [])
