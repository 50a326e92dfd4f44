"""Complete command lines in real shells: bash, zsh and fish, with the scripts that the program prints."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.command_line import read_error_line
from tests.helpers.long_run import keep_some
from tests.helpers.terminal import Terminal
from torchprof_tui.cli import main
from torchprof_tui.commands.common.parsers import build_parser, list_commands

_BASH = """
source "$1"
COMP_LINE="$2"
COMP_POINT=${#COMP_LINE}
COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:'
_torchprof_tui
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def script(tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Path:
    """Write the script of the shell that the test names; skip where the shell is missing."""
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    assert main(["completion", shell]) == 0
    path = tmp_path / f"completion.{shell}"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    return path


def complete_in_bash(script: Path, line: str, folder: Path) -> list[str]:
    command = ["bash", "--norc", "-c", _BASH, "bash", str(script), line]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def complete_in_fish(script: Path, line: str, folder: Path) -> list[str]:
    command = ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return [shown.partition("\t")[0] for shown in done.stdout.splitlines()]


SHELLS = {"bash": complete_in_bash, "fish": complete_in_fish}

EXPECTED = (
    ("torchprof-tui inf", ["info"]),
    ("torchprof-tui check --fail", ["--fail-on"]),
    ("torchprof-tui diff --by mo", ["module"]),
    ("torchprof-tui snapshot -o pic", ["picture.svg"]),
    ("torchprof-tui run matmul", ["matmul_add"]),
    ("torchprof-tui check trace_o", ["trace_one.json"]),
    ("torchprof-tui trace_o", ["trace_one.json"]),
    ("torchprof-tui completion f", ["fish"]),
    ("torchprof-tui --colo", ["--color"]),
)


@pytest.mark.parametrize("script", keep_some(SHELLS, 4), indirect=True)
@pytest.mark.parametrize(("line", "expected"), EXPECTED)
def test_words_are_completed(script: Path, tmp_path: Path, line: str, expected: list[str]) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    for name in ("trace_one.json", "picture.svg"):
        (folder / name).touch()
    assert SHELLS[script.suffix[1:]](script, line, folder) == expected


@pytest.mark.parametrize("script", SHELLS, indirect=True)
def test_every_flag_of_every_command_is_offered(script: Path, tmp_path: Path) -> None:
    for name in list_commands():
        flags = {flag for action in build_parser(name)._actions for flag in action.option_strings if len(flag) > 2}
        assert flags <= set(SHELLS[script.suffix[1:]](script, f"torchprof-tui {name} --", tmp_path)), name


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_a_sample_is_completed_behind_its_colon(script: Path, tmp_path: Path) -> None:
    """bash replaces only what stands behind the colon."""
    assert complete_in_bash(script, "torchprof-tui check sample:attention_n", tmp_path) == ["attention_naive"]
    assert "--json" in complete_in_bash(script, "torchprof-tui check sample:attention_naive --", tmp_path)


@pytest.mark.parametrize("script", ["fish"], indirect=True)
def test_fish_completes_samples(script: Path, tmp_path: Path) -> None:
    line = "torchprof-tui check sample:attention_n"
    assert complete_in_fish(script, line, tmp_path) == ["sample:attention_naive"]


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_the_value_behind_an_equals_sign(script: Path, tmp_path: Path) -> None:
    assert complete_in_bash(script, "torchprof-tui diff --by=mo", tmp_path) == ["module"]


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_tab_in_an_interactive_bash(script: Path, tmp_path: Path) -> None:
    with Terminal(["bash", "--norc", "--noprofile", "-i"], folder=tmp_path, PS1="ready> ") as terminal:
        terminal.wait_for("ready>")
        terminal.send(f"source {script}; clear\r")
        terminal.wait_for("source", gone=True)
        terminal.send("torchprof-tui che\t")
        terminal.wait_for("torchprof-tui check")
        terminal.send("sample:attention_n\t")
        terminal.wait_for("sample:attention_naive")
        terminal.send("--fail\t")
        terminal.wait_for("attention_naive --fail-on")


@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_tab_in_an_interactive_zsh(script: Path, tmp_path: Path) -> None:
    with Terminal(["zsh", "-f", "-i"], folder=tmp_path, PS1="ready> ") as terminal:
        terminal.wait_for("ready>")
        terminal.send(f"source {script}; clear\r")
        terminal.wait_for("source", gone=True)
        terminal.send("torchprof-tui che\t")
        terminal.wait_for("torchprof-tui check")
        terminal.send("sample:attention_n\t")
        terminal.wait_for("sample:attention_naive")
        terminal.send("--fail\t")
        terminal.wait_for("attention_naive --fail-on")
        terminal.send("\x15torchprof-tui diff --by mo\t")
        terminal.wait_for("diff --by module")


def test_an_unknown_shell_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "bash" in read_error_line(capsys, "completion", "tcsh")
