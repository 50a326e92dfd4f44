"""Test timers that are due before they run: those of messages that have expired, and those of a busy machine."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from rich.style import Style
from textual import events
from textual import timer as textual_timer
from textual.app import App, ComposeResult
from textual.notifications import Notification
from textual.widgets import OptionList
from textual.widgets._toast import Toast

from torchprof_tui.ui.common import guarded_screen

guarded_screen.repair_textual()


@pytest.mark.parametrize("delay", [-1.0, -1e-6, 0.0, 1e-9])
async def test_a_timer_that_is_due_already_fires_once(delay: float) -> None:
    app: App[None] = App()
    fired = asyncio.Event()
    async with app.run_test():
        app.set_timer(delay, fired.set)  # a negative delay blocked the event loop for ever
        await asyncio.wait_for(fired.wait(), 60)


async def test_a_timer_whose_task_was_held_up_still_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    """textual skipped it, and with it the end of a batch of updates: nothing was painted any more."""
    app: App[None] = App()
    fired = asyncio.Event()
    ticks = iter(range(0, 10**9, 10))  # ten seconds between two looks at the clock
    async with app.run_test():
        monkeypatch.setattr(textual_timer._time, "get_time", lambda: float(next(ticks)))
        app.set_timer(0.05, fired.set)
        await asyncio.wait_for(fired.wait(), 60)


async def test_a_message_that_expired_while_its_screen_was_built() -> None:
    app: App[None] = App()
    async with app.run_test() as pilot:
        toast = Toast(Notification("gone", timeout=3, raised_at=time.time() - 5))
        await app.screen.mount(toast)
        for _ in range(1000):
            if not toast.is_attached:
                break
            await pilot.pause(0.01)
        assert not toast.is_attached


def test_repeated_timers_skip_what_they_have_missed_as_before() -> None:
    target: Any = App()
    assert textual_timer.Timer(target, 0.1)._skip
    assert textual_timer.Timer(target, 0.1, repeat=3)._skip
    assert not textual_timer.Timer(target, 0.1, repeat=0)._skip


async def test_a_click_on_an_option_that_has_left_the_list() -> None:
    class ListApp(App[None]):
        def compose(self) -> ComposeResult:
            yield OptionList("first", "second", "third")

    app = ListApp()
    async with app.run_test() as pilot:
        options = app.query_one(OptionList)
        click = events.Click(options, 3, 3, 0, 0, 1, False, False, False, 3, 3, style=Style(meta={"option": 2}))
        options.clear_options()
        await options._dispatch_message(click)
        await pilot.pause()
        assert options.highlighted is None
