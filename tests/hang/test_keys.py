"""Test that every key of the screen does something or says why it does not."""

from __future__ import annotations

import pytest
from textual.binding import Binding

from tests.hang.test_screen import opened
from tests.helpers.explorer_app import settled
from torchprof_hang.ui.hang_screen import KEYS, HangScreen


def describe(screen: HangScreen) -> tuple[object, ...]:
    said = screen._status.render_line(0).text
    state = (screen._stack_title, screen._is_stack_open, screen.has_class("asking"), screen._stack.cursor)
    return screen.rows.visible_text(80), said, *state


@pytest.mark.parametrize("name", ["skip_all_reduce", "group_of_half", "slow_healthy"])
async def test_every_key_changes_the_screen_or_says_why(name: str) -> None:
    async with opened(name, (80, 24)) as (screen, pilot):
        for binding in KEYS:
            assert isinstance(binding, Binding)
            screen.show_message("")
            before = describe(screen)
            await pilot.press(binding.key.partition(",")[0])
            await settled(pilot)
            assert describe(screen) != before, binding.key
            if screen.has_class("asking") or screen._is_stack_open:
                await pilot.press("escape")
                await settled(pilot)
