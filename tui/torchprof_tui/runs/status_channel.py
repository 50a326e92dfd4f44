"""Status messages of a run while it goes on: JSON lines through a named pipe, separate from the program's output.

Every process of the run, also each rank, writes one whole line at a time; `torchprof_runs.recorder.status_messages`
documents the fields. A pipe wakes its reader when there is something to read. It has a name because torchrun closes
inherited descriptors.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

STATUS_VARIABLE = "TORCHPROF_STATUS"
PARENT_VARIABLE = "TORCHPROF_PARENT"


@dataclass(frozen=True, slots=True)
class StatusMessage:
    """One line: a `phase` with its `details`, or a `log` line; `time` in Unix seconds."""

    time: float
    rank: int
    phase: str = ""
    log: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The phase in words: ``recording, step 2 of 3``."""
        details = self.details
        words = self.phase
        if self.phase == "waiting" and details.get("after_s"):
            words += f" for {details['after_s']:g} s"
        elif self.phase == "recording" and details.get("for_s"):
            words += f" for {details['for_s']:g} s"
        if details.get("step"):
            words += f", step {details['step']}" + (f" of {details['of']}" if details.get("of") else "")
        if details.get("cycles", 1) != 1:
            words += f", cycle {details['cycle']}" + (f" of {details['cycles']}" if details["cycles"] else "")
        return words


class StatusChannel:
    """The named pipe of one run. Start the run with `environment`; call `read()` when `fileno()` is readable."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="torchprof-tui-run-")
        self._path = os.path.join(self._folder, "status")
        os.mkfifo(self._path, 0o600)
        self._read_fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        # A writer in this process, so that the pipe is never at its end while no process of the run has it open.
        self._write_fd = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._partial_line = b""
        self.folder: str | None = None  # the run's folder, once it is known

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables to add for the run. With them, it saves and ends when this process ends."""
        return {STATUS_VARIABLE: self._path, PARENT_VARIABLE: str(os.getpid())}

    def fileno(self) -> int:
        return self._read_fd

    def read(self) -> list[StatusMessage]:
        """Read the messages since the last call; never blocks."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._read_fd, 1 << 16):
                self._partial_line += chunk
        *lines, self._partial_line = self._partial_line.split(b"\n")
        messages = [message for line in lines if (message := _parse_message(line)) is not None]
        for message in messages:
            self.folder = message.details.get("folder", self.folder)
        return messages

    def close(self) -> None:
        for descriptor in (self._read_fd, self._write_fd):
            os.close(descriptor)
        shutil.rmtree(self._folder, ignore_errors=True)


def _parse_message(line: bytes) -> StatusMessage | None:
    try:
        facts = json.loads(line)
        return StatusMessage(
            float(facts.pop("time")),
            int(facts.pop("rank")),
            str(facts.pop("phase", "")),
            str(facts.pop("log", "")),
            facts,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # a line that the recorded program itself wrote to the pipe
