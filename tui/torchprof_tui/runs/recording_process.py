"""One run while it goes on: its process in a pseudo-terminal of its own, what it prints, and its end.

The terminal is also what keeps orphans away: when this program ends, however that is, the kernel hangs it up, and every
process of the run is told; so is what the run leaves behind when it ends itself. (On Linux it is besides sent SIGTERM:
`torchprof_runs.recorder.status_messages`.) Call `start` from the main thread, because on Linux the run ends with the
thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
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
from torchprof_tui.runs.recording_request import RecordingRequest
from torchprof_tui.runs.run_result import RunResult, read_result
from torchprof_tui.runs.status_channel import StatusChannel, StatusMessage

BUFFER_BYTES = 64 * 1024
"""Of what was printed since the last look: some 20 screens of it, and no more than a look can take in."""

OVERFLOW_BYTES = 16 * 1024
"""… and where it was more than that, which nobody reads while it goes on: the end of it has KEPT_BYTES again."""

SWITCH_INTERVAL_SECONDS = 0.0005
"""How long the reader may wait for a thread that computes. A terminal holds 4 KB, and then the program waits for us,
which would be seen in its trace: at Python's own 5 ms that is at less than a megabyte a second.
"""

KILL_DELAY_SECONDS = 3.0
"""After a second ctrl+c, until the run is killed. One that saves for the first time then has all the time it takes."""

SAVING_PHASES = ("exporting", "tabulating")
"""Phases in which what was recorded is written."""

CLOSE_TIMEOUT_SECONDS = 2.0
"""How long this program waits for a run at its own end. What takes longer to save is saved after it."""

DRAIN_SECONDS = 0.5
"""After the end, for what was printed last; a child of the run may hold the terminal open for ever."""

OUTPUT_FILE = "output.txt"

_READ_BYTES = 65536

# Its terminal becomes the controlling one, which only the process itself can ask for. Under our own interpreter and
# before theirs, because Python code between fork and exec may hang where there are threads.
_EXEC_SHIM = """
import fcntl, os, sys, termios
fcntl.ioctl(1, termios.TIOCSCTTY, 0)
try:
    os.execvp(sys.argv[1], sys.argv[1:])
except OSError as error:
    sys.exit(f"{sys.argv[1]}: {error.strerror}")
"""


class Recording:
    """`request` being recorded in `cwd`. After `start`, call `look` some 20 times a second until `ended`."""

    def __init__(self, request: RecordingRequest, cwd: str | None = None) -> None:
        self.request = request
        self.cwd = os.path.abspath(cwd or os.getcwd())
        self.phase: StatusMessage | None = None  # of the first rank
        self.last_log = ""
        self.interrupts = 0
        self.save_abandoned = False  # a second ctrl+c came while it saved
        self._channel = StatusChannel()
        self._process: subprocess.Popen[bytes] | None = None
        self._output: _OutputReader | None = None
        self._master = -1
        self._status: int | None = None
        self._start_time = self._end_time = self._kill_at = 0.0
        self._request_saved = False

    # -- its life ------------------------------------------------------------------------------------------

    def start(self, columns: int, lines: int, environment: Mapping[str, str] | None = None) -> None:
        """Raises RequestError where it cannot be recorded, OSError where it cannot be started."""
        argv = self.request.argv(environment)
        theirs = {**(os.environ if environment is None else environment), **self._channel.environment}
        theirs["TERM"] = "xterm-256color"
        for name in ("COLUMNS", "LINES"):  # of the terminal that we are in
            theirs.pop(name, None)
        self._master, slave = os.openpty()
        try:
            self.resize(columns, lines)
            self._process = subprocess.Popen(
                [sys.executable, "-ISc", _EXEC_SHIM, *argv],
                env=theirs,
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,  # nobody could answer: a question ends in an error and not in waiting
                stdout=slave,
                stderr=slave,
                start_new_session=True,
            )
        finally:
            os.close(slave)
        self._start_time = time.monotonic()
        self._output = _OutputReader(self._master)

    def poll(self) -> tuple[bytes, int]:
        """What it printed since the last look, and how many lines of it were dropped before that: see KEPT_BYTES."""
        for said in self._channel.read():
            if said.phase and said.rank == 0:
                self.phase = said
            self.last_log = said.log or self.last_log
        if self._channel.folder is not None and not self._request_saved:
            self._request_saved = True
            save_request(self._channel.folder, self.request, self.cwd)
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
                self._send_signal(signal.SIGTERM)  # what it started goes with it
            self._status = self._process.returncode

    @property
    def has_ended(self) -> bool:
        """It has, and the `look` that found out had the last that it printed."""
        return self._status is not None

    @property
    def is_saving(self) -> bool:
        """Whether it writes what was recorded."""
        return self.phase is not None and self.phase.phase in SAVING_PHASES

    @property
    def seconds(self) -> float:
        if not self._start_time:
            return 0.0
        return (self._end_time or time.monotonic()) - self._start_time

    @property
    def folder(self) -> str | None:
        return self._channel.folder

    def result(self) -> RunResult:
        """What it left. Once it has ended."""
        assert self._status is not None
        return read_result(self._channel.folder, self._status, self.seconds, self.request.command)

    def save_output(self, text: str) -> None:
        """Leave what it printed beside what it recorded, if it got that far."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                Path(self.folder, OUTPUT_FILE).write_text(text, encoding="utf-8")

    # -- what one does to it -------------------------------------------------------------------------------

    def resize(self, columns: int, lines: int) -> None:
        """Its terminal is so large from now on; programs are told by SIGWINCH."""
        if self._master >= 0 and columns > 0 and lines > 0:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def stop(self) -> None:
        """Ctrl-C: the first saves what was recorded, the second gives that up, and what still runs then is killed.

        A program may catch the first and go on. There the second is a SIGTERM, at which it saves and ends.
        """
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
        """Be done with it. Where it still runs it is told to end and waited for a little; it saves, with us or after
        us: it holds back signals meanwhile, but for a second SIGINT.
        """
        if self._process is not None and self._process.poll() is None:
            if not self.interrupts:
                self.interrupts = 1
                self._send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSE_TIMEOUT_SECONDS)
            self.poll()  # where its folder is
            if self._process.poll() is None:
                self._send_signal(signal.SIGTERM)
        if self._output is not None:
            self._output.close()
            self._output = None
        if self._master >= 0:
            os.close(self._master)  # hangs up
            self._master = -1
            self._channel.close()

    def _send_signal(self, signum: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signum)


class _OutputReader:
    """Reads the terminal in a thread, so that the program never waits for our painting; keeps the last of it."""

    def __init__(self, master: int) -> None:
        self._master = master
        self._wake_read_fd, self._wake_write_fd = os.pipe()
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._dropped_lines = 0
        self.at_eof = False
        self._previous_switch_interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
        self._thread = threading.Thread(target=self._read_loop, name="run-output", daemon=True)
        self._thread.start()

    def _read_loop(self) -> None:
        while True:
            ready, _, _ = select.select([self._master, self._wake_read_fd], [], [])
            if self._wake_read_fd in ready:
                return
            try:
                chunk = os.read(self._master, _READ_BYTES)
            except OSError:  # Linux's way to say that the other side has closed
                chunk = b""
            if not chunk:
                self.at_eof = True
                return
            with self._lock:
                self._buffer += chunk
                if len(self._buffer) > 2 * BUFFER_BYTES:
                    self._trim(BUFFER_BYTES)

    def _trim(self, size: int) -> None:
        """To so many bytes, from the beginning of a line on."""
        excess = len(self._buffer) - size
        if excess > 0:
            cut = self._buffer.find(b"\n", excess) + 1 or excess
            self._dropped_lines += self._buffer.count(b"\n", 0, cut)
            del self._buffer[:cut]

    def drain(self, last: bool) -> tuple[bytes, int]:
        """(what was printed since the last time, lines dropped before it)."""
        with self._lock:
            flood = len(self._buffer) > BUFFER_BYTES or self._dropped_lines
            self._trim(OVERFLOW_BYTES if flood and not last else BUFFER_BYTES)
            taken = bytes(self._buffer), self._dropped_lines
            self._buffer.clear()
            self._dropped_lines = 0
        return taken

    def close(self) -> None:
        os.write(self._wake_write_fd, b"x")
        self._thread.join()
        sys.setswitchinterval(self._previous_switch_interval)
        os.close(self._wake_read_fd)
        os.close(self._wake_write_fd)
