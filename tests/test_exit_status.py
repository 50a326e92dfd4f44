"""Test how commands end: by a signal, by a wrong word, on a terminal that cannot show the app."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.command_line import PROGRAM, read_error_line
from tests.helpers.long_run import keep_some
from tests.helpers.terminal import Terminal
from torchprof_samples import find

SAMPLE = find("matmul_add_64_cold_eager").path

HANGING_COMMAND = """
import sys, time
from torchprof_tui.commands.info import main as command
def hang(options):
    try:
        print("started", flush=True)
        for _ in range(6000):
            time.sleep(0.1)  # Python misses a signal that comes just before a system call, until the call returns
    finally:
        print("cleaned up", flush=True)
command.run = hang
from torchprof_tui.cli import main
sys.exit(main())
"""


def start(*, before: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", before + HANGING_COMMAND, "info", "x"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


@pytest.mark.parametrize("number", keep_some([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], 1))
def test_a_command_that_a_signal_ends_cleans_up_and_says_which(number: signal.Signals) -> None:
    process = start()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (128 + number, "cleaned up\n", "")


@pytest.mark.long
def test_nohup_is_respected() -> None:
    process = start(before="import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.long
def test_a_command_that_waits_for_a_pipe_is_ended() -> None:
    process = subprocess.Popen([*PROGRAM, "info", "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b'{"traceEvents": [')
    process.stdin.flush()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2)  # it reads on
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    process.stdin.close()
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()


@pytest.mark.parametrize("words", [("sample:matmul_add_64_cold_eager",), ()])
def test_a_dumb_terminal_is_refused_with_what_works_there(words: tuple[str, ...]) -> None:
    with Terminal([*PROGRAM, *words], columns=300, TERM="dumb") as terminal:
        terminal.wait_for("TERM=dumb: this terminal cannot show the explorer", "check", "table", "snapshot")
        assert terminal.wait_for_end() == 2
        assert "\x1b" not in terminal.text


def test_no_terminal_is_refused_with_what_works_there() -> None:
    result = subprocess.run(
        [*PROGRAM, str(SAMPLE)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("torchprof-tui: the explorer needs a terminal; what works here: torchprof-tui info ")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("inf", "x"), "did you mean info?"),
        (("snapshto",), "did you mean snapshot?"),
        (("zzzz",), "the commands are 'run', "),
        (("info", "--jsn", SAMPLE), "did you mean --json?"),
        (("diff", "a", "b", "--markdwon"), "did you mean --markdown?"),
        (("--thme=light",), "did you mean --theme?"),
        (("info", "--zzzzzz", SAMPLE), "see: torchprof-tui info --help"),
    ],
)
def test_the_word_that_was_meant_is_suggested(
    words: tuple[str | Path, ...],
    hint: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert hint in read_error_line(capsys, *words)
