"""Build the command that records a request; nothing is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from torchprof_runs.recorder import options as harness_options
from torchprof_runs.recorder import target_program
from torchprof_tui.runs.recording_request import (
    HARNESS,
    OPTIONS,
    WORKLOADS,
    RecordingRequest,
    RequestError,
    find_default_python,
    summarize_workload,
)

ORDINARY = {"PATH": os.environ["PATH"]}


def executable(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_the_harness_is_found() -> None:
    assert Path(harness_options.__file__).parents[1] / "harness.py" == HARNESS
    assert WORKLOADS == target_program.WORKLOADS
    assert all(summarize_workload(name) for name in WORKLOADS)


def test_the_options_are_those_of_the_harness() -> None:
    """They are written twice, because neither package may import the other."""
    value = {"count": "3", "seconds": "1.5", "switch": None, "choice": None, "text": "train:step"}
    parsed = {}
    for option in OPTIONS:
        words = [option.flag, *filter(None, [option.values[0] if option.values else value[option.kind]])]
        parsed[option.flag] = (
            harness_options.parse_options([*words, "x.py"]) if option.flag not in ("--after", "--for") else None
        )
    parser = harness_options._build_parser()
    harness_flags = {flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")}
    assert harness_flags - {"--help", "--output", "--keep-going"} == set(parsed)
    assert [option.values for option in OPTIONS if option.flag == "--then"] == [("stop", "finish")]


@pytest.mark.parametrize(
    ("command", "flags", "program"),
    [
        ("python train.py --lr 1", [], ["train.py", "--lr", "1"]),
        ("python -u -X dev -W error train.py -m x", ["-u", "-X", "dev", "-W", "error"], ["train.py", "-m", "x"]),
        ("python -Xdev -Im pkg.train -c", ["-Xdev", "-I"], ["-m", "pkg.train", "-c"]),
        ("python -m pkg.train --lr 1", [], ["-m", "pkg.train", "--lr", "1"]),
        ("python -mpkg.train", [], ["-m", "pkg.train"]),
        ("python3 --check-hash-based-pycs never a.py", ["--check-hash-based-pycs", "never"], ["a.py"]),
    ],
)
def test_flags_of_python_are_kept(tmp_path: Path, command: str, flags: list[str], program: list[str]) -> None:
    python = executable(tmp_path / "bin" / command.split()[0])
    argv = RecordingRequest(tuple(command.split()), ("--active", "2"), output="runs").argv({"PATH": str(python.parent)})
    assert argv == [str(python), *flags, str(HARNESS), "--output", "runs", "--active", "2", *program]


def test_the_choice_of_the_interpreter(tmp_path: Path) -> None:
    active = executable(tmp_path / "active" / "bin" / "python")
    other = executable(tmp_path / "other" / "bin" / "python")
    link = tmp_path / "linked" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(other)
    environment = {**ORDINARY, "VIRTUAL_ENV": str(tmp_path / "active")}
    assert RecordingRequest(("mlp",)).argv(environment)[0] == str(active)
    assert RecordingRequest(("mlp",), python=str(tmp_path / "other")).argv(environment)[0] == str(other)
    # A link may be the interpreter of a virtual environment: its target would have other packages.
    assert RecordingRequest(("python", "x.py"), python=str(link)).argv(environment)[0] == str(link)
    nowhere = {**environment, "PATH": str(tmp_path)}  # the command's own interpreter need not exist then
    assert RecordingRequest(("python", "x.py"), python=str(link)).argv(nowhere)[0] == str(link)
    assert RecordingRequest((str(other), "x.py")).argv(environment)[0] == str(other)
    assert find_default_python({"VIRTUAL_ENV": str(tmp_path / "gone"), **ORDINARY}) in (sys.executable, *_on_path())


def _on_path() -> list[str]:
    return [os.path.join(folder, "python3") for folder in os.environ["PATH"].split(os.pathsep)]


def test_a_script_with_an_interpreter_of_its_own(tmp_path: Path) -> None:
    python = executable(tmp_path / "venv" / "bin" / "python3.11")
    tool = executable(tmp_path / "venv" / "bin" / "mytrain", f"#!{python}\nimport sys\n")
    wrapped = executable(
        tmp_path / "venv" / "bin" / "wrapped", f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n"
    )
    torchrun = executable(tmp_path / "venv" / "bin" / "torchrun", f"#!{python}\n")
    path = {"PATH": str(tool.parent)}
    for script in (tool, wrapped):
        assert RecordingRequest((script.name, "-x")).argv(path)[-2:] == [str(script), "-x"]
        assert RecordingRequest((script.name,)).argv(path)[0] == str(python)
    distributed = RecordingRequest((str(torchrun), "--nproc-per-node", "2", "train.py")).argv(path)
    assert distributed[0] == str(python)
    assert distributed[-4:] == ["torchrun", "--nproc-per-node", "2", "train.py"]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ((), "name a workload"),
        (("matmul_sub",), "neither a workload"),
        (("sh", "train.sh"), "is no Python program"),
        (("python",), "python without a script"),
        (("python", "-"), "python without a script"),
        (("python", "-c", "print(1)"), "put the program into a file"),
        (("python9.99", "x.py"), "no interpreter python9.99"),
    ],
)
def test_an_invalid_request_is_explained_in_one_line(command: tuple[str, ...], says: str, tmp_path: Path) -> None:
    executable(tmp_path / "python")
    executable(tmp_path / "sh", "\x7fELF")
    with pytest.raises(RequestError) as raised:
        RecordingRequest(command).argv({"PATH": str(tmp_path)})
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_equivalent_command_line() -> None:
    assert (
        RecordingRequest(("mlp", "--compile"), ("--active", "2")).equivalent_command()
        == "torchprof-tui run --active 2 mlp --compile"
    )
    request = RecordingRequest(("python", "my train.py"), python="/v/bin/python", output="else where")
    expected = "torchprof-tui run --python /v/bin/python -o 'else where' -- python 'my train.py'"
    assert request.equivalent_command() == expected


def test_a_script_whose_second_line_has_an_open_quote_names_no_interpreter(tmp_path: Path) -> None:
    executable(tmp_path / "bin" / "tool", "#!/bin/sh\n'''exec' \"/usr/bin/python3\n")
    with pytest.raises(RequestError, match="no Python program"):
        RecordingRequest(("tool",)).argv({"PATH": str(tmp_path / "bin")})
