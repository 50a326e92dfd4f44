"""What costs more than a frame: asked once the selection has stood still, worked out in a thread, told by a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer

SETTLE_SECONDS = 0.02
"""How long nothing may have moved before work begins: held-down keys never queue any."""


class Reading:
    """One subject at a time each: a later question replaces an earlier one that has not been answered."""

    def __init__(self, screen: Screen[Any]) -> None:
        self._screen = screen
        self._waiting: dict[str, Timer] = {}

    def soon(self, subject: str, call: Callable[[], None]) -> None:
        """Call once nothing has asked about this subject for a moment."""
        if subject in self._waiting:
            self._waiting[subject].stop()
        self._waiting[subject] = self._screen.set_timer(SETTLE_SECONDS, call)

    def ask(self, subject: str, work: Callable[[], Message | None]) -> None:
        """The same, then in a thread; its message goes to the screen."""
        self.soon(subject, lambda: self._begin(subject, work))

    def _begin(self, subject: str, work: Callable[[], Message | None]) -> None:
        def answer() -> None:
            message = work()
            if message is not None:
                self._screen.post_message(message)

        self._screen.run_worker(answer, thread=True, exclusive=True, group=subject)
