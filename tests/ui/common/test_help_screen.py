"""Help, command palette, leaving and suspending: the same on every screen."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.command import CommandList, CommandPalette
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input

from tests.helpers.explorer_app import event_of, explorer, press_at_once, settled, two_steps, until
from tests.helpers.long_run import keep_some
from torchprof_tui.analysis.dispatch.source_line import SourceLine
from torchprof_tui.app import TorchprofApp
from torchprof_tui.runs.recording_request import RecordingRequest
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.ui.common.bindings import group_by_section
from torchprof_tui.ui.common.help_screen import HelpScreen
from torchprof_tui.ui.common.ordered_keys import ScreenCommands
from torchprof_tui.ui.record.recording_screen import RecordingScreen
from torchprof_tui.ui.source.source_screen import SourceScreen
from torchprof_tui.ui.start.loading_screen import LoadingScreen

SAMPLE = "sample:matmul_add_64_cold_eager"
SCREENS = ("explorer", "table", "tree", "learn", "source", "start", "record", "recording", "loading")
KEYS = {"table": "t", "tree": "T", "learn": "G", "start": "o", "record": "r"}
KNOWN_KEYS = {
    "explorer": "zoom in at the cursor",
    "table": "reverse the order",
    "tree": "open or close the node",
    "learn": "back to the lanes",
    "source": "back to the lanes",
    "start": "type the path of a trace",
    "record": "start the run",
    "recording": "run it again",
    "loading": "cancel, or go back",
}


def text_of(screen: Screen[Any]) -> str:
    return "\n".join(strip.text.rstrip() for strip in screen._compositor.render_strips())


class StuckLoading(LoadingScreen):
    """A loading screen whose trace never comes."""

    CSS_PATH = None  # type: ignore[assignment]

    async def _load(self) -> None:
        return


class StillRecording(RecordingScreen):
    """A recording screen that starts no process."""

    CSS_PATH = None  # type: ignore[assignment]

    def _start_recording(self, columns: int, lines: int) -> None:
        return


@asynccontextmanager
async def opened(name: str, size: tuple[int, int] = (120, 40)) -> AsyncIterator[tuple[TorchprofApp, Pilot[None]]]:
    """Run the app with a sample and show the named screen above the lanes."""
    opener = resolve_specs((SAMPLE,)).create_opener(cache=False)
    opener.start()
    app = TorchprofApp(opener)
    async with app.run_test(size=size) as pilot:
        await app.lanes_ready.wait()
        await settled(pilot)
        if name in KEYS:
            await pilot.press(KEYS[name])
        elif name == "source":
            await app.push_screen(
                SourceScreen(SourceLine("frame", "train.py", 1, "f", "train.py(1): f"), "", lambda: 0)
            )
        elif name == "recording":
            await app.push_screen(StillRecording(RecordingRequest(("matmul_add",)), os.getcwd()))
        elif name == "loading":
            await app.push_screen(StuckLoading(opener))
        await settled(pilot)
        yield app, pilot


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", keep_some(SCREENS, 1))
async def test_help_commands_suspending_and_leaving_are_the_same_on_every_screen(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspended: list[object] = []
    monkeypatch.setattr(TorchprofApp, "action_suspend_process", lambda app: suspended.append(app.screen))
    async with opened(name) as (app, pilot):
        screen = app.screen
        await check_help(pilot, name)
        commands = dict(ScreenCommands(screen)._commands())
        assert any(KNOWN_KEYS[name] in text for text in commands)
        await pilot.press("ctrl+z", "f1", "ctrl+z", "f1")
        assert len(suspended) == 2
        await pilot.press("ctrl+p")
        assert isinstance(app.screen, CommandPalette)
        await pilot.press("?")  # is typed
        assert app.screen.query_one(Input).value == "?"
        await pilot.press("escape")
        if name == "recording":
            screen._start_error = "ended"  # type: ignore[attr-defined]
        if name not in ("tree", "learn", "record"):  # their letters are text
            await check_leaving(pilot)


async def check_help(pilot: Pilot[None], name: str) -> None:
    screen = pilot.app.screen
    if name in ("explorer", "table", "tree", "start", "learn"):
        assert "? help" in text_of(screen)
    for key in ("question_mark", "f1"):
        await pilot.press(key)
        shown = pilot.app.screen
        assert isinstance(shown, HelpScreen), key
        shown.query_one(Input).value = KNOWN_KEYS[name]
        await until(pilot, partial(has_match, shown, KNOWN_KEYS[name]))
        await pilot.press("escape", key)  # clears the filter; closes
        assert pilot.app.screen is screen


def has_match(shown: HelpScreen, text: str) -> bool:
    """Return whether the text is listed below the filter, into which it was typed."""
    lines = text_of(shown).split("\n")
    return any(text in line for line in lines[4:])


async def check_leaving(pilot: Pilot[None]) -> None:
    """Press q: it leaves a screen above the lanes, and the program from the lanes."""
    if pilot.app.screen.TITLE != "explorer":
        await pilot.press("q")
        await pilot.pause()
        assert pilot.app.screen.TITLE == "explorer"
        assert pilot.app.return_code is None
    await pilot.press("q")
    assert pilot.app.return_code == 0


@pytest.mark.parametrize("size", keep_some([((40, 10),), ((80, 24),), ((109, 30),), ((110, 30),), ((240, 60),)], 1))
async def test_every_page_and_filter_at_every_size(size: tuple[int, int]) -> None:
    async with explorer(two_steps(), size) as (screen, pilot):
        await pilot.press("?")
        shown = screen.app.screen
        assert isinstance(shown, HelpScreen)
        for page in ("Keys", "Lanes", "Words"):
            await pilot.pause()
            assert f"[{page}]" in text_of(shown)
            await pilot.press("pagedown", "end", "home", "tab")
        await pilot.press(*"zzz")
        await until(pilot, lambda: "no match for 'zzz'" in text_of(shown))
        await pilot.press("escape", "slash", *"occup")
        await until(pilot, lambda: "occupancy" in text_of(shown))
        await pilot.press("escape", "q")
        assert screen.app.screen is screen


@pytest.mark.long
async def test_it_begins_with_the_panel_that_has_the_keys() -> None:
    shown = two_steps()
    async with explorer(shown, (100, 40)) as (screen, pilot):
        for key, title in (("l", "Panel: chain"), ("k", "Panel: kernel"), ("c", "Panel: cheatsheet")):
            await pilot.press(key, "?")
            await until(pilot, lambda title=title: title in text_of(screen.app.screen))  # type: ignore[misc]
            assert text_of(screen.app.screen).index(title) < 700  # in the first lines
            await pilot.press("escape")
        await pilot.press("c", "?")  # the panel is closed
        await until(pilot, lambda: "Time" in text_of(screen.app.screen))
        assert "Panel:" not in text_of(screen.app.screen)
        await pilot.press("escape")
        await pilot.press("i", "?")  # the details, which list keys while nothing is selected
        await until(pilot, lambda: "Time" in text_of(screen.app.screen))
        assert "Panel:" not in text_of(screen.app.screen)
        await pilot.press("escape")
        screen.view_state.select(event_of(shown, "gemm"))
        await pilot.press("?")
        await until(pilot, lambda: "Panel: details" in text_of(screen.app.screen))


async def test_a_command_of_the_app_acts_from_the_palette() -> None:
    """The palette ran every action on the screen, where those of the app do nothing."""
    async with opened("table") as (app, pilot):
        await pilot.press("ctrl+p")
        await press_at_once(pilot, "Program: open another")
        commands = app.screen.query_one(CommandList)
        await until(pilot, lambda: commands.option_count == 1 and "open another trace" in text_of(app.screen))
        await pilot.press("enter")
        await until(pilot, lambda: type(app.screen).__name__ == "StartScreen")


@pytest.mark.parametrize("name", keep_some(["table", "tree", "source"], 1))
async def test_all_bindings_have_a_sentence(name: str) -> None:
    async with opened(name) as (app, _):
        sections = group_by_section(app.screen.active_bindings.values())
        listed = {key.action for keys in sections.values() for key in keys}
        bound = {binding.action for _, binding in app.screen._bindings}
        textuals = {action for action in bound if action.startswith(("app.", "screen."))}
        assert bound - textuals <= listed


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), pytest.param((160, 48), marks=pytest.mark.long)])
async def test_f1_in_the_palette_shows_the_keys_of_the_screen_below(size: tuple[int, int]) -> None:
    app = TorchprofApp()
    async with app.run_test(size=size, notifications=True) as pilot:
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, CommandPalette))
        await until(pilot, lambda: app.screen.query_one(CommandList).option_count > 0)
        assert "🔎" not in text_of(app.screen)
        row = app.screen.query_one(CommandList).get_component_styles("option-list--option-highlighted")
        assert row.background.hex.lower() == app.theme_variables["block-cursor-background"]
        await pilot.press("f1")
        await until(pilot, lambda: KNOWN_KEYS["start"][:20] in text_of(app.screen))
        await pilot.press("ctrl+p")  # the palette is below: textual would open it a second time
        await until(pilot, lambda: len(app._notifications) == 1)
        assert isinstance(app.screen, HelpScreen)


@pytest.mark.long
async def test_help_begins_with_the_word_of_the_selected_event() -> None:
    shown = two_steps()
    async with explorer(shown, (120, 40)) as (screen, pilot):
        await pilot.press("question_mark")
        await settled(pilot)
        assert "The selected event" not in text_of(screen.app.screen)
        await pilot.press("question_mark")
        screen.view_state.select(event_of(shown, "aten::mm"))
        await pilot.press("question_mark")
        await settled(pilot)
        text = text_of(screen.app.screen)
        assert "The selected event: mm" in text
        assert "The product of two matrices" in text
        assert text.index("The selected event") < text.index("Panel: details")
        await pilot.press("question_mark", "c", "question_mark")
        await settled(pilot)
        assert "The selected event" not in text_of(screen.app.screen), "asked about the cheatsheet"


@pytest.mark.long
async def test_help_of_the_table_begins_with_the_word_of_the_row() -> None:
    async with opened("table") as (app, pilot):
        await until(pilot, lambda: app.screen.help_word is not None)  # type: ignore[attr-defined]
        await pilot.press("question_mark")
        await settled(pilot)
        assert "The selected event: " in text_of(app.screen)


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "screen", "search", "word"),
    keep_some(
        [
            ((120, 40), "tree", "aten::mm", "mm"),
            ((80, 24), "tree", "cudaDeviceSynchronize", "cudaDeviceSynchronize"),
            ((120, 40), "flame", "aten::matmul", "matmul"),
            ((80, 24), "flame", "cudaLaunchKernel", "cudaLaunchKernel"),
        ],
        2,
    ),
)
async def test_help_begins_with_the_word_of_a_row_of_the_tree_and_of_a_frame(
    size: tuple[int, int], screen: str, search: str, word: str
) -> None:
    async with opened(screen, size) as (app, pilot):
        if screen == "flame":
            await pilot.press("F", "x")  # the CPU's time
            await settled(pilot)
            assert type(app.screen).__name__ == "FlameScreen"
        assert app.screen.help_word is None  # type: ignore[attr-defined]  # a thread, all of the time
        await press_at_once(pilot, ["slash", *search, "enter"])
        await settled(pilot)
        await until(pilot, lambda: app.screen.help_word is not None)  # type: ignore[attr-defined]
        assert app.screen.help_word.term == word  # type: ignore[attr-defined]
        await pilot.press("question_mark")
        await settled(pilot)
        assert f"The selected event: {word}" in text_of(app.screen)
        await pilot.press("question_mark", *(["home"] if screen == "tree" else ["up"] * 8))
        await settled(pilot)
        await pilot.press("question_mark")
        await settled(pilot)
        assert "The selected event" not in text_of(app.screen)


@pytest.mark.long
async def test_a_pattern_and_a_word_of_the_trace_are_found_among_the_words() -> None:
    async with opened("explorer") as (app, pilot):
        await pilot.press("question_mark")
        await press_at_once(pilot, "copy-before-gemm")
        await settled(pilot)
        assert "addmm" in text_of(app.screen)
        await pilot.press("escape", *"buffer")
        await settled(pilot)
        assert "Activity Buffer Request" in text_of(app.screen)
