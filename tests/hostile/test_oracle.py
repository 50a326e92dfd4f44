"""Faults that the hostile sessions must find: each is planted, and reported."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile import oracle, world
from tests.hostile.cases import TRACE, CommandCase, Inputs, ScreenCase
from tests.hostile.commands import run_command_case
from tests.hostile.corpus import EVIL_NAMES, GOOD
from tests.hostile.inputs import ENVIRONMENTS
from tests.hostile.oracle import FindingError
from tests.hostile.screens import list_keys, play_screen_case
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen


def test_an_unescaped_name_on_stdout_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchprof_tui.commands.table.text.clean", lambda text: text)
    with pytest.raises(FindingError, match="in stdout"):
        run_command_case(CommandCase(Inputs(EVIL_NAMES), ("table", TRACE)))


def test_an_exception_in_a_command_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchprof_tui.commands.info.main.build_info", lambda *_: [][1])
    with pytest.raises(IndexError):
        run_command_case(CommandCase(Inputs(GOOD), ("info", TRACE)))


def test_an_exception_on_a_screen_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(ExplorerScreen, "on_mount", fail)
    with pytest.raises(KeyError, match="a bug"):
        play_screen_case(ScreenCase(Inputs(GOOD)))


@pytest.mark.parametrize("place", ["x", "torchprof_runs/run1/x", TRACE])
def test_a_file_beside_the_trace_is_found(place: str) -> None:
    with pytest.raises(FindingError, match=r"changed|added"), world.build_world(Inputs(GOOD)) as session:
        (session.work / place).write_bytes(b"")


def test_a_write_elsewhere_is_found_and_refused(tmp_path: Path) -> None:
    def write() -> None:
        with world.build_world(Inputs(GOOD)):
            for call in (lambda: (tmp_path / "x").write_bytes(b""), lambda: os.mkdir(tmp_path / "y")):
                with pytest.raises(PermissionError):
                    call()

    with pytest.raises(FindingError, match="written outside"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_own_places_are_no_finding() -> None:
    with world.build_world(Inputs(GOOD)) as session:
        (session.root / "cache" / "x").write_bytes(b"")
        (session.output / "x").write_bytes(b"")


def test_the_environment_is_the_sessions_own_and_restored() -> None:
    before, folder = dict(os.environ), os.getcwd()
    for change in ENVIRONMENTS:
        with world.build_world(Inputs(GOOD, environment=(change,))) as session:
            name, value = change
            assert os.environ.get(name) == (None if value is None else session.expand(value))
            assert Path.cwd() == session.work
    assert (dict(os.environ), os.getcwd()) == (before, folder)


@pytest.mark.parametrize(
    ("text", "status"),
    [("Traceback (most recent call last):\n  x\n", 2), ("", 2), ("x\n" * 13, 0), ("\x1b[31m\n", 2), ("\u202e\n", 2)],
)
def test_faults_on_stderr_are_found(text: str, status: int) -> None:
    with pytest.raises(FindingError):
        oracle.check_errors(text, status)


@pytest.mark.parametrize(
    "check",
    [
        lambda: oracle.check_json('{"a": NaN}'),
        lambda: oracle.check_json("{}{}"),
        lambda: oracle.check_json("[]"),
        lambda: oracle.check_json('{"schema": "torchprof-tui/cache/1", "folder": null}'),
        lambda: oracle.check_svg("<svg>\x07</svg>"),
        lambda: oracle.check_svg("<svg>"),
        lambda: oracle.check_strips(["a\nb"]),
        lambda: oracle.check_status(3),
    ],
)
def test_other_faults_are_found(check: Callable[[], None]) -> None:
    with pytest.raises(FindingError):
        check()


def test_keys_of_all_screens_are_pressed() -> None:
    assert {"t", "k", "c", "E", "r", "enter", "ctrl+c", "question_mark", "left"} <= set(list_keys())
