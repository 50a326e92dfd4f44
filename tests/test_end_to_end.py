"""Test the installed program in a real terminal: open a trace, use the keyboard, quit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.terminal import Terminal
from torchprof_samples import find

PROGRAM = Path(sys.executable).with_name("torchprof-tui")
SAMPLE = find("matmul_add_64_cold_eager").path

pytestmark = [
    pytest.mark.skipif(not PROGRAM.exists(), reason="the console script is not installed beside this Python"),
]


def test_open_a_sample_search_and_quit() -> None:
    with Terminal([str(PROGRAM), "sample:matmul_add_64_cold_eager"]) as terminal:
        terminal.wait_for("ProfilerStep#2", "aten::matmul", "stream 7", "NVIDIA H200")
        terminal.send("/")
        terminal.wait_for("regular expression")  # keys typed before the prompt is shown go to the lanes
        terminal.send("aten::mm\r")
        terminal.wait_for("aten::mm", "85.1")  # its duration in the details, µs
        terminal.send("]")
        terminal.send("?")
        terminal.wait_for("type to filter")
        terminal.send("\x1b")
        terminal.wait_for("type to filter", gone=True)
        terminal.send("q")
        assert terminal.wait_for_end() == 0
    assert "Traceback" not in terminal.text


@pytest.mark.long
def test_from_the_start_screen_with_one_key(tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    with Terminal([str(PROGRAM)], columns=80, lines=24, folder=tmp_path, **state) as terminal:
        terminal.wait_for("torchprof-tui", "matmul_add_64_cold_eager", "q quit")
        terminal.send("\r")
        terminal.wait_for("stream 7", "NVIDIA H200")
        terminal.send("o")
        terminal.wait_for("opened just now")
        terminal.send("q")  # back to the lanes
        terminal.wait_for("opened just now", gone=True)
        terminal.send("q")
        assert terminal.wait_for_end() == 0


@pytest.mark.long
def test_trace_from_a_pipe_and_keys_from_the_terminal() -> None:
    feeder = subprocess.Popen(["cat", str(SAMPLE)], stdout=subprocess.PIPE)
    assert feeder.stdout is not None
    with Terminal([str(PROGRAM), "-"], pipe=feeder.stdout.fileno()) as terminal:
        terminal.wait_for("ProfilerStep#2")
        terminal.send("q")
        assert terminal.wait_for_end() == 0
    feeder.stdout.close()
    feeder.wait()


def test_a_file_that_is_no_trace_ends_with_one_line(tmp_path: Path) -> None:
    path = tmp_path / "prose.json"
    path.write_text("hello, world")
    with Terminal([str(PROGRAM), str(path)]) as terminal:
        terminal.wait_for("could not be opened")
        terminal.send("q")
        assert terminal.wait_for_end() == 2
    assert "torchprof-tui: " in terminal.text
    assert "Traceback" not in terminal.text


@pytest.mark.long
def test_a_hangup_leaves_no_folder_behind(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with Terminal([str(PROGRAM), str(SAMPLE), "--no-cache"], TMPDIR=str(temporary)) as terminal:
        terminal.wait_for("ProfilerStep#2")
        assert list(temporary.glob("torchprof-tui-*"))
        os.kill(terminal.pid, signal.SIGHUP)
        terminal.wait_for_end()
    assert not list(temporary.glob("torchprof-tui-*"))


@pytest.mark.long
@pytest.mark.parametrize(
    "environment", keep_some([{"NO_COLOR": "1"}, {"TERM": "xterm"}, {"COLORTERM": "truecolor"}], 1)
)
def test_kinds_of_terminals(environment: dict[str, str]) -> None:
    with Terminal([str(PROGRAM), str(SAMPLE)], columns=80, lines=24, **environment) as terminal:
        terminal.wait_for("NVIDIA H200", "stream 7")
        terminal.send("q")
        assert terminal.wait_for_end() == 0


@pytest.mark.long
def test_the_ranks_of_a_run_unfold_one_by_one() -> None:
    with Terminal([str(PROGRAM), "sample:train_gpt_2ranks"]) as terminal:
        terminal.wait_for("2 ranks", "clocks by shared base time", "▾ rank 0", "rank 0 CPU")  # they fit: open
        terminal.send(" ")
        terminal.wait_for("▸ rank 0", "▾ rank 1", "rank 1 CPU")
        terminal.wait_for("rank 0 CPU", gone=True)
        terminal.send("t")
        terminal.wait_for("arrivals", "rank 0, whole trace")
        terminal.send("\x1b[Z\x1b[Z")
        terminal.wait_for("late by", "allreduce", "rank 1: last 4 of 4")
        terminal.send("\x1b")
        terminal.wait_for("▸ rank 0", "▾ rank 1")
        terminal.send(" ")
        terminal.wait_for("▾ rank 0", "rank 0 CPU")
        terminal.send("q")
        assert terminal.wait_for_end() == 0
    assert "Traceback" not in terminal.text
