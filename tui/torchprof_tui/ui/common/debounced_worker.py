"""Debounced work on threads: runs once its subject has not changed for a moment, and posts its result as a message."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer

from torchprof_tui.ui.common.running_work import RunningWork

DEBOUNCE_SECONDS = 0.02
"""Delay without changes before work begins, so that held-down keys never queue work."""

MAX_DEBOUNCE_SECONDS = 0.04
"""Upper limit of the delay after a single change. Work that took long is delayed by as long as it last took, up to
this, which is longer than the interval of keys that are held down."""

MAX_REPEAT_SECONDS, REPEAT_FACTOR = 0.08, 1.5
"""Changes that follow each other within this time are delayed by this multiple of their interval, so that no thread
competes with the frames of keys that are pressed quickly. Single keys come at longer intervals."""


class WorkResult(Message):
    """Base class of results that a screen passes on to whichever of its parts has a handler of that name."""


class DebouncedWorker:
    """Run one piece of work per subject: a later one replaces an earlier one that has not finished."""

    def __init__(self, screen: Screen[Any]) -> None:
        self._screen = screen
        self._running = RunningWork(screen)
        self._timers: dict[str, Timer] = {}
        self._last_seconds: dict[str, float] = {}  # how long the last work took, by subject
        self._changed: dict[str, float] = {}  # when it was debounced last, by subject

    def debounce(self, subject: str, call: Callable[[], None]) -> None:
        """Call `call` on the UI thread once the subject has not been debounced again for its delay."""
        if subject in self._timers:
            self._timers[subject].stop()
        delay = min(max(self._last_seconds.get(subject, 0.0), DEBOUNCE_SECONDS), MAX_DEBOUNCE_SECONDS)
        now = perf_counter()
        interval = now - self._changed.get(subject, -MAX_REPEAT_SECONDS)
        self._changed[subject] = now
        if interval < MAX_REPEAT_SECONDS and delay > DEBOUNCE_SECONDS:
            delay = max(delay, REPEAT_FACTOR * interval)
        self._timers[subject] = self._screen.set_timer(delay, call)

    def submit(self, subject: str, work: Callable[[], Message | None]) -> None:
        """Debounce, run `work` on a thread and post its message to the screen; None means that it was cancelled."""
        self.debounce(subject, lambda: self._run_in_thread(subject, work))

    def _run_in_thread(self, subject: str, work: Callable[[], Message | None]) -> None:
        number = self._running.begin(subject)

        def run() -> None:
            started = perf_counter()
            try:
                message = work()
            finally:
                self._screen.call_later(self._running.end, number)
            seconds = perf_counter() - started
            if message is not None:
                self._last_seconds[subject] = seconds
                self._screen.post_message(message)
            else:  # cancelled: finished work would have taken longer
                self._last_seconds[subject] = max(seconds, self._last_seconds.get(subject, 0.0))

        self._screen.run_worker(run, thread=True, exclusive=True, group=subject)
