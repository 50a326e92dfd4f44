"""Trials from the explorer: offered by the cheatsheet where the run of the trace can be repeated, begun by `:try`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.helpers.explorer_app import settled, until
from tests.helpers.paths import SAMPLES
from tests.trials.test_screen import WAITING, ScriptedTrials
from torchprof_try.extension import FINDINGS
from torchprof_try.remedies import REMEDIES, Evidence
from torchprof_try.trials import TrialRequest, Trials
from torchprof_try.ui import try_screen
from torchprof_try.ui.try_screen import TryScreen
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.app import TorchprofApp
from torchprof_tui.runs.history import save_request
from torchprof_tui.runs.recording_request import RecordingRequest
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen

NEXT_STEP = "measures what its remedies save"


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / "train.pt.trace.json.gz"
    shutil.copy(SAMPLES / "train_gpt_starved.pt.trace.json.gz", path)
    return path


def open_app(trace: Path) -> TorchprofApp:
    opener = resolve_specs([str(trace)]).create_opener()
    opener.start()
    return TorchprofApp(opener)


async def explored(app: TorchprofApp, pilot: Pilot[None]) -> ExplorerScreen:
    await until(pilot, lambda: isinstance(app.screen, ExplorerScreen))
    assert isinstance(app.screen, ExplorerScreen)
    await settled(pilot)
    return app.screen


async def ask_for_trials(pilot: Pilot[None]) -> None:
    await pilot.press("colon", *"try", "enter")
    await settled(pilot)


@pytest.mark.long
async def test_the_run_of_the_trace_is_tried(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_request(str(trace.parent), RecordingRequest(("train.py",), (), sys.executable), str(trace.parent))
    requests = []

    def create(request: TrialRequest) -> Trials:
        requests.append(request)
        return ScriptedTrials(WAITING)

    monkeypatch.setattr(try_screen, "Trials", create)
    app = open_app(trace)
    async with app.run_test(size=(160, 60)) as pilot:
        screen = await explored(app, pilot)
        cheatsheet = screen._panel_controller.cheatsheet_panel
        await until(pilot, lambda: bool(cheatsheet.tryable) and cheatsheet.finding is not None)
        await ask_for_trials(pilot)
        await until(pilot, lambda: isinstance(app.screen, TryScreen))
        await pilot.press("q")
        await until(pilot, lambda: app.screen is screen)
        await pilot.press("c")
        await settled(pilot)
        while cheatsheet.finding is not None and cheatsheet.finding.id != "input-starved":
            assert (NEXT_STEP in cheatsheet.text()) is (cheatsheet.finding.id in FINDINGS)
            await pilot.press("down")
            await settled(pilot)
        assert f":try {NEXT_STEP}" in cheatsheet.text()
        await ask_for_trials(pilot)
        await until(pilot, lambda: isinstance(app.screen, TryScreen))
    assert [(request.command, request.finding) for request in requests] == [
        (("train.py",), ""),
        (("train.py",), "input-starved"),
    ]


@pytest.mark.long
async def test_a_trace_without_its_run_says_why(trace: Path) -> None:
    app = open_app(trace)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await explored(app, pilot)
        await until(pilot, lambda: screen._panel_controller.cheatsheet_panel.finding is not None)
        await ask_for_trials(pilot)
        await until(pilot, lambda: bool(app._notifications))
        (notice,) = app._notifications
        assert "it is unknown how this trace was recorded" in notice.message
        assert app.screen is screen
        assert NEXT_STEP not in screen._panel_controller.cheatsheet_panel.text()


def test_the_findings_are_those_of_the_remedies() -> None:
    assert {pattern for remedy in REMEDIES for pattern in remedy.patterns} == set(FINDINGS)
    assert set(FINDINGS) <= set(PATTERNS)


def test_one_finding_leaves_its_remedies_alone(trace: Path) -> None:
    save_request(str(trace.parent), RecordingRequest(("train.py",), (), sys.executable), str(trace.parent))
    screen = try_screen.create_screen(str(trace), "optimizer-loop")
    trials = screen.trials
    trials.evidence = Evidence({}, has_gpu=True)
    assert {remedy.name for remedy in trials._choose()} == {"fused-optimizer", "foreach-optimizer"}
