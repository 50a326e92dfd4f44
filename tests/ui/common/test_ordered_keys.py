"""Test keys that arrive faster than they are handled: each reaches the screen that the earlier ones lead to."""

from __future__ import annotations

import asyncio

import pytest
from textual.css.query import NoMatches
from textual.pilot import Pilot
from textual.widgets import Input

from tests.helpers.explorer_app import explorer, press_at_once, two_steps, until
from tests.helpers.long_run import keep_some
from torchprof_tui.app import TorchprofApp
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.learn.learn_screen import LearnScreen
from torchprof_tui.ui.table.table_screen import TableScreen


def screen_names(pilot: Pilot[None]) -> list[str]:
    return [type(screen).__name__ for screen in pilot.app.screen_stack[1:]]


async def test_text_after_the_slash_is_typed_into_the_prompt() -> None:
    async with explorer(two_steps()) as (screen, pilot):
        await press_at_once(pilot, "/gemm")
        await until(pilot, lambda: screen.query_one(Input).value == "gemm")
        await pilot.press("escape")
        await press_at_once(pilot, "g90us")
        await until(pilot, lambda: screen.query_one(Input).value == "90us")


async def test_a_key_after_one_that_opens_a_screen_reaches_that_screen() -> None:
    async with explorer(two_steps()) as (screen, pilot):
        await press_at_once(pilot, "Gmm")
        await until(pilot, lambda: isinstance(pilot.app.screen, LearnScreen))
        await until(pilot, lambda: pilot.app.screen.query_one(Input).value == "mm")
        assert screen.view_state.mark is None  # which m on the lanes sets
        await pilot.press("escape")
        await press_at_once(pilot, "t")
        await until(pilot, lambda: isinstance(pilot.app.screen, TableScreen))
        await press_at_once(pilot, ["escape", "/", "x"])
        await until(pilot, lambda: screen.query_one(Input).value == "x")
        assert isinstance(pilot.app.screen, ExplorerScreen)


@pytest.mark.parametrize("keys", keep_some(["oo/tmp/a-b.c_d", "oo~/x.json"], 1))
async def test_a_path_that_is_pasted_is_typed_as_a_whole(keys: str) -> None:
    """Each slash and each point was taken for the first character of a path, while the field had no focus yet."""
    opener = resolve_specs(["sample:matmul_add_64_cold_eager"]).create_opener(cache=False, defer_blocks=True)
    opener.start()
    app = TorchprofApp(opener, cache=False)
    async with app.run_test() as pilot:
        await app.lanes_ready.wait()
        await press_at_once(pilot, keys)
        await until(pilot, lambda: [field.value for field in app.screen.query(Input)] == [keys.lstrip("o")])


@pytest.mark.parametrize(
    "keys",
    keep_some(
        [
            ["o", *["escape"] * 4],
            ["o", "r", *["escape"] * 5],
            ["r", *["escape"] * 4, "r", "escape", "escape"],
            ["t", "escape", "t", "escape", "T", "escape", "?", "escape", "/", "escape"],
            ["G", "escape", "escape", "?", "question_mark", "escape", "T", "T", "t", "t", "o", "escape", "escape"],
        ],
        1,
    ),
    ids=" ".join,
)
async def test_screens_that_are_opened_and_left_at_once(keys: list[str]) -> None:
    opener = resolve_specs(["sample:matmul_add_64_cold_eager"]).create_opener(cache=False, defer_blocks=True)
    opener.start()
    app = TorchprofApp(opener, cache=False)
    async with app.run_test(size=(120, 40)) as pilot:
        await app.lanes_ready.wait()
        for _ in range(2):
            await press_at_once(pilot, keys)
        await pilot.pause(0.2)
        for _ in range(8):
            if screen_names(pilot) != ["ExplorerScreen"]:
                await pilot.press("escape")
        assert screen_names(pilot) == ["ExplorerScreen"]
    assert app.return_value is None
    assert app._exception is None


@pytest.mark.parametrize(
    "keys", keep_some([["ctrl+c", "r"], ["r", "ctrl+c"], ["ctrl+c", "o", "q"], ["o", "ctrl+c"]], 2), ids=" ".join
)
async def test_a_screen_opened_as_the_app_ends(keys: list[str]) -> None:
    """Its parts are not mounted any more: it ended the app with NoMatches."""
    app = TorchprofApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await press_at_once(pilot, keys)
        while not app._exit:
            await asyncio.sleep(0.01)
    assert app._exception is None


async def test_what_is_ignored_at_the_end_leaves_the_exit_status() -> None:
    """As a search of the command palette that looks for its list while the program ends."""
    app = TorchprofApp()
    async with app.run_test():
        app.exit()
        app._handle_exception(NoMatches("gone"))
    assert app.return_code == 0
