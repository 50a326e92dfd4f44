"""Test screens that something still reaches after they were left: keys, clicks, timers, workers, resizes."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil

import pytest
from textual import events
from textual.command import CommandPalette
from textual.geometry import Size
from textual.pilot import Pilot
from textual.screen import Screen

import torchprof_tui.ui
from tests.helpers.explorer_app import explorer, press_at_once, until
from tests.helpers.long_run import keep_some
from tests.helpers.trace_builder import cpu, step, trace
from torchprof_tui.ui.common.guarded_screen import GuardedCommandPalette, GuardedScreen
from torchprof_tui.ui.common.help_screen import HelpScreen
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.record.record_screen import RecordScreen

SHOWN = trace(step(0, 0, 100), cpu("aten::mm", 20, 40))


async def open_palette(pilot: Pilot[None]) -> GuardedCommandPalette:
    """Open the palette and wait until it lists its commands."""
    pilot.app.action_command_palette()
    await until(pilot, lambda: isinstance(pilot.app.screen, CommandPalette) and pilot.app.screen._list_visible)
    assert isinstance(pilot.app.screen, GuardedCommandPalette)
    return pilot.app.screen


async def post_at_once(pilot: Pilot[None], *messages: events.Event) -> None:
    for message in messages:
        pilot.app.post_message(message)
    await pilot.pause()


def click_at(x: int, y: int) -> tuple[events.Event, ...]:
    place = (None, x, y, 0, 0, 1, False, False, False, x, y)
    return events.MouseDown(*place), events.MouseUp(*place)


def test_every_screen_of_the_program_is_guarded() -> None:
    for module in pkgutil.walk_packages(torchprof_tui.ui.__path__, "torchprof_tui.ui."):
        importlib.import_module(module.name)
    pending: list[type] = [Screen]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        assert not kind.__module__.startswith("torchprof_tui.ui") or issubclass(kind, GuardedScreen), kind


@pytest.mark.long
async def test_a_double_click_beside_the_palette_closes_only_the_palette() -> None:
    async with explorer(SHOWN) as (screen, pilot):
        await open_palette(pilot)
        await post_at_once(pilot, *click_at(2, 38), *click_at(2, 38))
        await until(pilot, lambda: pilot.app.screen is screen)
        await pilot.pause()
        assert pilot.app.screen_stack[-1] is screen


@pytest.mark.long
@pytest.mark.parametrize(
    "keys", keep_some([["enter", "enter"], ["o", "enter", "enter", "enter"], ["x", "escape", "escape"]], 1)
)
async def test_keys_typed_at_once_on_the_palette_close_it_once(keys: list[str]) -> None:
    async with explorer(SHOWN) as (screen, pilot):
        for _ in range(2):
            await open_palette(pilot)
            await press_at_once(pilot, keys)
            await until(pilot, lambda: not isinstance(pilot.app.screen, CommandPalette))
            assert screen in pilot.app.screen_stack
            while pilot.app.screen is not screen:
                assert isinstance(pilot.app.screen, GuardedScreen)
                pilot.app.screen.dismiss()
            await pilot.pause()


async def test_a_command_that_is_chosen_twice_runs_once() -> None:
    async with explorer(SHOWN) as (screen, pilot):
        palette = await open_palette(pilot)
        palette._action_command_list("select")
        palette._action_command_list("select")
        await until(pilot, lambda: palette.is_left)
        await pilot.pause()
        assert len(pilot.app.screen_stack) <= 3
        assert screen in pilot.app.screen_stack


async def test_a_search_of_the_palette_that_ends_after_it_was_left() -> None:
    async with explorer(SHOWN) as (screen, pilot):
        palette = await open_palette(pilot)
        palette._gather_commands("x")
        palette._start_no_matches_countdown("x")
        palette.dismiss()
        await until(pilot, lambda: pilot.app.screen is screen and not palette.is_attached)
        palette._watch__list_visible()  # what is left of its worker and its timers
        await palette._watch__show_busy()
        assert not [timer for timer in palette._timers if timer._task is not None]
        assert not [worker for worker in pilot.app.workers if worker.node is palette and not worker.is_cancelled]


@pytest.mark.long
async def test_leaving_a_covered_screen_leaves_those_above_it() -> None:
    async with explorer(SHOWN) as (screen, pilot):
        form = RecordScreen()
        await pilot.app.push_screen(form)
        await pilot.app.push_screen(HelpScreen(form))
        form.dismiss()
        form.dismiss()
        await pilot.pause()
        assert pilot.app.screen is screen


@pytest.mark.parametrize("kind", keep_some([RecordScreen, ExplorerScreen], 1))
@pytest.mark.parametrize("size", [(10, 4), (80, 24)])
async def test_a_resize_after_the_screen_was_closed(kind: type, size: tuple[int, int]) -> None:
    async with explorer(SHOWN, (80, 24)) as (_, pilot):
        screen: GuardedScreen[None] = RecordScreen() if kind is RecordScreen else ExplorerScreen(SHOWN)
        await pilot.app.push_screen(screen)
        assert not screen.is_left
        await pilot.app.pop_screen()
        assert screen.is_left
        assert not screen.children
        await screen._dispatch_message(events.Resize(Size(*size), Size(*size)))


async def test_a_key_for_a_screen_that_was_left_reaches_the_one_that_is_shown() -> None:
    async with explorer(SHOWN) as (_, pilot):
        form = RecordScreen()
        await pilot.app.push_screen(form)
        await pilot.app.pop_screen()
        await form._dispatch_message(events.Key("question_mark", "?"))
        await until(pilot, lambda: isinstance(pilot.app.screen, HelpScreen))


async def test_a_screen_that_is_left_before_it_is_composed() -> None:
    async with explorer(SHOWN) as (screen, pilot):
        for _ in range(3):
            pilot.app.action_command_palette()
            pilot.app.screen.dismiss()
        await asyncio.sleep(0)
        await pilot.pause()
        assert pilot.app.screen is screen


async def test_a_press_of_the_mouse_on_a_widget_that_was_just_removed() -> None:
    async with explorer(SHOWN) as (_, pilot):
        form = RecordScreen()
        await pilot.app.push_screen(form)
        await pilot.pause()
        hint = form.query_one("#run-keys")
        x, y = hint.region.offset
        assert form.get_widget_and_offset_at(x + 1, y)[0] is hint
        parent = hint._parent
        hint._detach()  # before the next layout of the screen
        assert form.get_widget_and_offset_at(x + 1, y) == (None, None)
        hint._parent = parent


async def test_a_click_outside_of_a_terminal_that_was_made_smaller() -> None:
    async with explorer(SHOWN) as (_, pilot):
        palette = await open_palette(pilot)
        await palette._dispatch_message(events.Click(palette, 500, 3, 0, 0, 1, False, False, False, 500, 3))
        await pilot.pause()
        assert pilot.app.screen is palette
