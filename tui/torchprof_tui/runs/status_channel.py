"""What a run says while it goes on: JSON lines through a named pipe, so that its own output stays its own.

Every process of the run writes there, all ranks too, one whole line at a time;
`torchprof_runs.recorder.status_messages`
says what is in a line. A pipe, because its reader is woken and need not look; named, because torchrun closes what it
inherits.
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
    """One line: a `phase` with its details in `facts`, or a `log` line; `time` in Unix seconds."""

    time: float
    rank: int
    phase: str = ""
    log: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """A phase as a person says it: ``recording, step 2 of 3``."""
        facts = self.details
        words = self.phase
        if self.phase == "waiting" and facts.get("after_s"):
            words += f" for {facts['after_s']:g} s"
        elif self.phase == "recording" and facts.get("for_s"):
            words += f" for {facts['for_s']:g} s"
        if facts.get("step"):
            words += f", step {facts['step']}" + (f" of {facts['of']}" if facts.get("of") else "")
        if facts.get("cycles", 1) != 1:
            words += f", cycle {facts['cycle']}" + (f" of {facts['cycles']}" if facts["cycles"] else "")
        return words


class StatusChannel:
    """The pipe. Give `environment` to the run; when `fileno()` is readable, `read()` what it said. `close()` it."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="torchprof-tui-run-")
        self._path = os.path.join(self._folder, "status")
        os.mkfifo(self._path, 0o600)
        self._read_fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        # A writer of ours, so that the pipe never looks closed between two of the run's.
        self._write_fd = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._partial_line = b""
        self.folder: str | None = None  # the run's, once it has one

    @property
    def environment(self) -> dict[str, str]:
        """What the run must find in its environment besides ours. It ends, having saved, when this process does."""
        return {STATUS_VARIABLE: self._path, PARENT_VARIABLE: str(os.getpid())}

    def fileno(self) -> int:
        return self._read_fd

    def read(self) -> list[StatusMessage]:
        """What was said since the last call; never waits."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._read_fd, 1 << 16):
                self._partial_line += chunk
        *lines, self._partial_line = self._partial_line.split(b"\n")
        said = [each for line in lines if (each := _parse_message(line)) is not None]
        for each in said:
            self.folder = each.details.get("folder", self.folder)
        return said

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
        return None  # a program that writes there itself is no reason to stop
