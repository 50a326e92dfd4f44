"""Progress of saving a trace, with the time left: first torch writes its JSON, then the recorder compresses it.

torch does not report how far it is, so the size of the file that it writes is read from the disk; how large it will be
is known from the step that the recorder measured. The recorder reports how much it has compressed.
"""

from __future__ import annotations

import contextlib
import os
import time

from torchprof_tui.runs.status_channel import StatusMessage

EXPORTING = "exporting"
TABULATING = "tabulating"
SAVING_PHASES = (EXPORTING, TABULATING)
"""Phases in which the recording is written."""

MIN_TABLE_SECONDS = 1.0
"""Seconds until torch's table is worth a line: that of a small trace takes less."""

MIN_RATE_SECONDS = 0.5
"""Seconds of writing before its rate is known well enough to estimate the time left."""


class SaveProgress:
    """Progress of the saves of one run. Pass it every status message of rank 0."""

    def __init__(self) -> None:
        self._message: StatusMessage | None = None  # the last one, while a trace is saved
        self._started_at: float | None = None  # time.monotonic() of this stage's first byte or text
        self._stage: tuple[object, ...] = ()

    def update(self, message: StatusMessage) -> None:
        """Take in a status message."""
        self._message = message if message.phase in SAVING_PHASES else None
        stage = (
            (message.phase, message.cycle, message.total is not None, message.raw) if self._message is not None else ()
        )
        if stage != self._stage:
            self._stage, self._started_at = stage, None

    def text(self, now: float | None = None) -> str:
        """Describe the save that goes on: ``saving: 120 of about 400 MB, 20 s left``; "" if none does.

        `now` is time.monotonic().
        """
        message = self._message
        if message is None:
            return ""
        if message.phase == TABULATING:
            return self._describe_table(time.monotonic() if now is None else now)
        total, expected = message.total, message.expected
        if total is not None:
            done = message.compressed or 0
            return f"compressing: {_megabytes(done)} of {_megabytes(total)} MB" + self._time_left(done, total, now)
        if message.raw is None:
            return ""
        done = _file_size(message.raw)
        if expected is None:
            return f"saving: {_megabytes(done)} MB written"
        return f"saving: {_megabytes(done)} of about {_megabytes(expected)} MB" + self._time_left(done, expected, now)

    def _describe_table(self, now: float) -> str:
        """Say how long torch has worked on its table, which reports no progress; "" in the first second."""
        self._started_at = now if self._started_at is None else self._started_at
        seconds = now - self._started_at
        return "" if seconds < MIN_TABLE_SECONDS else f"torch's table: {seconds:.0f} s so far, ctrl+c skips it"

    def _time_left(self, done: int, total: int, now: float | None) -> str:
        """Format the time left at the mean rate of this stage; "" as long as the rate is unknown."""
        if now is None:
            now = time.monotonic()
        if self._started_at is None:
            self._started_at = now if done else None
            return ""
        seconds = now - self._started_at
        if seconds < MIN_RATE_SECONDS or not done:
            return ""
        if done >= total:
            return ", nearly done"
        return f", {_format_seconds(seconds * (total - done) / done)} left"


def _file_size(path: str) -> int:
    """Return the size of the file that torch writes, bytes; since torch 2.13 it has a suffix until it is complete."""
    for name in (path, f"{path}.tmp"):
        with contextlib.suppress(OSError, ValueError):
            return os.path.getsize(name)
    return 0


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f}" if count >= 10_000_000 or not count else f"{count / 1e6:.1f}"


def _format_seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min"
