"""Test streams that are closed or full: an answer or one line, and no file of the program in their place."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.helpers.command_line import PROGRAM, run_program
from tests.helpers.long_run import keep_some
from torchprof_samples import find

SAMPLE = str(find("attention_naive").path)


def run_in_shell(redirection: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = f"{shlex.join([*PROGRAM, *words])} {redirection}"
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("words", [("info", SAMPLE, "--no-cache"), ("--version",), ("info", "--help")])
@pytest.mark.parametrize(
    ("redirection", "reason"),
    keep_some([(">&-", "stdout: Bad file descriptor"), (">/dev/full", "No space left on device")], 2),
)
def test_an_answer_that_cannot_be_written(words: tuple[str, ...], redirection: str, reason: str) -> None:
    result = run_in_shell(redirection, *words)
    assert (result.returncode, result.stderr) == (2, f"torchprof-tui: {reason}\n")


@pytest.mark.parametrize("redirection", keep_some(["2>&-", "2>/dev/full", "<&-", "<&- 2>&-"], 1))
def test_the_answer_needs_no_other_stream(redirection: str) -> None:
    expected = run_program("table", SAMPLE, "--no-cache")
    result = run_in_shell(redirection, "table", SAMPLE, "--no-cache")
    assert (result.returncode, result.stdout) == (0, expected.stdout)
    assert expected.stdout


@pytest.mark.parametrize("redirection", keep_some(["2>&-", "2>/dev/full", ">&- 2>&- <&-"], 1))
def test_an_error_that_cannot_be_written_is_an_exit_status(redirection: str) -> None:
    assert run_in_shell(redirection, "table", "missing.json").returncode == 2


def test_no_file_takes_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    """A message would be written into the slice."""
    out = tmp_path / "slice.json"
    assert run_in_shell("<&- 2>&-", "slice", SAMPLE, "--range", "0:300", "-o", str(out), "--no-cache").returncode == 0
    assert run_program("info", out, "--no-cache").returncode == 0
    assert "torchprof-tui:" not in out.read_text()


@pytest.mark.long
def test_an_input_that_is_closed_is_empty() -> None:
    result = run_in_shell("<&-", "table", "-")
    assert (result.returncode, result.stderr) == (2, "torchprof-tui: stdin: not a trace, but an empty file\n")
