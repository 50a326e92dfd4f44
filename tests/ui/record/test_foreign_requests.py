"""A request that this user did not make: shown in the form, and never started by the key that repeats a run."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static

from tests.helpers.long_run import keep_some
from tests.helpers.paths import ROOT
from torchprof_samples import find
from torchprof_tui.app import TorchprofApp
from torchprof_tui.runs import recording_request
from torchprof_tui.runs.history import save_request
from torchprof_tui.runs.recording_request import RecordingRequest
from torchprof_tui.trace.loading.opener import SingleTraceOpener
from torchprof_tui.ui.record.foreign_request import (
    MAX_COMMAND,
    MAX_SHOWN,
    NOTICE,
    describe_foreign_request,
    find_form_problem,
)
from torchprof_tui.ui.record.record_screen import RecordScreen, format_outcome
from torchprof_tui.ui.record.recording_screen import RecordingScreen

FAKE = ROOT / "tests/helpers/fake_harness.py"
SAMPLE = find("matmul_add_64_cold_eager").path
NESTED = "[" * 100_000


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder, and use a harness that needs no torch."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path / "cache"))
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(recording_request, "HARNESS", FAKE)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def unpacked(alone: Path) -> Path:
    """Return a folder from a colleague: a trace, and a script that leaves a file behind when it runs."""
    folder = alone / "torchprof_runs" / "from-colleague"
    folder.mkdir(parents=True)
    shutil.copy(SAMPLE, folder / "a.pt.trace.json.gz")
    (folder / "theirs.py").write_text(f"open({str(alone / 'it-ran')!r}, 'w').close()\nTRACES = 0\n")
    return folder


def write_request(folder: Path, **changes: Any) -> None:
    facts = {"command": ["theirs.py"], "options": ["--active", "7"], "python": sys.executable, "cwd": str(folder)}
    (folder / "request.json").write_text(json.dumps({**facts, "output": str(folder / "out"), **changes}))


@pytest.fixture(autouse=True)
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the notifications: on a busy machine one ends before the test looks."""
    collected: list[str] = []
    notify = TorchprofApp.notify

    def collect(app: TorchprofApp, message: str, **options: Any) -> None:
        collected.append(message)
        notify(app, message, **options)

    monkeypatch.setattr(TorchprofApp, "notify", collect)
    return collected


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    for _ in range(6_000):
        if condition():
            return
        await pilot.pause(0.01)
    raise AssertionError("the condition was not met in time")


def explore(folder: Path) -> TorchprofApp:
    opening = SingleTraceOpener(str(folder / "a.pt.trace.json.gz"))
    opening.start()
    return TorchprofApp(opening)


def shown(app: TorchprofApp, selector: str) -> str:
    return str(app.screen.query_one(selector, Static).content)


def screen_text(app: TorchprofApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


@pytest.mark.parametrize("size", [(80, 24), pytest.param((160, 48), marks=pytest.mark.long)])
async def test_r_on_a_foreign_request_shows_it_and_enter_starts_it(
    unpacked: Path, alone: Path, size: tuple[int, int]
) -> None:
    write_request(unpacked)
    app = explore(unpacked)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, RecordScreen))
        await pilot.pause(0.2)
        assert not (alone / "it-ran").exists()
        notice = shown(app, "#run-foreign")
        assert notice.startswith(NOTICE)
        for line in ("command     theirs.py", f"interpreter {sys.executable}", "options     --active 7"):
            assert f"\n{line}\n" in notice
        assert f"\nfolder      {unpacked}\n" in notice
        assert "\nenvironment unchanged" in notice
        text = screen_text(app)
        assert "Not started: this request comes from another machine" in text
        assert all(word in text for word in ("command ", "interpreter ", "folder ", "environment ", "enter start"))
        assert app.screen.query_one(Input).value == "theirs.py"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RecordingScreen) and not app.screen.busy)
        assert (alone / "it-ran").exists()


@pytest.mark.long
async def test_r_on_an_edited_copy_of_an_own_request_starts_nothing(unpacked: Path, alone: Path) -> None:
    save_request(str(unpacked), RecordingRequest(("mine.py",), (), sys.executable), str(unpacked))
    path = unpacked / "request.json"
    path.write_bytes(path.read_bytes().replace(b"mine.py", b"theirs.py"))
    app = explore(unpacked)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, RecordScreen))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen.TITLE == "explorer")
    assert not (alone / "it-ran").exists()


@pytest.mark.long
async def test_r_on_an_own_request_starts_it_at_once(unpacked: Path, alone: Path) -> None:
    save_request(str(unpacked), RecordingRequest(("theirs.py",), (), sys.executable), str(unpacked))
    app = explore(unpacked)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, RecordingScreen) and not app.screen.busy)
    assert (alone / "it-ran").exists()


@pytest.mark.parametrize(
    ("content", "line"),
    keep_some(
        [
            ('{"command": "theirs.py", "cwd": "/"}', "request.json: command is not a list"),
            (
                '{"command": ["a\\u0000"], "cwd": "/"}',
                "request.json: command[0] contains a character that no path can have",
            ),
            (NESTED, "request.json: the file is not an object"),
            (f'{{"x": {NESTED}', "request.json: nested too deeply"),
        ],
        1,
    ),
)
async def test_r_on_an_unreadable_request_is_one_line(
    unpacked: Path, content: str, line: str, notes: list[str]
) -> None:
    (unpacked / "request.json").write_text(content)
    app = explore(unpacked)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        await pilot.press("r")
        await until(pilot, lambda: notes)
        await until(pilot, lambda: isinstance(app.screen, RecordScreen))
        assert notes == [line]
        assert app.screen.query_one(Input).value == ""  # nothing of the file


@pytest.mark.long
async def test_a_foreign_past_run_is_shown_and_a_workload_does_not_inherit_its_options(
    unpacked: Path, notes: list[str]
) -> None:
    write_request(unpacked, python="/theirs/python", options=["--then", "explode", "--new", "--active", "7"])
    app = TorchprofApp()
    async with app.run_test(size=(160, 48), notifications=True) as pilot:
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, RecordScreen) and app.screen._past_runs)
        assert not app.screen.query_one("#run-foreign").display
        await pilot.press("home", "enter")
        await pilot.pause()
        assert app.screen.query_one("#run-foreign").display
        assert "no interpreter /theirs/python" in shown(app, "#run-foreign")
        await until(pilot, lambda: len(notes) == 1)
        assert notes[0] == "left out, unknown to this version: --then explode --new"
        await pilot.press("down", "down", "enter")
        await pilot.pause()
        assert not app.screen.query_one("#run-foreign").display
        assert shown(app, "#run-equivalent").startswith("$ torchprof-tui run ")
        assert "theirs" not in shown(app, "#run-equivalent")
        assert "--active" not in shown(app, "#run-equivalent")


@pytest.mark.long
@pytest.mark.parametrize("character", keep_some(["\x1b[2J", "\n", "\u202e", "\udcff"], 1))
async def test_a_request_that_cannot_be_shown_is_not_put_into_the_form(
    unpacked: Path, character: str, notes: list[str]
) -> None:
    """What acts on the terminal, reorders the text or cannot be drawn would hide what enter starts."""
    write_request(unpacked, command=["theirs.py", f"a{character}b"])
    app = explore(unpacked)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, RecordScreen) and notes)
        (note,) = notes
        assert note == "this request cannot be repeated: it contains characters that cannot be shown"
        assert app.screen.query_one(Input).value == ""
        await pilot.press("ctrl+r")
        assert "nothing to run" in shown(app, "#run-hint")


@pytest.mark.long
async def test_the_form_opens_among_hostile_runs(alone: Path) -> None:
    hostile = ('{"seconds": "1"}', '{"kept": [{"trace": null}]}', '{"rank": []}', NESTED, "\x1b[2J", "")
    for number, text in enumerate(hostile):
        folder = alone / "torchprof_runs" / f"run{number}"
        folder.mkdir(parents=True)
        write_request(folder, command=[f"name\x1b[3{number}m.py"])
        (folder / "manifest.json").write_text(text)
        other = alone / "torchprof_runs" / f"bad{number}"
        other.mkdir()
        (other / "request.json").write_text(text)
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, RecordScreen) and len(app.screen._past_runs) == len(hostile))
        await pilot.pause()
        rows = [str(option.prompt) for option in app.screen.query_one("#run-list", OptionList).options]
        outcomes = [format_outcome(run) for run in app.screen._past_runs]  # shown where the row is highlighted
        assert any("manifest.json: seconds is not a number" in outcome for outcome in outcomes)
        assert not any("\x1b" in row for row in rows)
        await pilot.press(*["down"] * 12)
        assert isinstance(app.screen, RecordScreen)


def test_a_long_command_is_not_shown_in_part_without_saying_so(tmp_path: Path) -> None:
    command = ("theirs.py", " " * MAX_SHOWN, "--evil")
    text = describe_foreign_request(RecordingRequest(command), "/", "/r/request.json", None).plain
    assert f"… {len(shlex.join(command)) - MAX_COMMAND} characters more: read the file\n" in text
    assert find_form_problem(RecordingRequest(("x" * 30_000,)), "/") == "it is too long to be shown"
    assert find_form_problem(RecordingRequest(("modèle.py", "日本"), ("--active", "1")), "/") is None


@pytest.mark.long
async def test_long_facts_do_not_move_the_command_off_the_screen(unpacked: Path) -> None:
    write_request(
        unpacked,
        command=["theirs.py", *["日本語"] * 500],
        options=["--step", "m:" + "f" * 4_000],
        python="/" + "p" * 4_000,
        output="/" + "o" * 4_000,
        cwd="/" + "c" * 3_000,
    )
    app = explore(unpacked)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, RecordScreen))
        await pilot.pause(0.2)
        text = screen_text(app)
        names = ("Not started", "command", "interpreter", "options", "folder", "output", "environment", "enter start")
        assert [name for name in names if name not in text] == []
        assert all(len(fact) < MAX_COMMAND + 60 for fact in shown(app, "#run-foreign").splitlines())


@pytest.mark.long
async def test_a_command_of_a_megabyte_is_listed_in_one_row(unpacked: Path, notes: list[str]) -> None:
    write_request(unpacked, command=["theirs.py", *["x" * 4_000] * 200])
    app = TorchprofApp()
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, RecordScreen) and app.screen._past_runs)
        assert max(len(str(row.prompt)) for row in app.screen.query_one("#run-list", OptionList).options) < 400
        await pilot.press("home", "enter")
        await until(pilot, lambda: notes)
        assert notes == ["this request cannot be repeated: it is too long to be shown"]


@pytest.mark.long
async def test_the_request_of_a_newer_version_says_so(unpacked: Path, notes: list[str]) -> None:
    write_request(unpacked, schema=99)
    app = explore(unpacked)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        await pilot.press(":", *"record", "enter")
        await until(pilot, lambda: isinstance(app.screen, RecordScreen))
        await until(pilot, lambda: "newer version (99" in "\n".join(notes))
        await until(pilot, lambda: app.screen.query_one("#run-list", OptionList).option_count > 8)  # with past runs
        await pilot.press("tab", "tab", "home")
        await until(pilot, lambda: "newer version (99" in shown(app, "#run-hint"))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        notes.clear()
        await pilot.press("r")
        await until(pilot, lambda: "newer version (99" in "\n".join(notes))


@pytest.mark.long
async def test_an_unreadable_request_is_reported_by_the_form(unpacked: Path, notes: list[str]) -> None:
    (unpacked / "request.json").write_text(NESTED)
    app = explore(unpacked)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        await pilot.press(":", *"record", "enter")
        await until(pilot, lambda: isinstance(app.screen, RecordScreen))
        await until(pilot, lambda: "request.json" in "\n".join(notes))
