"""Status of a run while it goes on: log lines for people, and JSON lines for the app that started it.

The app names a file, a named pipe or an inherited descriptor in the environment variable TORCHPROF_STATUS. Each line
written there is one JSON object with `time` (Unix seconds), `pid` and `rank`, and either `log` (a line of text) or
`phase` (one of `PHASES`) with the fields of that phase. Lines are shorter than a pipe's atomic write. Writing never
blocks; lines are dropped if the pipe is full or has no reader.

If the app puts its pid into TORCHPROF_PARENT, the run saves and ends when the app ends, for whatever reason, and log
lines carry the app's name.

If the app names a pipe in TORCHPROF_ANSWERS, it answers the questions that the phase "asking" carries in `choices`
(answer → what it does) by writing one of these characters there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable
from typing import Any

STATUS_VARIABLE = "TORCHPROF_STATUS"
PARENT_VARIABLE = "TORCHPROF_PARENT"
ANSWERS_VARIABLE = "TORCHPROF_ANSWERS"
PHASES = (
    "starting",
    "waiting",
    "measuring",
    "asking",
    "warming up",
    "recording",
    "exporting",
    "tabulating",
    "running on",
    "done",
)
REPEAT_INTERVAL = 0.05  # seconds between reports of steps in one phase; faster updates cannot be read on screen
FIRST_PRIVATE_DESCRIPTOR = 200  # the recorder's own descriptors are numbered from here
MAX_LINE_BYTES = 4000  # bytes: a write to a pipe up to 4096 is never mixed with another process's


def escape_control_characters(text: str) -> str:
    """Escape the characters of `text` that a terminal would act on."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def move_to_high_descriptor(descriptor: int) -> int:
    """Move `descriptor` to a high number, closed on exec: programs close low numbers by range and then reuse them."""
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, FIRST_PRIVATE_DESCRIPTOR)
    if descriptor > 2:
        os.close(descriptor)
    return high


def _open_private(open_descriptor: Callable[[], int]) -> int | None:
    """Open a descriptor and move it to a high number; None if that fails."""
    try:
        return move_to_high_descriptor(open_descriptor())
    except OSError:
        return None


def _open_channel(name: str) -> int:
    if name.isdigit():
        os.set_blocking(int(name), False)
        return int(name)
    return os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o644)


class Reporter:
    """Report what happens to stderr, to the run's log file and to the app. No method raises or blocks."""

    def __init__(self, rank: int | None = None, channel: str | None = None, name: str = "torchprof") -> None:
        self.rank = rank
        self._prefix = f"{name}: " if rank is None else f"{name}[rank {rank}]: "
        self._stderr = _open_private(lambda: 2)  # a copy, because the program may close or redirect stderr
        # The descriptor of the app's channel, None without one.
        self.channel = _open_private(lambda: _open_channel(channel)) if channel else None
        self._log_file: int | None = None
        self._last_phase: dict[str, Any] = {}
        self._last_report_time = 0.0

    def open_log(self, path: str) -> None:
        """Append log lines to the file at `path` too."""
        self._log_file = _open_private(lambda: os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644))

    def log(self, text: str) -> None:
        """Write one line for people."""
        text = escape_control_characters(text)
        line = f"{self._prefix}{text}\n".encode()
        for descriptor in (self._stderr, self._log_file):
            self._write(descriptor, line)
        self._send_message({"log": text[: MAX_LINE_BYTES // 4]})

    def report_phase(self, name: str, **fields: Any) -> None:
        """Report that the run is in phase `name`; steps of one phase at most every REPEAT_INTERVAL seconds."""
        if self.channel is None:
            return
        now = time.monotonic()
        if (
            "step" in fields
            and self._last_phase.get("phase") == name
            and now - self._last_report_time < REPEAT_INTERVAL
        ):
            return
        self._last_report_time = now
        self._last_phase = {"phase": name, **fields}
        self._send_message(self._last_phase)

    def _send_message(self, message: dict[str, Any]) -> None:
        if self.channel is not None:
            common_fields = {"time": time.time(), "pid": os.getpid(), "rank": self.rank or 0}
            line = json.dumps({**common_fields, **message}).encode() + b"\n"
            if len(line) <= MAX_LINE_BYTES:
                self._write(self.channel, line)

    @staticmethod
    def _write(descriptor: int | None, line: bytes) -> None:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.write(descriptor, line)
