"""One run while it goes on: its process in a pseudo-terminal of its own, its output, and its end.

The terminal also prevents orphans: when the viewer ends, for whatever reason, the kernel hangs the terminal up and
sends SIGHUP to every process of the run. The same happens to processes that the run leaves behind when it ends. (On
Linux the run gets SIGTERM besides: `torchprof_runs.recorder.status_messages`.) Call `start` from the main thread,
because on Linux the run ends when the thread that started it ends.

`torchprof_runs.recorder.status_messages` describes the questions.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from torchprof_tui.runs.history import save_request
from torchprof_tui.runs.recording_request import RecordingRequest, remember_interpreter
from torchprof_tui.runs.run_result import RunResult, read_result
from torchprof_tui.runs.status_channel import (
    SAVING_PHASES,
    TABULATING,
    NamedPipe,
    SaveProgress,
    StatusChannel,
    StatusMessage,
)
from torchprof_tui.trace.core.process_state import use_switch_interval
from torchprof_tui.trace.core.readable import wait_until_readable
from torchprof_tui.trace.core.user_files import make_absolute

ANSWERS_VARIABLE = "TORCHPROF_ANSWERS"


class AnswerPipe(NamedPipe):
    """The pipe of one run. Start the run with `environment`; call `send` when it asks."""

    def __init__(self) -> None:
        super().__init__("answers")

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables to add for the run, which then asks the app and not the terminal."""
        return {ANSWERS_VARIABLE: self._path}

    def send(self, answer: str) -> None:
        """Send one character; it is dropped if the pipe is full."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._write_fd, answer.encode("ascii"))


BUFFER_BYTES = 64 * 1024  # output kept between two polls: about 20 screens, and no more than one poll can process
OVERFLOW_BYTES = 16 * 1024
"""Output kept if more than BUFFER_BYTES was printed, too fast to read; after the run's end it is BUFFER_BYTES again."""

SWITCH_INTERVAL_SECONDS = 0.0005
"""Python's thread switch interval while a run goes on, so that the reader thread need not wait long for the GIL.

A terminal buffers 4 KB; when it is full the program blocks, which would show in its trace. With Python's own interval
of 5 ms that happens at less than a megabyte per second.
"""

KILL_DELAY_SECONDS = 3.0
"""Seconds from the second ctrl+c until the run is killed. A run that begins to save only then is not killed."""

CLOSE_TIMEOUT_SECONDS = 2.0
"""Seconds that the viewer waits at its own end for a run to end. A run that takes longer saves on its own."""

DRAIN_SECONDS = 0.5
"""Seconds to read the last output after the run's end; a child process may keep the terminal open for ever."""

OUTPUT_FILE = "output.txt"

MAX_TERMINAL_CELLS = 65_535  # columns or lines of a terminal; the kernel stores each in 16 bits

_READ_BYTES = 65536

# Make the terminal the run's controlling terminal, which only the process itself can do. This runs in the viewer's
# interpreter before it executes the user's, because Python code between fork and exec may hang if there are threads.
_EXEC_SHIM = """
import fcntl, os, sys, termios
fcntl.ioctl(1, termios.TIOCSCTTY, 0)
try:
    os.execvp(sys.argv[1], sys.argv[1:])
except OSError as error:
    sys.exit(f"{sys.argv[1]}: {error.strerror}")
"""


class Recording:
    """The process that records `request` in `cwd`. After `start`, call `poll` about 20 times a second until it ends."""

    def __init__(self, request: RecordingRequest, cwd: str | None = None) -> None:
        self.request = request
        self.cwd = make_absolute(cwd or ".")
        self.phase: StatusMessage | None = None  # the last one of rank 0
        self.last_log = ""
        self.interrupts = 0
        self.table_skipped = False  # ctrl+c was sent while torch made its table
        self.save_abandoned = False  # a second ctrl+c was sent while the run was saving
        self._channel: StatusChannel | None = None
        self._answers: AnswerPipe | None = None
        self._progress = SaveProgress()
        self._is_answered = False  # the current question
        self._process: subprocess.Popen[bytes] | None = None
        self._output: _OutputReader | None = None
        self._master = -1
        self._status: int | None = None
        self._start_time = self._end_time = self._kill_at = 0.0
        self._request_saved = False
        self._interpreter = ""

    # -- start, output, end --------------------------------------------------------------------------------

    def start(self, columns: int, lines: int, environment: Mapping[str, str] | None = None) -> None:
        """Start the process in a terminal of this size.

        Raises RequestError if the request cannot be recorded, OSError if the process cannot be started.
        """
        argv = self.request.argv(environment)
        self._interpreter = argv[0]
        self._channel, self._answers = StatusChannel(), AnswerPipe()
        run_environment = {
            **(os.environ if environment is None else environment),
            **self._channel.environment,
            **self._answers.environment,
            **self.request.search_environment(environment),
        }
        run_environment["TERM"] = "xterm-256color"
        for name in ("COLUMNS", "LINES"):  # these describe the viewer's own terminal
            run_environment.pop(name, None)
        self._master, slave = os.openpty()
        try:
            self.resize(columns, lines)
            self._process = subprocess.Popen(
                [sys.executable, "-ISc", _EXEC_SHIM, *argv],
                env=run_environment,
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,  # the user cannot answer, so reading input must fail instead of blocking
                stdout=slave,
                stderr=slave,
                start_new_session=True,
            )
        finally:
            os.close(slave)
        self._start_time = time.monotonic()
        self._output = _OutputReader(self._master)

    def poll(self) -> tuple[bytes, int]:
        """Return the output since the last poll and the number of lines dropped before it (see BUFFER_BYTES)."""
        for message in self._channel.read() if self._channel is not None else ():
            if message.phase and message.rank == 0:
                self.phase = message
                self._progress.update(message)
                self.table_skipped = self.table_skipped and message.phase == TABULATING
                self._is_answered = False
            self.last_log = message.log or self.last_log
        if self.folder is not None and not self._request_saved:
            self._request_saved = True
            save_request(self.folder, self.request, self.cwd)
        self._detect_end()
        return self._output.drain(last=self.has_ended) if self._output is not None else (b"", 0)

    def _detect_end(self) -> None:
        if self._process is None or self._status is not None:
            return
        if self._kill_at and time.monotonic() > self._kill_at and (self.save_abandoned or not self.is_saving):
            self._send_signal(signal.SIGKILL)
        if not self._end_time and self._process.poll() is not None:
            self._end_time = time.monotonic()
        if self._end_time and (
            self._output is None or self._output.at_eof or time.monotonic() - self._end_time > DRAIN_SECONDS
        ):
            if self.interrupts:
                self._send_signal(signal.SIGTERM)  # end the processes that the run started, too
            self._status = self._process.returncode

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended and the last poll returned the rest of its output."""
        return self._status is not None

    @property
    def is_saving(self) -> bool:
        """Whether the run is writing its recording."""
        return self.phase is not None and self.phase.phase in SAVING_PHASES

    @property
    def phase_text(self) -> str:
        """What the run does, in words; while it saves, how far it is."""
        if self.phase is None:
            return "starting"
        return self._progress.text() or self.phase.text

    @property
    def choices(self) -> Mapping[str, str]:
        """The answers that the run waits for → what they do; empty if it waits for none."""
        if self.phase is None or self.phase.phase != "asking" or self._is_answered or self.has_ended:
            return {}
        return self.phase.choices

    def answer(self, key: str) -> None:
        """Answer the question of the run with one of its `choices`; does nothing for another key."""
        if key in self.choices and self._answers is not None:
            self._is_answered = True
            self._answers.send(key)

    @property
    def seconds(self) -> float:
        if not self._start_time:
            return 0.0
        return (self._end_time or time.monotonic()) - self._start_time

    @property
    def folder(self) -> str | None:
        return self._channel.folder if self._channel is not None else None

    def result(self) -> RunResult:
        """Read what the run saved, once it has ended."""
        assert self._status is not None
        result = read_result(self.folder, self._status, self.seconds, self.request.command)
        if result.traces:
            remember_interpreter(self._interpreter)
        return result

    def save_output(self, text: str) -> None:
        """Write the run's output to its folder, if it has one."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                Path(self.folder, OUTPUT_FILE).write_text(text, encoding="utf-8", errors="replace")

    # -- control -------------------------------------------------------------------------------------------

    def resize(self, columns: int, lines: int) -> None:
        """Resize the run's terminal; the program gets SIGWINCH."""
        if self._master >= 0 and columns > 0 and lines > 0:
            size = struct.pack("HHHH", min(lines, MAX_TERMINAL_CELLS), min(columns, MAX_TERMINAL_CELLS), 0, 0)
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def stop(self) -> None:
        """Send Ctrl-C: the first lets the run save, the second abandons the save.

        After KILL_DELAY_SECONDS, or at the third, the run is killed. A program may catch the first Ctrl-C and go on;
        in that case the second is SIGTERM, on which it saves and ends. While torch makes its table the trace is written
        already: a first Ctrl-C skips only the table, and is not counted.
        """
        if self.phase is not None and self.phase.phase == TABULATING and not self.table_skipped:
            self.table_skipped = True
            self._send_signal(signal.SIGINT)
            return
        self.interrupts += 1
        if self.interrupts > 2:
            self._send_signal(signal.SIGKILL)
            return
        if self.interrupts == 2:
            self._kill_at = time.monotonic() + KILL_DELAY_SECONDS
            self.save_abandoned = self.is_saving
            if not self.is_saving:
                self._send_signal(signal.SIGTERM)
                return
        self._send_signal(signal.SIGINT)

    def close(self) -> None:
        """End the run if it still runs, wait for CLOSE_TIMEOUT_SECONDS, and release the terminal.

        The run saves its recording even if that takes longer than the viewer lives: while it saves it ignores all
        signals except a second SIGINT.
        """
        if self._process is not None and self._process.poll() is None:
            if not self.interrupts:
                self.interrupts = 1
                self._send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSE_TIMEOUT_SECONDS)
            if self._master >= 0:  # not closed before
                self.poll()  # to read the run's folder and save the request there
            if self._process.poll() is None:
                self._send_signal(signal.SIGTERM)
        if self._output is not None:
            self._output.close()
            self._output = None
        if self._master >= 0:
            os.close(self._master)  # hangs up
            self._master = -1
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._answers is not None:
            self._answers.close()
            self._answers = None

    def _send_signal(self, signum: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signum)


class _OutputReader:
    """Read the terminal in a thread, so that the program never blocks while the screen is drawn; keep the end of it."""

    def __init__(self, master: int) -> None:
        self._master = master
        self._wake_read_fd, self._wake_write_fd = os.pipe()
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._dropped_lines = 0
        self.at_eof = False
        self._switch_interval = contextlib.ExitStack()
        self._switch_interval.enter_context(use_switch_interval(SWITCH_INTERVAL_SECONDS))
        self._thread = threading.Thread(target=self._read_loop, name="run-output", daemon=True)
        self._thread.start()

    def _read_loop(self) -> None:
        while True:
            ready = wait_until_readable([self._master, self._wake_read_fd])
            if self._wake_read_fd in ready:
                return
            try:
                chunk = os.read(self._master, _READ_BYTES)
            except OSError:  # on Linux: the other side has closed
                chunk = b""
            if not chunk:
                self.at_eof = True
                return
            with self._lock:
                self._buffer += chunk
                if len(self._buffer) > 2 * BUFFER_BYTES:
                    self._trim(BUFFER_BYTES)

    def _trim(self, size: int) -> None:
        """Drop whole lines from the start of the buffer, down to at most `size` bytes."""
        excess = len(self._buffer) - size
        if excess > 0:
            cut = self._buffer.find(b"\n", excess) + 1 or excess
            self._dropped_lines += self._buffer.count(b"\n", 0, cut)
            del self._buffer[:cut]

    def drain(self, last: bool) -> tuple[bytes, int]:
        """Return and clear (the output since the last call, lines dropped before it)."""
        with self._lock:
            has_overflowed = len(self._buffer) > BUFFER_BYTES or self._dropped_lines
            self._trim(OVERFLOW_BYTES if has_overflowed and not last else BUFFER_BYTES)
            drained = bytes(self._buffer), self._dropped_lines
            self._buffer.clear()
            self._dropped_lines = 0
        return drained

    def close(self) -> None:
        os.write(self._wake_write_fd, b"x")
        self._thread.join()
        self._switch_interval.close()
        os.close(self._wake_read_fd)
        os.close(self._wake_write_fd)
