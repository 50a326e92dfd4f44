"""Progress of saving a trace, with the time left: first torch writes its JSON, then the recorder compresses it.

torch does not report how far it is, so the size of the file that it writes is read from the disk; how large it will be
is known from the step that the recorder measured. The recorder reports how much it has compressed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any

from torchprof_tui.runs.status_channel import StatusMessage

EXPORTING = "exporting"
MIN_RATE_SECONDS = 0.5
"""Seconds of writing before its rate is known well enough to estimate the time left."""


class SaveProgress:
    """Progress of the saves of one run. Pass it every status message of rank 0."""

    def __init__(self) -> None:
        self._details: Mapping[str, Any] = {}
        self._started_at: float | None = None  # time.monotonic() of the first byte of this stage
        self._stage: tuple[object, ...] = ()

    def update(self, message: StatusMessage) -> None:
        """Take in a status message."""
        self._details = message.details if message.phase == EXPORTING else {}
        stage = (self._details.get("cycle"), "total" in self._details, self._details.get("raw"))
        if stage != self._stage:
            self._stage, self._started_at = stage, None

    def text(self, now: float | None = None) -> str:
        """Describe the save that goes on: ``saving: 120 of about 400 MB, 20 s left``; "" if none does.

        `now` is time.monotonic().
        """
        total, expected = _count(self._details.get("total")), _count(self._details.get("expected"))
        if total is not None:
            done = _count(self._details.get("compressed")) or 0
            return f"compressing: {_megabytes(done)} of {_megabytes(total)} MB" + self._time_left(done, total, now)
        raw = self._details.get("raw")
        if not isinstance(raw, str):
            return ""
        done = _file_size(raw)
        if expected is None:
            return f"saving: {_megabytes(done)} MB written"
        return f"saving: {_megabytes(done)} of about {_megabytes(expected)} MB" + self._time_left(done, expected, now)

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


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


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
