"""A recorded program that writes to the status pipe and over its own manifest: the screen shows one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from tests.helpers.paths import ROOT
from torchprof_tui.app import TorchprofApp
from torchprof_tui.runs import recording_request
from torchprof_tui.runs.recording_request import RecordingRequest
from torchprof_tui.runs.run_result import RunResult
from torchprof_tui.ui.record.recording_screen import RecordingScreen, describe_outcome

STATUS_LINES = r"""
import atexit, json, os, time
pipe = os.open(os.environ["TORCHPROF_STATUS"], os.O_WRONLY)
common = {"time": time.time(), "rank": 0, "phase": "recording"}
for changes in (
    {"step": "2", "of": []}, {"cycles": 3}, {"after_s": "1"}, {"for_s": {}}, {"phase": 5}, {"time": "now"},
    {"rank": None}, {"folder": "/a\0b"}, {"folder": 7}, {"log": {}}, {"phase": "x" * 3000}, {"phase": "\x1b[2J"},
):
    os.write(pipe, json.dumps({**common, **changes}).encode() + b"\n")
os.write(pipe, b"[" * 4000 + b"\n")
os.write(pipe, b'{"time": 1e999, "rank": 0}\n\xff\xfe\n\n')
os.write(pipe, json.dumps({**common, "phase": "thinking"}).encode() + b"\n")
atexit.register(lambda: open(FOLDER + "/manifest.json", "w").write('{"kept": [{"trace": 5}]}'))
"""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder, and use a harness that needs no torch."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(recording_request, "HARNESS", ROOT / "tests/helpers/fake_harness.py")
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    for _ in range(6_000):
        if condition():
            return
        await pilot.pause(0.01)
    raise AssertionError("the condition was not met in time")


def shown(app: TorchprofApp, selector: str) -> str:
    return str(app.screen.query_one(selector, Static).content)


async def run_script(pilot: Pilot[None], folder: Path, script: str) -> RecordingScreen:
    (folder / "script.py").write_text(script)
    screen = RecordingScreen(RecordingRequest(("script.py",)), str(folder))
    await pilot.app.push_screen(screen)
    return screen


async def test_status_lines_of_the_program(alone: Path) -> None:
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await run_script(pilot, alone, STATUS_LINES + "time.sleep(600)\n")
        await until(pilot, lambda: "thinking" in shown(app, "#running-phase"))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not screen.busy)
        assert "\x1b" not in shown(app, "#running-phase")


async def test_a_manifest_that_the_program_overwrote(alone: Path) -> None:
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await run_script(pilot, alone, STATUS_LINES)
        await until(pilot, lambda: not screen.busy)
        assert "the saved files cannot be read: manifest.json: kept[0].trace is not text" in shown(app, "#running-end")


async def test_a_full_temporary_folder(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", fail)
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await run_script(pilot, alone, "")
        await until(pilot, lambda: not screen.busy)
        assert "could not be started" in shown(app, "#running-end")
        assert "No space left" in shown(app, "#running-end")


def test_the_outcome_names_the_damaged_file() -> None:
    result = RunResult("/r", (), (), 0, 1.0, None, (), (), ("manifest.json: rank is not a whole number",))
    line = "It ended after 1.0 s, and the saved files cannot be read: manifest.json: rank is not a whole number, in /r"
    assert describe_outcome(result, False, "") == line
