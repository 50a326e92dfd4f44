"""Test that a screen which does not answer is noted in the log, with the stacks of threads and tasks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from textual.widgets import Input

from tests.helpers.explorer_app import explorer, two_steps, until
from torchprof_tui.program import phase_log, stall_watchdog
from torchprof_tui.program.stall_watchdog import StallWatchdog
from torchprof_tui.ui.common.terminal_driver import TerminalDriver


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    shown = SimpleNamespace(now=0.0)
    monkeypatch.setattr(stall_watchdog.time, "monotonic", lambda: shown.now)
    return shown


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(phase_log, "_phases", deque())
    path = tmp_path / "log"
    phase_log.open_log(str(path), [])
    yield path
    phase_log.close_log()


async def look_for(watchdog: StallWatchdog, clock: SimpleNamespace, seconds: float) -> None:
    """Look 10 times a second, as the input thread does."""
    for _ in range(round(seconds * 10)):
        clock.now += 0.1
        watchdog.look()
        await asyncio.sleep(0)


async def wait_for_itself() -> None:
    await asyncio.Event().wait()


async def test_a_loop_that_idles_without_an_answer_is_noted_with_all_stacks(clock: SimpleNamespace, log: Path) -> None:
    answers = []
    watchdog = StallWatchdog(asyncio.get_running_loop(), answers.append)
    task = asyncio.create_task(wait_for_itself(), name="message pump Input(value='secret')")
    await look_for(watchdog, clock, 6.5)
    assert "does not answer" not in log.read_text()
    await look_for(watchdog, clock, 1.5)
    text = log.read_text()
    assert text.count("does not answer") == 1
    assert "thread MainThread" in text
    assert "task message pump Input\n" in text
    assert "in wait_for_itself" in text
    assert "secret" not in text
    answers[0]()
    assert "answers again" in log.read_text()
    task.cancel()


async def test_a_program_that_answers_or_was_stopped_is_not_noted(clock: SimpleNamespace, log: Path) -> None:
    watchdog = StallWatchdog(asyncio.get_running_loop(), lambda answer: answer())
    await look_for(watchdog, clock, 60)
    silent = StallWatchdog(asyncio.get_running_loop(), lambda _: None)
    for _ in range(5):
        clock.now += 1000  # stopped between two looks
        silent.look()
    assert "does not answer" not in log.read_text()


async def test_without_a_log_the_stacks_are_a_report(
    clock: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    watchdog = StallWatchdog(asyncio.get_running_loop(), lambda _: None)
    await look_for(watchdog, clock, 100)
    (report,) = tmp_path.rglob("crash-*.txt")
    assert "[the screen does not answer]" in report.read_text()


async def test_an_app_answers_unless_the_widget_with_the_focus_waits_for_itself() -> None:
    async with explorer(two_steps()) as (_, pilot):
        answers: list[int] = []
        driver = SimpleNamespace(_app=pilot.app)
        TerminalDriver._probe_app(driver, lambda: answers.append(1))  # type: ignore[arg-type]
        await until(pilot, lambda: answers == [1])
        with pilot.app.batch_update():  # nothing is painted
            TerminalDriver._probe_app(driver, lambda: answers.append(2))  # type: ignore[arg-type]
            await pilot.pause()
        assert answers == [1]
        await pilot.press("slash")
        field = pilot.app.focused
        assert isinstance(field, Input)
        stuck = asyncio.Event()
        field.call_later(stuck.wait)
        TerminalDriver._probe_app(driver, lambda: answers.append(3))  # type: ignore[arg-type]
        for _ in range(20):
            await asyncio.sleep(0)
        assert answers == [1]
        stuck.set()
        await until(pilot, lambda: answers == [1, 3])
