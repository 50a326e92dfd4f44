"""Show work that takes long: in words in the status line, and in the terminal's own progress bar (OSC 9;4)."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from textual.screen import Screen
from textual.timer import Timer

from torchprof_tui.program.terminal_progress import DELAY_SECONDS
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

    def __init__(self, screen: Screen[Any]) -> None:
        self._screen = screen
        self._started: dict[int, tuple[str, float]] = {}  # (subject, when) by number
        self._count = 0
        self._timer: Timer | None = None  # repeats while there is work

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
        for line in self._screen.query(StatusLine):
            line.show_work(text)
        if (progress := find_progress(self._screen.app)) is not None:
            progress.set(None) if slow else progress.clear()
