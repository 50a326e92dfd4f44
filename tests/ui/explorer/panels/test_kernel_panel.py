"""The kernel panel where there is no kernel: enter says so, and moves nothing."""

from __future__ import annotations

from tests.helpers.explorer_app import explorer, settled, text_of
from tests.helpers.trace_builder import cpu, trace


async def test_enter_in_an_empty_kernel_panel_says_why() -> None:
    async with explorer(trace(cpu("a", 0, 50), cpu("b", 60, 20)), (120, 40)) as (screen, pilot):
        await pilot.press("k", "enter")
        await settled(pilot)
        assert "no kernel to go to: no event is selected" in text_of(screen)
        await pilot.press("right")
        await settled(pilot)
        before = screen.view_state.viewport
        await pilot.press("enter")
        await settled(pilot)
        assert "no kernel to go to: this event leads to no GPU work" in text_of(screen)
        assert screen.view_state.viewport == before
