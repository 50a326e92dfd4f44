"""Test the watch of hangs: when it dumps, what it writes, and that it changes nothing of the program."""

from __future__ import annotations

import faulthandler
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.paths import ROOT
from torchprof_hang.analysis.evidence import find_rank
from torchprof_runs.recorder.hang_watch import FORMAT, TAKEN_SUFFIX, HangWatch, enable_flight_recorder
from torchprof_runs.recorder.options import UsageError, parse_options


def read(folder: Path, rank: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / f"stacks_rank_{rank}.json").read_text())
    return document


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def watch(tmp_path: Path) -> Any:
    lines: list[str] = []
    found = HangWatch(str(tmp_path), 3, 8, 0.1, lines.append)
    found.lines = lines  # type: ignore[attr-defined]
    yield found
    found._stop.set()
    faulthandler.cancel_dump_traceback_later()


def test_it_dumps_when_no_step_ends_and_says_that_the_program_went_on(watch: HangWatch, tmp_path: Path) -> None:
    watch.start()
    watch.note_step()
    wait_for(tmp_path / "stacks_rank_3.json")
    document = read(tmp_path, 3)
    assert (document["schema"], document["rank"], document["world_size"]) == (FORMAT, 3, 8)
    assert document["reason"] == "no step ended for 0.1 s"
    main = next(each for each in document["threads"] if each["is_main"])
    assert any(each["name"].startswith("test_it_dumps") for each in main["frames"])
    assert "resumed_after_seconds" not in document
    watch.note_step()
    document = read(tmp_path, 3)
    assert document["resumed_after_seconds"] > 0
    assert document["resumed_frames"] == main["frames"]
    watch.finish("finished")
    document = read(tmp_path, 3)
    assert (document["reason"], document["steps"]) == ("finished", 2)
    assert document["resumed_frames"] == main["frames"]


def test_a_step_that_ends_while_a_dump_is_written_is_noted(
    watch: HangWatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program must not notice, and its going on must not get lost."""

    def read_slowly() -> bytes:
        watch.note_step()
        return b""

    monkeypatch.setattr("torchprof_runs.recorder.hang_watch._read_flight_recorder", read_slowly)
    watch.dump("no step ended for 1 s")
    assert read(tmp_path, 3)["steps"] == 0
    assert read(tmp_path, 3)["resumed_after_seconds"] >= 0
    shutil.rmtree(tmp_path)
    watch._resumed = {}
    watch.note_step()
    assert [line.partition(":")[0] for line in watch.lines] == [  # type: ignore[attr-defined]
        "no step ended for 1 s",
        "not written that the program went on",
    ]


def test_an_exception_is_added_to_what_the_rank_waited_for(watch: HangWatch, tmp_path: Path) -> None:
    watch.dump("no step ended for 1 s")
    try:
        raise ValueError("bad\nbatch")
    except ValueError as error:
        watch.finish("exception", error)
    document = read(tmp_path, 3)
    assert document["reason"] == "no step ended for 1 s"
    assert (document["error"]["type"], document["error"]["message"]) == ("ValueError", "bad")
    assert document["error"]["frames"][0]["name"] == "test_an_exception_is_added_to_what_the_rank_waited_for"


def test_what_cannot_be_written_is_logged(tmp_path: Path) -> None:
    lines: list[str] = []
    HangWatch(str(tmp_path / "none"), 0, 1, 1.0, lines.append).dump("no step ended for 1 s")
    assert len(lines) == 1
    assert lines[0].startswith("no dump of the hang: FileNotFoundError")


def test_variables_of_the_user_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "7")
    monkeypatch.delenv("TORCH_NCCL_TRACE_BUFFER_SIZE", raising=False)
    monkeypatch.delenv("TORCH_NCCL_DUMP_ON_TIMEOUT", raising=False)
    enable_flight_recorder()
    assert (os.environ["TORCH_FR_BUFFER_SIZE"], os.environ["TORCH_NCCL_TRACE_BUFFER_SIZE"]) == ("7", "2000")
    monkeypatch.undo()


def test_the_option_reaches_the_ranks() -> None:
    options = parse_options(["--watch-hang", "30", "train.py"])
    assert options.watch_hang == 30
    assert parse_options([*options.as_argv(), "train.py"]) == options
    with pytest.raises(UsageError):
        parse_options(["--watch-hang", "0", "train.py"])


def test_a_program_that_handles_the_signal_itself_is_not_sent_it(watch: HangWatch, tmp_path: Path) -> None:
    """A job that saves or requeues itself on SIGUSR1 must not do so when `hang --live` looks at it."""
    watch.start()
    file = tmp_path / "faulthandler_rank_3.txt"
    assert file.exists()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        wait_for(tmp_path / f"faulthandler_rank_3{TAKEN_SUFFIX}")
        assert not file.exists()
        names = [os.readlink(f"/proc/self/fd/{watch._file.fileno()}")]
        assert not [name for name in names if re.search(r"faulthandler_rank_[0-9]*\.txt$", name)]  # as live.py looks
        assert find_rank(f"faulthandler_rank_3{TAKEN_SUFFIX}") == 3
    finally:
        signal.signal(signal.SIGUSR1, before)


NATIVE = """
import sys, time
sys.path.insert(0, sys.argv[1])
from torchprof_runs.recorder.hang_watch import HangWatch
watch = HangWatch(sys.argv[2], 0, 1, 0.1, print)
watch.start()
print("started", flush=True)
import ctypes
ctypes.PyDLL(None).usleep(int(4e6)) if sys.argv[3] == "gil" else time.sleep(60)
"""


def run_native(tmp_path: Path, how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", NATIVE, str(ROOT / "profiler_runs"), str(tmp_path), how]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def test_native_code_that_holds_the_gil_is_dumped_by_faulthandler(tmp_path: Path) -> None:
    process = run_native(tmp_path, "gil")
    process.communicate()
    assert "(most recent call first)" in (tmp_path / "faulthandler_rank_0.txt").read_text()


def test_a_signal_adds_stacks_and_an_abort_leaves_them(tmp_path: Path) -> None:
    process = run_native(tmp_path, "sleep")
    file = tmp_path / "faulthandler_rank_0.txt"
    process.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + 60
    while not file.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None
    process.send_signal(signal.SIGABRT)
    process.communicate()
    assert "Fatal Python error: Aborted" in file.read_text()
