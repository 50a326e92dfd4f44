"""Test that repetitions stand in for steps on the screen: the strip, the keys, and the table they jump from."""

from __future__ import annotations

import pytest

from tests.analysis.repetition.test_repetitions import decode
from tests.helpers.explorer_app import explorer, settled, two_steps, until
from tests.helpers.golden_files import text_on_screen
from tests.helpers.trace_builder import kernel, trace
from torchprof_tui.analysis.repetition.step_list import are_repetitions


async def test_repetitions_have_the_strip_and_the_keys_of_steps() -> None:
    made = decode(tokens=8, layers=5)
    async with explorer(made, (160, 48)) as (screen, pilot):
        state = screen.view_state
        await until(pilot, lambda: are_repetitions(state.current_steps()))
        await settled(pilot)
        lines = text_on_screen(screen).splitlines()
        strip = next(line for line in lines if line.startswith(" repeats"))
        assert [f"#{number}" in strip for number in range(8)] == [True] * 8
        await pilot.press("home", "w", "w", "w", "g", *"#5", "enter")
        assert (state.trace.event(state.selected).name, state.selected) == ("norm", state.current_steps()[5].event)
        await pilot.press("}")
        seventh = state.current_steps()[6]
        assert state.selected == seventh.event
        assert state.viewport.t0 <= seventh.start
        assert seventh.start + seventh.duration <= state.viewport.t1
        await pilot.press("{", "{")
        assert state.selected == state.current_steps()[4].event
        for _ in range(9):
            await pilot.press("{")
        assert "the first repetition" in text_on_screen(screen)


async def test_recorded_steps_stay() -> None:
    async with explorer(two_steps(), (160, 48)) as (screen, pilot):
        await settled(pilot)
        assert " repeats" not in text_on_screen(screen)
        assert not are_repetitions(screen.view_state.current_steps())


async def test_a_trace_with_neither_says_so() -> None:
    async with explorer(trace(kernel("k", 0, 5), kernel("l", 6, 5))) as (screen, pilot):
        await settled(pilot)
        await pilot.press("}")
        assert "no repetition was found" in text_on_screen(screen)


@pytest.mark.long
async def test_the_table_lists_the_slowest_first_and_jumps_to_it() -> None:
    made = decode(tokens=8, layers=5, extra=3)
    async with explorer(made, (160, 48)) as (screen, pilot):
        await settled(pilot)
        await pilot.press("t", "tab", "tab", "tab", "tab", "tab")
        await until(pilot, lambda: "pattern 1 #3" in text_on_screen(pilot.app.screen))
        await settled(pilot)
        shown = text_on_screen(pilot.app.screen)
        rows = [line for line in shown.splitlines() if " #" in line]
        assert rows[0].startswith("▶ pattern 1 #3")
        await until(pilot, lambda: "more in 1 of 8: reduce" in text_on_screen(pilot.app.screen))
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.screen is screen)
        assert made.start[screen.view_state.selected] == 20_000 + 3 * 112_000
