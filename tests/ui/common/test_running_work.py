"""Work that takes long is shown in the status line, and in the progress bar of the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.explorer_app import explorer, settled, text_of, two_steps
from torchprof_tui.program.terminal_progress import DELAY_SECONDS
from torchprof_tui.ui.common import debounced_worker
from torchprof_tui.ui.common.debounced_worker import RunningWork
from torchprof_tui.ui.common.status_line import StatusLine


class Screen:
    """Stand in for a screen with a status line, for its timer and for the progress bar of the terminal."""

    app = "app"

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.bar: list[str] = []
        self.repeated: list[Callable[[], None]] = []

    def set_interval(self, seconds: float, call: Callable[[], None]) -> Screen:
        assert seconds == DELAY_SECONDS
        self.repeated.append(call)
        return self

    def stop(self) -> None:
        self.repeated.pop()

    def query(self, kind: type) -> list[Screen]:
        assert kind is StatusLine
        return [self]

    def show_work(self, text: str) -> None:
        self.shown.append(text)

    def set(self, share: float | None) -> None:
        self.bar.append(f"set {share}")

    def clear(self) -> None:
        self.bar.append("clear")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(debounced_worker, "perf_counter", lambda: now[0])
    return now


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    screen = Screen()
    monkeypatch.setattr(debounced_worker, "find_progress", {"app": screen}.get)
    return screen


def test_work_is_shown_after_a_while_and_until_it_ends(clock: list[float], screen: Screen) -> None:
    """What took longest until now is shown, from a second on with its seconds; the same text is shown once."""
    work = RunningWork(screen)  # type: ignore[arg-type]
    chain = work.begin("chain")
    (show,) = screen.repeated
    for seconds in (DELAY_SECONDS - 0.01, DELAY_SECONDS, 0.9):
        clock[0] = seconds
        show()
        assert screen.shown == ["finding the chain …"][: seconds >= DELAY_SECONDS]
    clock[0] = 1.0
    other = work.begin("another rank")
    assert len(screen.repeated) == 1
    show()
    clock[0] = 3.5
    show()
    work.end(chain)
    assert screen.repeated == [show]
    work.end(other)
    work.end(other)
    assert screen.shown[1:] == ["finding the chain … 1 s", "finding the chain … 3 s", "another rank … 2 s", ""]
    assert screen.bar == ["set None"] * 4 + ["clear"]
    assert not screen.repeated
    work.end(work.begin("check"))  # the next one has a timer of its own
    assert (len(screen.shown), len(screen.bar), screen.repeated) == (5, 5, [])


def test_a_terminal_without_a_progress_bar_has_the_status_line(clock: list[float], screen: Screen) -> None:
    screen.app = "another"
    work = RunningWork(screen)  # type: ignore[arg-type]
    work.begin("check")
    clock[0] += 1
    screen.repeated[0]()
    assert (screen.shown, screen.bar) == (["checking what is on screen … 1 s"], [])


async def test_the_status_line_of_a_screen_shows_work(monkeypatch: pytest.MonkeyPatch) -> None:
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        await settled(pilot)
        shown: list[Any] = []
        monkeypatch.setattr(StatusLine, "show_work", shown.append)
        screen._worker.submit("chain", lambda: shown.append(len(screen._worker._running._started)))
        await settled(pilot)
        await pilot.pause()
        assert shown == [1]  # the work has been noted; the status line is not even looked for
        assert not screen._worker._running._started
        monkeypatch.undo()
        screen.query_one(StatusLine).show_work("folding …")
        await pilot.pause()
        assert "folding …" in text_of(screen)
