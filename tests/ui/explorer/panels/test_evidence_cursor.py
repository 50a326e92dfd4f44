"""The walk through a finding's evidence: a gap is shown as the gap."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from tests.analysis.patterns.engine.test_pattern import uneven_gaps
from tests.helpers.explorer_app import explorer, settled, text_of
from tests.helpers.trace_builder import trace
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen


async def go_to(screen: ExplorerScreen, pilot: Pilot[None], pattern_id: str) -> None:
    """Press the number of a finding."""
    await settled(pilot)
    ids = [finding.id for finding in screen._panel_controller.cheatsheet_panel._fired_findings()]
    await pilot.press(str(ids.index(pattern_id) + 1))


@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_a_number_shows_the_largest_gap_and_n_the_next_smaller(size: tuple[int, int]) -> None:
    shown = trace(*uneven_gaps())
    async with explorer(shown, size) as (screen, pilot):
        await go_to(screen, pilot, "host-code")
        assert "the longest of 3 gaps" in screen._panel_controller.cheatsheet_panel.text()
        for number, (key, start, end) in enumerate((("", 250, 850), ("n", 950, 1250), ("n", 50, 150)), start=1):
            if key:
                await pilot.press(key)
            view = screen.view_state.viewport
            length = (end - start) * 1000
            assert view.t0 < start * 1000
            assert view.t1 > end * 1000  # the events before and after are on screen
            assert view.t1 - view.t0 < 1.5 * length
            assert f"host-code: gap {number} of 3, {end - start}.0 µs before aten::add" in text_of(screen)
            assert shown.start[screen.view_state.selected] == end * 1000
        await pilot.press("N")
        assert "host-code: gap 2 of 3" in text_of(screen)
        await pilot.press("backspace")
        assert screen.view_state.viewport == view


async def test_after_a_gap_the_first_event_of_another_finding_is_fitted() -> None:
    shown = trace(*uneven_gaps())
    async with explorer(shown, (120, 40)) as (screen, pilot):
        await go_to(screen, pilot, "host-code")
        others = [f for f in screen._panel_controller.cheatsheet_panel._fired_findings() if f.id != "host-code"]
        for finding in others:
            await go_to(screen, pilot, finding.id)
            assert f"{finding.id}: gap" not in text_of(screen)
