"""Walk all pairs of a key and a screen: the key does its job (the screen changes) or says why not; nothing crashes.

The keys are those that any screen's bindings name, so a new binding is walked on all screens without a change here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual import events
from textual.binding import Binding
from textual.keys import _character_to_key, key_to_character
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from tests.helpers.explorer_app import settled, two_steps, until
from tests.helpers.fleet_app import make_source, sketch_job
from tests.helpers.long_run import keep_some
from tests.helpers.memory_fixtures import MEMORY
from tests.helpers.trace_builder import cpu, step, trace
from torchprof_fleet.ui.fleet_screen import FleetScreen
from torchprof_tui import app as app_module
from torchprof_tui.analysis.dispatch.frame_names import FRAME, SourceLine
from torchprof_tui.app import TorchprofApp
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.compare_asked import TraceAsked
from torchprof_tui.ui.common.help_screen import HelpScreen
from torchprof_tui.ui.common.keys import LANES
from torchprof_tui.ui.common.status_line import StatusLine
from torchprof_tui.ui.diff.diff_screen import ComparedInput, DiffScreen
from torchprof_tui.ui.diff.locked_view import LockedView
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.flame.flame_screen import FlameScreen
from torchprof_tui.ui.learn.learn_screen import LearnScreen
from torchprof_tui.ui.memory.memory_screen import MemoryScreen
from torchprof_tui.ui.memory.snapshot_screen import SnapshotScreen
from torchprof_tui.ui.record.record_screen import RecordScreen
from torchprof_tui.ui.source.source_screen import SourceScreen
from torchprof_tui.ui.start.start_screen import StartScreen
from torchprof_tui.ui.table.table_screen import TableScreen
from torchprof_tui.ui.tree.tree_screen import TreeScreen

pytestmark = pytest.mark.painted

SCREENS = (
    TorchprofApp,
    ExplorerScreen,
    TableScreen,
    TreeScreen,
    FlameScreen,
    MemoryScreen,
    LearnScreen,
    SourceScreen,
    HelpScreen,
    StartScreen,
    RecordScreen,
    DiffScreen,
    SnapshotScreen,
    FleetScreen,
)

WAIT_SECONDS, MAX_WAITS = 0.004, 250
"""A key that changes nothing in so many waits is silent."""

CHARACTERS = {"plus": "+", "minus": "-", "slash": "/"}
"""Of keys whose names textual does not turn back into a character."""

LEFT_OUT = {"ctrl+z"}
"""Suspends the process: tested on a real terminal, in `tests/ui/common/test_terminal_driver.py`."""


def cpu_only() -> Trace:
    return trace(step(0, 0, 100), cpu("aten::mm", 20, 40), step(1, 100, 120), cpu("aten::add", 120, 30))


def list_keys() -> list[str]:
    """List every key that a screen binds, in the order of the bindings."""
    keys: dict[str, None] = {}
    for screen in SCREENS:
        for entry in screen.BINDINGS:
            names = entry.key if isinstance(entry, Binding) else entry[0]
            keys.update(dict.fromkeys(name.strip() or " " for name in names.split(",")))
    return [key for key in keys if key and key not in LEFT_OUT]


KEYS = list_keys()

AT_AN_END = {
    HelpScreen: "up down pageup pagedown home end enter",
    StartScreen: "escape up down home end pageup pagedown enter tab shift+tab",
}
"""Keys that may do nothing on a screen: the first or last line is shown already, or there is nothing to go back to."""


class KeyApp(TorchprofApp):
    """The real app around one trace, or around the start screen. `exits` counts what would have ended it."""

    CSS_PATH = [str(Path(app_module.__file__).parent / path) for path in TorchprofApp.CSS_PATH]

    def __init__(self, shown: Trace | None) -> None:
        super().__init__()
        self.shown = shown
        self.exits = 0
        self.copied = 0

    def on_mount(self, event: events.Mount) -> None:  # type: ignore[override]
        if self.shown is not None:
            event.prevent_default()
            opener: Any = SimpleNamespace(path="a.json", spec="a.json", close=lambda: None)
            self._current_opener = opener
            self.push_screen(ExplorerScreen(self.shown))

    def exit(self, *_: object, **__: object) -> None:
        self.exits += 1

    def on_trace_asked(self, message: TraceAsked) -> None:
        message.prevent_default()  # opens a trace in place of this one
        self.exits += 1

    def on_fleet_screen_ranks_asked(self) -> None:
        self.exits += 1  # the app of `fleet` opens them

    def copy_to_clipboard(self, text: str) -> None:
        self.copied += 1

    def outline(self) -> tuple[object, ...]:
        """Return what changes without painting: the screens, messages, texts in fields, the focus, exits, copies."""
        fields = [(field.value, field.cursor_position, field.selection) for field in self.screen.query(Input)]
        messages = [notification.message for notification in self._notifications]
        stack = [id(screen) for screen in self.screen_stack]
        return stack, fields, messages, self.focused, self.exits, self.copied, self.screen.scroll_offset

    def look(self) -> tuple[object, ...]:
        """Return all that a key can change, with what the screen shows and its styles."""
        lines = [[(text, style) for text, style, _ in strip] for strip in self.screen._compositor.render_strips()]
        return self.outline(), lines


@asynccontextmanager
async def started(shown: Trace | None) -> AsyncIterator[tuple[KeyApp, Pilot[None]]]:
    app = KeyApp(shown)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        yield app, pilot
        app.exit = lambda *_, **__: None  # type: ignore[method-assign]


async def return_to_base(app: KeyApp) -> None:
    while len(app.screen_stack) > 2:
        await app.pop_screen()


TRIES = 2
"""On a loaded machine what a screen still had to draw may come after the key, and hide what it did."""


async def press(app: KeyApp, key: str) -> bool:
    """Press a key; return whether anything changes within MAX_WAITS."""
    before = app.look()
    character = key if len(key) == 1 else CHARACTERS.get(key) or key_to_character(key)
    app.post_message(events.Key(_character_to_key(key) if len(key) == 1 else key, character))
    for _ in range(MAX_WAITS):
        await asyncio.sleep(WAIT_SECONDS)
        if app.outline() != before[0] or app.look() != before:
            return True
    return False


async def wait_until_still(app: KeyApp) -> None:
    before = None
    while (now := app.look()) != before:
        before = now
        await asyncio.sleep(WAIT_SECONDS)


async def walk(app: KeyApp, open_screen: Callable[[], Awaitable[None]]) -> str:
    """Press each key on a screen as `open_screen` leaves it; return the keys after which nothing had changed."""
    silent = []
    await open_screen()
    allowed = AT_AN_END.get(type(app.screen), "").split()
    for key in KEYS:
        for _ in range(TRIES):
            await open_screen()
            for line in app.screen.query(StatusLine):
                line.show_message("")
            app.clear_notifications()
            await wait_until_still(app)
            if key in allowed or await press(app, key):
                break
        else:
            silent.append(key)
    return " ".join(silent)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", keep_some(["nothing selected", "an event", "no events", "CPU only"], 1))
async def test_every_key_on_the_lanes(name: str) -> None:
    shown = {"no events": trace(), "CPU only": cpu_only()}.get(name, two_steps())
    async with started(shown) as (app, pilot):
        screen = app.screen
        assert isinstance(screen, ExplorerScreen)
        state = screen.view_state
        arrangement, whole = state.lane_view.arrangement, state.viewport.zoom(100_000, 0.5)

        async def open_screen() -> None:
            await return_to_base(app)
            if screen.has_class("asking"):
                await pilot.press("escape")
            state.search.set_query("")
            state.mark = None
            state._history.clear()
            state.folding.fold = None
            state.lane_view.apply_arrangement(arrangement)
            state.selected, state.lane, state.lane_view.top = -1, -1, 0
            if name == "an event":
                state.select(3)
            state.viewport = whole
            screen.details_open = True
            screen._dock.show_panel("details")
            screen._refresh_widgets()

        silent = await walk(app, open_screen)
        assert not silent, silent


OPENERS = {
    "t": TableScreen,
    "T": TreeScreen,
    "F": FlameScreen,
    "M": MemoryScreen,
    "G": LearnScreen,
    "r": RecordScreen,
    "?": HelpScreen,
    "o": StartScreen,
}


@pytest.mark.long
@pytest.mark.parametrize("key", keep_some(OPENERS, 1))
async def test_every_key_on_a_screen_over_the_lanes(key: str) -> None:
    async with started(two_steps()) as (app, pilot):

        async def open_screen() -> None:
            if isinstance(app.screen, OPENERS[key]):
                if app.screen.has_class("asking"):
                    await pilot.press("escape")
                return
            await return_to_base(app)
            await pilot.press(key)
            while not isinstance(app.screen, OPENERS[key]):
                await pilot.pause(0.01)
            await settled(pilot)

        silent = await walk(app, open_screen)
        assert not silent, silent


@pytest.mark.long
async def test_every_key_on_the_source(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import torch\n" * 200, encoding="utf-8")
    line = SourceLine(FRAME, str(program), 80, "forward", f"{program}(80): forward")
    async with started(two_steps()) as (app, pilot):

        async def open_screen() -> None:
            if not isinstance(app.screen, SourceScreen):
                await return_to_base(app)
                await app.push_screen(SourceScreen(line, "", lambda: 10))
                await settled(pilot)

        silent = await walk(app, open_screen)
        assert not silent, silent


@pytest.mark.long
@pytest.mark.parametrize("other", ["the same", "another", "not comparable"])
async def test_every_key_on_a_comparison(other: str) -> None:
    shown = two_steps()
    second = {"the same": shown, "another": cpu_only()}.get(other, trace())

    opened: list[DiffScreen] = []
    views: list[LockedView] = []
    async with started(shown) as (app, pilot):

        async def open_screen() -> None:
            screen = app.screen
            if not isinstance(screen, DiffScreen) or screen is not opened[-1]:
                await return_to_base(app)
                inputs = [ComparedInput(each, each, name) for each, name in ((shown, "a"), (second, "b"))]
                screen = DiffScreen(inputs[0], inputs[1])
                opened.append(screen)
                await app.push_screen(screen)
                await settled(pilot)
                views.append(screen.locked)
            if screen.has_class("asking"):
                await pilot.press("escape")
            screen.locked, screen.differences.cursor = views[-1].zoom(2).pan(1), -1
            screen._previous.clear()
            for side in screen.sides:
                side.select(-1)
            screen._set_part("account")

        silent = await walk(app, open_screen)
        assert not silent, silent


@pytest.mark.long
async def test_every_key_on_a_memory_snapshot() -> None:
    async with started(two_steps()) as (app, pilot):

        async def open_screen() -> None:
            screen = app.screen
            if not isinstance(screen, SnapshotScreen):
                await return_to_base(app)
                screen = SnapshotScreen(MEMORY / "snapshot.pickle.gz", lambda _: None)
                await app.push_screen(screen)
                await until(pilot, lambda: screen.read is not None)
                await settled(pilot)
            if screen.has_class("asking"):
                await pilot.press("escape")

        silent = await walk(app, open_screen)
        assert not silent, silent


@pytest.mark.long
async def test_every_key_on_a_fleet() -> None:
    async with started(two_steps()) as (app, pilot):

        async def open_screen() -> None:
            screen = app.screen
            if not isinstance(screen, FleetScreen):
                await return_to_base(app)
                screen = FleetScreen(make_source(sketch_job()))
                await app.push_screen(screen)
                await until(pilot, lambda: not screen.is_reading)
                await settled(pilot)
            if screen.has_class("asking"):
                await pilot.press("escape")

        silent = await walk(app, open_screen)
        assert not silent, silent


@pytest.mark.long
async def test_every_key_on_the_start_screen() -> None:
    async with started(None) as (app, _):

        async def open_screen() -> None:
            await return_to_base(app)
            if app.screen.query(OptionList) and not isinstance(app.focused, OptionList):
                app.screen.query(OptionList).first().focus()

        silent = await walk(app, open_screen)
        assert not silent, silent


def test_the_keys_of_the_lanes_are_walked() -> None:
    assert len(KEYS) > len(LANES)
