"""The app of `torchprof-tui fleet`: when it opens, and the way from the fleet to a rank's lanes and back."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.explorer_app import settled, until
from tests.helpers.fleet_app import BASE, make_source
from tests.helpers.fleet_runs import write_fleet
from tests.helpers.golden_files import text_on_screen
from torchprof_fleet.analysis.sketch_trace import sketch_trace
from torchprof_fleet.command import FleetOptions
from torchprof_fleet.command import main as fleet_command
from torchprof_fleet.command.screen import FleetApp
from torchprof_fleet.ui.fleet_screen import FleetScreen
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen


@pytest.mark.long
async def test_a_rank_opens_at_the_step_and_q_leads_back(tmp_path: Path) -> None:
    paths = write_fleet(BASE, tmp_path, 4, 2)
    sketches = [dataclasses.replace(sketch_trace(load_trace(str(path), cache=False)), file=str(path)) for path in paths]
    app = FleetApp(make_source(sketches), cache=False)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, FleetScreen) and not app.screen.is_reading)
        await settled(pilot)
        fleet = app.screen
        await pilot.press("down", "down", "right", "enter")
        await until(pilot, lambda: isinstance(app.screen, ExplorerScreen))
        await settled(pilot)
        explorer = app.screen
        assert isinstance(explorer, ExplorerScreen)
        assert explorer.trace.rank == 2
        name = explorer.trace.name[explorer.view_state.selected]
        assert explorer.trace.names[int(name)] == "ProfilerStep#3"
        await pilot.press("q")
        await until(pilot, lambda: app.screen is fleet)
        await pilot.press("m", "down", "m", "enter")
        await until(pilot, lambda: isinstance(app.screen, ExplorerScreen))
        await settled(pilot)
        assert "2 ranks" in text_on_screen(app.screen)
        await pilot.press("q")
        await until(pilot, lambda: app.screen is fleet)
        await pilot.press("q")
        await pilot.pause()
    assert app.return_code == 0


@pytest.mark.parametrize(
    ("given", "is_terminal", "problem", "shown"),
    [
        ({}, True, "", True),
        ({}, False, "", False),
        ({"json": True}, True, "", False),
        ({"parquet": "out.parquet"}, True, "", False),
        ({}, True, "TERM=dumb", False),
    ],
)
def test_the_screen_is_for_terminals(
    given: dict[str, Any], is_terminal: bool, problem: str, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr(fleet_command, "find_terminal_problem", lambda: problem)
    options = dataclasses.replace(FleetOptions(source=("x",)), **given)
    assert fleet_command._shows_screen(options) is shown
