"""What costs more than a frame: asked once the selection has stood still, worked out in a thread, told by a message."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer

DEBOUNCE_SECONDS = 0.02
"""How long nothing may have moved before work begins: held-down keys never queue any."""

MAX_DEBOUNCE_SECONDS = 0.25
"""What takes long waits for as long as it last took, up to this: whoever presses key after key has no thread beside the
frames, and who stands still waits twice as long at most."""


class DebouncedWorker:
    """One subject at a time each: a later question replaces an earlier one that has not been answered."""

    def __init__(self, screen: Screen[Any]) -> None:
        self._screen = screen
        self._timers: dict[str, Timer] = {}
        self._last_seconds: dict[str, float] = {}  # seconds

    def debounce(self, subject: str, call: Callable[[], None]) -> None:
        """Call once nothing has asked about this subject for a moment."""
        if subject in self._timers:
            self._timers[subject].stop()
        moment = min(max(self._last_seconds.get(subject, 0.0), DEBOUNCE_SECONDS), MAX_DEBOUNCE_SECONDS)
        self._timers[subject] = self._screen.set_timer(moment, call)

    def submit(self, subject: str, work: Callable[[], Message | None]) -> None:
        """The same, then in a thread; its message goes to the screen."""
        self.debounce(subject, lambda: self._run_in_thread(subject, work))

    def _run_in_thread(self, subject: str, work: Callable[[], Message | None]) -> None:
        def answer() -> None:
            began = perf_counter()
            message = work()
            took = perf_counter() - began
            if message is not None:
                self._last_seconds[subject] = took
                self._screen.post_message(message)
            else:  # given up: it would have taken longer
                self._last_seconds[subject] = max(took, self._last_seconds.get(subject, 0.0))

        self._screen.run_worker(answer, thread=True, exclusive=True, group=subject)
