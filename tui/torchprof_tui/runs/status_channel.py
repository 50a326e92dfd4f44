"""Status messages of a run while it goes on: JSON lines through a named pipe, separate from the program's output.

Every process of the run, also each rank, writes one whole line at a time; `torchprof_runs.recorder.status_messages`
documents the fields. A pipe wakes its reader when there is something to read. It has a name because torchrun closes
inherited descriptors. The recorded program can write to the pipe, too: a line that is no message is ignored, and what
one `read` takes is limited.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from torchprof_tui.trace.core.errors import UnreadableFileError
from torchprof_tui.trace.core.typed_json import Count, Path, Seconds, Text, decode_typed_json

STATUS_VARIABLE = "TORCHPROF_STATUS"
PARENT_VARIABLE = "TORCHPROF_PARENT"

MAX_LINE_BYTES = 4096
"""The recorder writes lines of at most 4,000 bytes, because longer writes to a pipe may be mixed with others'."""

MAX_READ_BYTES = 1 << 20
"""Bytes that one `read` takes, so that a program that never stops writing does not block the screen."""


Choices = Annotated[
    dict[Annotated[str, Meta(pattern=r"^[a-z]\Z")], Annotated[str, Meta(max_length=100)]], Meta(max_length=4)
]


class StatusMessage(msgspec.Struct, frozen=True):
    """One line: a `phase` with its fields, or a `log` line; `time` in Unix seconds, the other times in seconds.

    `folder`: the run's folder. `step` of `of`, `cycle` of `cycles` (0: unlimited). `after_s`, `for_s`: a time window.
    While a trace is saved: `raw`, the file that torch writes, of `expected` bytes; then `compressed` of `total` bytes.
    `choices`: the answers to a question (one letter each) → what they do.
    """

    time: Seconds
    rank: Count
    phase: Annotated[str, Meta(max_length=40)] = ""
    log: Text = ""
    folder: Path | None = None
    step: Count | None = None
    of: Count | None = None
    cycle: Count | None = None
    cycles: Count | None = 1
    after_s: Seconds | None = None
    for_s: Seconds | None = None
    raw: Path | None = None
    expected: Count | None = None
    compressed: Count | None = None
    total: Count | None = None
    choices: Choices = {}  # msgspec makes a new one for each message

    @property
    def text(self) -> str:
        """The phase in words: ``recording, step 2 of 3``."""
        words = self.phase
        if self.phase == "waiting" and self.after_s:
            words += f" for {self.after_s:g} s"
        elif self.phase == "recording" and self.for_s:
            words += f" for {self.for_s:g} s"
        if self.step:
            words += f", step {self.step}" + (f" of {self.of}" if self.of else "")
        if self.cycle and self.cycles != 1:
            words += f", cycle {self.cycle}" + (f" of {self.cycles}" if self.cycles else "")
        return words


class NamedPipe:
    """A named pipe of one run, in a folder of its own. Raises OSError if the temporary folder takes no pipe."""

    def __init__(self, name: str) -> None:
        self._folder = tempfile.mkdtemp(prefix=f"torchprof-tui-{name}-")
        self._path = os.path.join(self._folder, name)
        try:
            os.mkfifo(self._path, 0o600)
            # Both ends are open in this process: the run can open either one at any time, and the pipe never ends.
            self._read_fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._write_fd = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def close(self) -> None:
        for descriptor in (self._read_fd, self._write_fd):
            os.close(descriptor)
        shutil.rmtree(self._folder, ignore_errors=True)


class StatusChannel(NamedPipe):
    """The named pipe of one run. Start the run with `environment`; call `read()` when `fileno()` is readable."""

    def __init__(self) -> None:
        super().__init__("status")
        self._partial_line = b""
        self.folder: str | None = None  # the run's folder, once it is known

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables to add for the run. With them, it saves and ends when this process ends."""
        return {STATUS_VARIABLE: self._path, PARENT_VARIABLE: str(os.getpid())}

    def fileno(self) -> int:
        return self._read_fd

    def read(self) -> list[StatusMessage]:
        """Read the messages since the last call, at most MAX_READ_BYTES; never blocks."""
        messages = []
        for line in self._read_lines():
            with contextlib.suppress(UnreadableFileError):  # a line that the recorded program itself wrote to the pipe
                messages.append(decode_typed_json(line, StatusMessage, "status"))
        for message in messages:
            if message.folder is not None and os.path.isabs(message.folder):
                self.folder = message.folder
        return messages

    def _read_lines(self) -> Iterator[bytes]:
        """Yield whole lines; a line longer than MAX_LINE_BYTES is skipped."""
        remaining = MAX_READ_BYTES
        with contextlib.suppress(BlockingIOError):
            while remaining > 0 and (chunk := os.read(self._read_fd, 1 << 16)):
                remaining -= len(chunk)
                *lines, end = (self._partial_line + chunk).split(b"\n")
                self._partial_line = end[: MAX_LINE_BYTES + 1]  # enough to see that it is too long
                yield from (line for line in lines if len(line) <= MAX_LINE_BYTES)


EXPORTING = "exporting"
TABULATING = "tabulating"
SAVING_PHASES = (EXPORTING, TABULATING)  # phases in which the recording is written
MIN_TABLE_SECONDS = 1.0  # seconds until torch's table is worth a line: that of a small trace takes less
MIN_RATE_SECONDS = 0.5  # seconds of writing before its rate is known well enough to estimate the time left


class SaveProgress:
    """Progress of the saves of one run, with the time left. Pass it every status message of rank 0.

    torch does not report how far it is with its JSON, so the size of the file that it writes is read from the disk; how
    large it will be is known from the step that the recorder measured. How much it has compressed the recorder reports.
    """

    def __init__(self) -> None:
        self._message: StatusMessage | None = None  # the last one, while a trace is saved
        self._started_at: float | None = None  # time.monotonic() of this stage's first byte or text
        self._stage: tuple[object, ...] = ()

    def update(self, message: StatusMessage) -> None:
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
        if message.phase == TABULATING:  # torch does not report how far its table is
            now = time.monotonic() if now is None else now
            self._started_at = now if self._started_at is None else self._started_at
            seconds = now - self._started_at
            return "" if seconds < MIN_TABLE_SECONDS else f"torch's table: {seconds:.0f} s so far, ctrl+c skips it"
        total, expected = message.total, message.expected
        if total is not None:
            done = message.compressed or 0
            return f"compressing: {_megabytes(done)} of {_megabytes(total)} MB" + self._time_left(done, total, now)
        if message.raw is None:
            return ""
        done = 0  # bytes; since torch 2.13 the file has a suffix until it is complete
        for name in (f"{message.raw}.tmp", message.raw):
            with contextlib.suppress(OSError, ValueError):
                done = os.path.getsize(name)
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
        left = seconds * (total - done) / done
        return f", {max(1, round(left))} s left" if left < 60 else f", {round(left / 60)} min left"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f}" if count >= 10_000_000 or not count else f"{count / 1e6:.1f}"
