"""The delay of debounced work: a minimum, or as long as the work last took."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from textual.message import Message

from torchprof_tui.ui.common import debounced_worker
from torchprof_tui.ui.common.debounced_worker import (
    DEBOUNCE_SECONDS,
    MAX_DEBOUNCE_SECONDS,
    MAX_REPEAT_SECONDS,
    DebouncedWorker,
)


class Timer:
    """A timer that fires on `Screen.fire_timers` unless it was stopped before."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def stop(self) -> None:
        self.call = None

    def fire(self) -> None:
        call, self.call = self.call, None
        if call is not None:
            call()


class Screen:
    """Stand in for a screen: timers fire on `fire_timers`, and workers run at once."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.posted: list[Message] = []
        self.groups: list[str] = []
        self.later: list[tuple[Any, ...]] = []
        self._timers: list[Timer] = []

    def set_timer(self, delay: float, call: Callable[[], None]) -> Timer:
        self.waits.append(delay)
        self._timers.append(Timer(call))
        return self._timers[-1]

    def set_interval(self, _: float, call: Callable[[], None]) -> Timer:
        return Timer(call)

    def call_later(self, call: Callable[..., None], *args: Any) -> None:
        """Note what is called on the loop: it shows what runs."""
        self.later.append((call.__name__, *args))

    def show_later(self, show: Callable[[Any], None], answer: Any) -> None:
        show(answer)

    def run_worker(self, work: Callable[[], None], thread: bool, exclusive: bool, group: str) -> None:
        self.groups.append(group)
        assert thread
        assert exclusive
        work()

    def post_message(self, message: Message) -> None:
        self.posted.append(message)

    def fire_timers(self) -> None:
        """Let the time of every timer pass."""
        for timer in self._timers:
            timer.fire()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(debounced_worker, "perf_counter", lambda: now[0])
    return now


def test_only_the_last_of_several_changes_is_worked_on(clock: list[float]) -> None:
    """Held-down keys never queue work; another subject has a timer of its own."""
    screen, done = Screen(), list[str]()
    worker = DebouncedWorker(screen)  # type: ignore[arg-type]
    for key in ("first", "second", "third"):
        worker.submit("check", lambda key=key: done.append(key))  # type: ignore[misc]
        clock[0] += DEBOUNCE_SECONDS / 2
    worker.debounce("search", lambda: done.append("search"))
    screen.fire_timers()
    assert done == ["third", "search"]
    screen.fire_timers()
    assert done == ["third", "search"]


@pytest.mark.parametrize(
    ("took", "answered", "waits"),
    [
        (0.001, True, DEBOUNCE_SECONDS),
        (0.03, True, 0.03),
        (3.0, True, MAX_DEBOUNCE_SECONDS),
        (0.03, False, 0.03),
    ],
)
def test_work_waits_as_long_as_it_took(clock: list[float], took: float, answered: bool, waits: float) -> None:
    screen = Screen()
    worker = DebouncedWorker(screen)  # type: ignore[arg-type]

    def work() -> Message | None:
        clock[0] += took
        return Message() if answered else None

    worker.submit("check", work)
    screen.fire_timers()
    clock[0] += MAX_REPEAT_SECONDS
    assert len(screen.posted) == answered
    worker.submit("check", work)
    worker.submit("another", work)
    assert screen.waits == [DEBOUNCE_SECONDS, waits, DEBOUNCE_SECONDS]


def test_work_ends_also_where_it_fails(clock: list[float]) -> None:
    screen, answers = Screen(), list[int]()
    worker = DebouncedWorker(screen)  # type: ignore[arg-type]
    for subject, work in (("check", lambda: 0), ("check", lambda: None), ("path", lambda: 1 // 0)):
        worker.answer(subject, work, answers.append)
        with pytest.raises(ZeroDivisionError) if subject == "path" else nullcontext():
            screen.fire_timers()
    assert answers == [0]
    assert screen.groups == ["check", "check", "path"]
    assert screen.later == [("end", 1), ("end", 2), ("end", 3)]


def test_cancelled_work_does_not_shorten_the_delay(clock: list[float]) -> None:
    screen = Screen()
    worker = DebouncedWorker(screen)  # type: ignore[arg-type]
    answers: list[tuple[float, Message | None]] = [(0.035, Message()), (0.01, None), (0.03, Message())]

    def work() -> Message | None:
        took, message = answers.pop(0)
        clock[0] += took
        return message

    for _ in range(3):
        worker.submit("check", work)
        screen.fire_timers()
        clock[0] += MAX_REPEAT_SECONDS
    worker.submit("check", work)
    assert screen.waits == [DEBOUNCE_SECONDS, 0.035, 0.035, 0.03]


@pytest.mark.parametrize(
    ("took", "before", "interval", "waits"),
    [
        (1.0, 7.0, 0.01, MAX_DEBOUNCE_SECONDS),
        (1.0, 7.0, 0.06, 0.09),
        (1.0, 0.0, MAX_REPEAT_SECONDS, MAX_DEBOUNCE_SECONDS),  # exactly
        (DEBOUNCE_SECONDS, 7.0, 0.06, DEBOUNCE_SECONDS),
    ],
)
def test_repeated_keys_wait_longer_than_their_interval(
    clock: list[float], took: float, before: float, interval: float, waits: float
) -> None:
    screen = Screen()
    worker = DebouncedWorker(screen)  # type: ignore[arg-type]

    def work() -> None:
        clock[0] += took

    worker.submit("check", work)
    screen.fire_timers()
    clock[0] = before
    worker.submit("check", work)
    clock[0] = before + interval
    worker.submit("check", work)
    assert screen.waits[-1] == pytest.approx(waits)
