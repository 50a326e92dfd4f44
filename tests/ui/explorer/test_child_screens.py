"""Test that a key imports its screen on a thread, the first time it is pressed."""

from __future__ import annotations

import importlib
import threading

import pytest

from tests.helpers.explorer_app import explorer, two_steps, until
from tests.helpers.long_run import keep_some
from torchprof_tui.ui.explorer import child_screens


@pytest.mark.parametrize(
    ("key", "name"),
    keep_some(
        [("M", "MemoryScreen"), ("t", "TableScreen"), ("T", "TreeScreen"), ("F", "FlameScreen"), ("G", "LearnScreen")],
        1,
    ),
)
async def test_the_event_loop_does_not_wait_for_an_import(monkeypatch: pytest.MonkeyPatch, key: str, name: str) -> None:
    threads: list[threading.Thread] = []
    load = importlib.import_module

    def import_and_note(module: str) -> object:
        if module in child_screens.MODULES.values():
            threads.append(threading.current_thread())
        return load(module)

    monkeypatch.setattr(child_screens, "_imported", set())
    async with explorer(two_steps()) as (_, pilot):
        monkeypatch.setattr(importlib, "import_module", import_and_note)
        await pilot.press(key)
        await until(pilot, lambda: type(pilot.app.screen).__name__ == name)
    assert threads
    assert threads[0] is not threading.main_thread()
