"""What a run writes and reports: its manifest, its status, its folder, and the end at the memory limit."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.profiler_runs.conftest import Start, train


def test_the_contents_of_a_manifest(start: Start) -> None:
    run = start(train(12), "--record-shapes", args=("--lr", "1"))
    assert run.wait() == 0
    facts = run.manifest
    assert facts["command"] == ["script.py", "--lr", "1"]
    assert facts["cwd"] == str(run.folder)
    assert facts["options"]["record_shapes"] is True
    assert (facts["state"], facts["ended"], facts["exit_status"]) == ("ended", "stopped", 0)
    assert facts["seconds"] > 0
    assert facts["environment"]["torch"]
    assert [phase["phase"] for phase in facts["phases"]][-4:] == ["measuring", "warming up", "recording", "running on"]
    assert facts["preflight"]["events_per_step"] > 10
    assert not facts["preflight"]["warning"]
    assert any("one step is" in line for line in facts["messages"])
    assert re.fullmatch(r"script-\d{8}-\d{6}", run.run_folder.name)
    assert sorted(os.listdir(run.run_folder)) == [
        "key_averages.json", "log.txt", "manifest.json", "script.pt.trace.json.gz", "table.txt",
    ]  # fmt: skip
    assert (run.run_folder / "log.txt").read_text() in run.err


def test_the_status_that_the_app_gets(start: Start) -> None:
    run = start(train(12))
    assert run.wait() == 0
    messages = [message for message in run.statuses if "phase" in message]
    phases = list(dict.fromkeys(message["phase"] for message in messages))
    expected = ["starting", "recording", "waiting", "measuring", "warming up", "recording", "exporting", "tabulating"]
    assert phases == list(dict.fromkeys([*expected, "running on", "done"]))
    assert messages[1]["folder"] == str(run.run_folder)
    first = next(message for message in messages if message["phase"] == "recording" and message["of"])
    assert (first["step"], first["of"], first["cycle"], first["cycles"]) == (1, 3, 1, 1)
    assert messages[-1]["exit_status"] == 0
    assert messages[-1]["kept"] == [str(run.run_folder / "script.pt.trace.json.gz")]
    assert {message["pid"] for message in messages} == {run.pid}


def test_memory_ends_a_recording(start: Start) -> None:
    script = """
import time, torch
held = []
for number in range(600):
    held.append(torch.ones(250_000))  # a megabyte each
    time.sleep(0.005)
print("end")
"""
    run = start(script, "--step", "none", "--max-memory", "50")
    goes_on = start(script.replace("600", "200"), "--step", "none", "--max-memory", "50", "--then", "finish")
    assert run.wait() == 0
    assert run.manifest["ended"] == "stopped"
    assert "while recording: ending the recording" in run.err
    assert 0 < run.names().count("aten::ones") < 600
    assert goes_on.wait() == 0
    assert goes_on.out == "end\n"
    assert len(goes_on.manifest["kept"]) == 1


def test_runs_do_not_overwrite_each_other(start: Start, tmp_path: Path) -> None:
    runs = [start("print(1)", runs=tmp_path / "together") for _ in range(4)]
    assert [run.wait() for run in runs] == [0] * 4
    assert len(os.listdir(tmp_path / "together")) == 4


def test_a_folder_that_cannot_be_made(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    run = start("print(1)", runs=tmp_path / "file" / "runs")
    assert run.wait() == 2
    assert run.out == ""
    assert "cannot make a folder in" in run.err
    assert len(run.err.splitlines()) == 1
