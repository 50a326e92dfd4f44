"""Test that nothing of a removed screen is kept: by the collector's schedule, textual's caches, messages or keys."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import ref

import pytest
from textual import events
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget

from tests.helpers.explorer_app import until
from tests.helpers.frozen_heap import freeze_heap
from tests.helpers.long_run import keep_some
from torchprof_tui.app import TorchprofApp
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.ui.common import garbage_collection
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen

SAMPLE, OTHER_SAMPLE = "sample:matmul_add_64_cold_eager", "sample:linear_eager"


@pytest.fixture(autouse=True, scope="module")
def _heap_without_other_tests() -> None:
    """What earlier tests have left would be traversed by each of these tests' full collections."""
    freeze_heap()


@asynccontextmanager
async def opened_app(spec: str = SAMPLE) -> AsyncIterator[tuple[TorchprofApp, Pilot[None]]]:
    """Run the app with a sample on screen; Python's own collector is off, as in a terminal."""
    opener = resolve_specs([spec]).create_opener(cache=False, defer_blocks=True)
    opener.start()
    app = TorchprofApp(opener, cache=False)
    async with app.run_test(notifications=True) as pilot:
        await app.lanes_ready.wait()
        assert not gc.isenabled()
        yield app, pilot


async def open_screen(pilot: Pilot[None], key: str, name: str) -> Screen[object]:
    await pilot.press(key)
    await until(pilot, lambda: type(pilot.app.screen).__name__ == name)
    await pilot.pause(0.1)
    return pilot.app.screen


@pytest.mark.parametrize(
    ("key", "name"),
    keep_some(
        [
            ("t", "TableScreen"),
            ("T", "TreeScreen"),
            ("F", "FlameScreen"),
            ("G", "LearnScreen"),
            ("?", "HelpScreen"),
            ("o", "StartScreen"),
        ],
        1,
    ),
)
async def test_a_screen_that_was_left_is_freed(key: str, name: str) -> None:
    """Screens were freed by no collection: they are cycles that have survived the young generations."""
    async with opened_app() as (app, pilot):
        screen = ref(await open_screen(pilot, key, name))
        await pilot.press("escape", "escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, ExplorerScreen) and screen() is None)
        assert not app._list_kept_screens()  # which would be collected again and again


@pytest.mark.long
async def test_the_painted_lines_of_a_removed_screen_are_freed() -> None:
    """textual keeps the styles caches of the last 1,024 widgets, with the lines that they painted."""
    async with opened_app() as (_, pilot):
        screen = await open_screen(pilot, "?", "HelpScreen")
        caches = [ref(widget._styles_cache) for widget in screen.walk_children(Widget)]
        del screen
        assert caches
        await pilot.press("escape")
        await until(pilot, lambda: all(cache() is None for cache in caches))


@pytest.mark.long
async def test_a_key_keeps_no_removed_screen() -> None:
    async with opened_app() as (app, pilot):
        screen = ref(await open_screen(pilot, "t", "TableScreen"))
        key = events.Key("x", "x")  # the thread that reads keys keeps the last one
        app._remember_target(key)
        await pilot.press("escape")
        await until(pilot, lambda: screen() is None)


@pytest.mark.long
@pytest.mark.parametrize("spec", keep_some([SAMPLE, "sample:train_gpt_2ranks"], 1))
async def test_the_first_trace_is_freed_when_another_is_opened(spec: str) -> None:
    """It was loaded when the program's objects were frozen, which no collection visits."""
    async with opened_app(spec) as (app, pilot):
        screen: ref[Screen[object]] = ref(app.screen)
        trace = ref(app.screen.trace)  # type: ignore[attr-defined]
        app.call_later(app._open, OTHER_SAMPLE)  # not in this test's context, which would keep the screen
        await until(pilot, lambda: screen() is None and trace() is None)  # LoadingScreen may be over by now
        assert gc.get_freeze_count()  # the program is still frozen


@pytest.mark.long
async def test_messages_that_were_cleared_leave_no_widgets() -> None:
    """textual removes the toast of a cleared message, but not the widget around it, which runs a task."""
    async with opened_app() as (app, pilot):
        for number in range(12):
            app.say(f"message {number}")
            await pilot.pause()
            await until(pilot, lambda: len(app.screen.query("Toast")) == 1)
        assert len(app.screen.query("ToastHolder")) <= 3


async def test_a_full_collection_waits_for_the_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """While keys are pressed, no frame waits for one; where frames never stop, it comes at its latest time."""
    async with opened_app() as (app, _):
        collections: list[bool] = []
        monkeypatch.setattr(app, "collect_all", lambda: collections.append(True))
        monkeypatch.setattr(garbage_collection, "QUIET_SECONDS", 30.0)
        app._full_deadline = float("inf")
        app.post_display_hook()
        app._collect_all_when_quiet()
        assert not collections
        app._full_deadline = 0.0
        app._collect_all_when_quiet()
        assert collections == [True]


@pytest.mark.long
async def test_a_screen_that_a_thread_still_uses_is_freed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collection, "QUIET_SECONDS", 0.01)
    async with opened_app() as (app, pilot):
        held: list[Screen[object]] = [await open_screen(pilot, "t", "TableScreen")]
        screen = ref(held[0])
        await pilot.press("escape")
        await until(pilot, lambda: app._attempts > 0)
        held.clear()
        await until(pilot, lambda: screen() is None)


def test_memory_is_given_back_where_the_c_library_can(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(garbage_collection, "_malloc_trim", calls.append)
    garbage_collection.trim_heap()
    assert calls == [0]
    monkeypatch.setattr(garbage_collection, "_malloc_trim", None)
    garbage_collection.trim_heap()


@pytest.mark.long
def test_threads_share_one_heap() -> None:
    """Each thread that allocates had an arena of its own, whose gaps no other thread used."""
    script = (
        "import threading, sys\n"
        "from torchprof_tui.ui.common.garbage_collection import GarbageCollectingApp\n"
        "GarbageCollectingApp()\n"
        "import ctypes, tempfile\n"
        "threads = [threading.Thread(target=lambda: [bytearray(4000) for _ in range(99)]) for _ in range(4)]\n"
        "[thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
        "libc = ctypes.CDLL(None)\n"
        "with tempfile.NamedTemporaryFile() as file:\n"
        "    libc.fopen.restype = ctypes.c_void_p\n"
        "    stream = libc.fopen(file.name.encode(), b'w')\n"
        "    libc.malloc_info(0, ctypes.c_void_p(stream)); libc.fclose(ctypes.c_void_p(stream))\n"
        "    print(file.read().decode().count('<heap nr='))\n"
    )
    if not hasattr(ctypes.CDLL(None), "malloc_info"):
        pytest.skip("only glibc has arenas")
    heaps = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert int(heaps) == 1
