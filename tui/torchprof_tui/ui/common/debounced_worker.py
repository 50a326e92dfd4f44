"""Debounced work on threads: runs once its subject has not changed for a moment, and posts its result as a message."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from time import perf_counter
from typing import Any

from textual.message import Message
from textual.timer import Timer

from torchprof_tui.program.terminal_progress import DELAY_SECONDS
from torchprof_tui.ui.common.guarded_screen import Answer, GuardedScreen
from torchprof_tui.ui.common.status_line import StatusLine
from torchprof_tui.ui.common.terminal_driver import find_progress

WORK_NAMES = {
    "chain": "finding the chain",
    "chain steps": "comparing the event over the steps",
    "check": "checking what is on screen",
    "doctor": "examining the trace",
    "flame": "folding the stacks",
    "late rank": "checking the late rank",
    "memory": "pairing allocations and frees",
    "path": "finding the critical path",
    "precompute": "looking for patterns",
    "range": "measuring the range",
    "sheet": "building the table",
    "slice": "writing the slice",
    "snapshot": "reading the snapshot",
    "what-if": "predicting the step",
}
"""What is done for a subject, in words; of others the subject itself is shown."""


class RunningWork:
    """The work of one screen that has not ended. Call `begin` and `end` on the UI thread."""

    def __init__(self, screen: GuardedScreen[Any]) -> None:
        self._screen = screen
        self._started: dict[int, tuple[str, float]] = {}  # (subject, when) by number
        self._count = 0
        self._timer: Timer | None = None  # repeats while there is work
        self._shown = ""

    def begin(self, subject: str) -> int:
        """Note that work has begun; nothing is shown within DELAY_SECONDS. Returns its number."""
        self._count += 1
        self._started[self._count] = subject, perf_counter()
        if self._timer is None:
            self._timer = self._screen.set_interval(DELAY_SECONDS, self._show)
        return self._count

    def end(self, number: int) -> None:
        """Note that work has ended, and show what is left of it."""
        self._started.pop(number, None)
        if not self._started and self._timer is not None:
            self._timer.stop()
            self._timer = None
        self._show()

    def _show(self) -> None:
        now = perf_counter()
        slow = [(subject, now - started) for subject, started in self._started.values()]
        slow = [(subject, seconds) for subject, seconds in slow if seconds >= DELAY_SECONDS]
        subject, seconds = max(slow, key=lambda each: each[1], default=("", 0.0))
        text = f"{WORK_NAMES.get(subject, subject)} …" if subject else ""
        if seconds >= 1:
            text += f" {int(seconds)} s"
        if text == self._shown:
            return
        self._shown = text
        for line in self._screen.query(StatusLine):
            line.show_work(text)
        if (progress := find_progress(self._screen.app)) is not None:
            progress.set(None) if slow else progress.clear()


DEBOUNCE_SECONDS = 0.02  # delay without changes before work begins, so that held-down keys never queue work

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

    def __init__(self, screen: GuardedScreen[Any]) -> None:
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
        interval = now - self._changed.get(subject, -inf)
        self._changed[subject] = now
        if interval < MAX_REPEAT_SECONDS and delay > DEBOUNCE_SECONDS:
            delay = max(delay, REPEAT_FACTOR * interval)
        self._timers[subject] = self._screen.set_timer(delay, call)

    def submit(self, subject: str, work: Callable[[], Message | None]) -> None:
        """Debounce, run `work` on a thread and post its message to the screen; None means that it was cancelled."""
        self.debounce(subject, lambda: self._run_in_thread(subject, work, self._screen.post_message))

    def answer(self, subject: str, work: Callable[[], Answer | None], show: Callable[[Answer], object]) -> None:
        """As `submit`, but call `show` with the result on the UI thread, unless the screen was left."""
        report = partial(self._screen.show_later, show)
        self.debounce(subject, lambda: self._run_in_thread(subject, work, report))

    def _run_in_thread(
        self, subject: str, work: Callable[[], Answer | None], report: Callable[[Answer], object]
    ) -> None:
        number = self._running.begin(subject)

        def run() -> None:
            started = perf_counter()
            try:
                result = work()
            finally:
                self._screen.call_later(self._running.end, number)
            seconds = perf_counter() - started
            if result is not None:
                self._last_seconds[subject] = seconds
                report(result)
            else:  # cancelled: finished work would have taken longer
                self._last_seconds[subject] = max(seconds, self._last_seconds.get(subject, 0.0))

        self._screen.run_worker(run, thread=True, exclusive=True, group=subject)
