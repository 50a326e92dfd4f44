"""A new recording against the last one: `d` at the end of a run, and what `D` suggests on the lanes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ui.record.test_record_screen import SIZE, alone, shown, submit, until
from torchprof_tui.app import TorchprofApp
from torchprof_tui.ui.diff.diff_screen import DiffScreen
from torchprof_tui.ui.record.recording_screen import RecordingScreen

__all__ = ["alone"]  # a fixture


@pytest.mark.long
async def test_a_repeated_run_is_compared_with_the_one_before(alone: Path) -> None:
    app = TorchprofApp()
    async with app.run_test(size=SIZE) as pilot:
        await submit(pilot, "print('hello')")
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        assert app.last_compared == ""
        await pilot.press("r")
        await until(pilot, lambda: app.screen.TITLE == "explorer" and "script-1" in app._current_opener.spec)  # type: ignore[union-attr]
        assert "script-0" in app.last_compared
        await pilot.press("D", "enter")
        await until(pilot, lambda: isinstance(app.screen, DiffScreen))
        assert isinstance(app.screen, DiffScreen)
        assert ["script-0" in side.whole.label for side in app.screen.inputs] == [True, False]


@pytest.mark.long
async def test_the_end_of_a_run_that_failed_offers_the_comparison(alone: Path) -> None:
    app = TorchprofApp()
    async with app.run_test(size=SIZE) as pilot:
        await submit(pilot, "print('hello')")
        await until(pilot, lambda: app.screen.TITLE == "explorer")
        await submit(pilot, "raise ValueError", "failing.py")
        await until(pilot, lambda: isinstance(app.screen, RecordingScreen) and app.screen.result is not None)
        assert "D compare with the last" in shown(app, "#running-keys")
        await pilot.press("D")
        await until(pilot, lambda: isinstance(app.screen, DiffScreen))
        assert isinstance(app.screen, DiffScreen)
        assert ["script-0" in side.whole.label for side in app.screen.inputs] == [True, False]


async def test_a_first_run_has_nothing_to_compare_with(alone: Path) -> None:
    app = TorchprofApp()
    async with app.run_test(size=SIZE) as pilot:
        await submit(pilot, "raise ValueError", "failing.py")
        await until(pilot, lambda: isinstance(app.screen, RecordingScreen) and app.screen.result is not None)
        assert "compare" not in shown(app, "#running-keys")
        await pilot.press("D")
        assert "no trace was open before this run" in next(iter(app._notifications)).message
