"""Terminal for tests: run a program in a pty, send keys, and read its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import termios
import time
from collections.abc import Sequence
from pathlib import Path

import pyte

from tests.helpers.warm_program import fork_program
from torchprof_tui.trace.core.readable import wait_until_readable

TIMEOUT_SECONDS = 240.0
"""Time limit for a screen to appear, long enough for a busy machine; no test measures time."""

_UNSUPPORTED = re.compile(rb"\x1b\[[<=>][0-9;]*[a-zA-Z]|\x1b\[\?[0-9;]*\$p|\x1b\[\?u|\x1bP[^\x1b]*\x1b\\")
"""Queries to modern terminals, which pyte would print; programs do not wait for the answers."""


class Terminal:
    """`with Terminal(command) as terminal:` runs the command; `terminal.wait_for("text")` returns the screen."""

    def __init__(
        self,
        command: Sequence[str],
        columns: int = 120,
        lines: int = 40,
        folder: Path | None = None,
        pipe: int | None = None,
        **environment: str,
    ) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._pending = b""
        variables = {**os.environ, "TERM": "xterm-256color", **environment}
        self._master, slave = pty.openpty()
        self._set_size(columns, lines)
        files = {0: slave if pipe is None else pipe, 1: slave, 2: slave}
        pid = fork_program(command, folder, variables, files, has_terminal=True)
        os.close(slave)
        if pid is None:
            os.close(self._master)
            pid, self._master = pty.fork()
            if pid == 0:
                if pipe is not None:
                    os.dup2(pipe, 0)
                if folder is not None:
                    os.chdir(folder)
                os.execvpe(command[0], list(command), variables)
            self._set_size(columns, lines)
        self.pid = pid

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass  # the process has ended
        os.close(self._master)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def filter(self, data: bytes) -> bytes:
        """Return what the screen shows of the output; for terminals that know more than pyte does."""
        return data

    def send(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def is_raw(self) -> bool:
        """Return whether the program has set the terminal to raw mode: no echo, no line mode."""
        return not termios.tcgetattr(self._master)[3] & (termios.ECHO | termios.ICANON)

    def set_echo(self) -> None:
        """Set echo and line mode, as a shell does while the program is stopped."""
        attributes = termios.tcgetattr(self._master)
        attributes[3] |= termios.ECHO | termios.ICANON
        termios.tcsetattr(self._master, termios.TCSANOW, attributes)

    def hang_up(self) -> None:
        """Close the terminal, as a closed window or a lost connection does."""
        os.close(self._master)
        self._master = os.open(os.devnull, os.O_RDWR)

    def wait_for(self, *words: str, gone: bool = False) -> str:
        """Wait until the screen shows all of the words (`gone`: none of them) and return it."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            if all((word in self.text) is not gone for word in words):
                return self.text
            self._read(0.1)
        raise AssertionError(f"{words} did not appear (or vanish) in time; the screen is\n{self.text}")

    def wait_for_end(self) -> int:
        """Wait until the program ends and return its exit status."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            self._read(0.1)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                while self._read(0.1):
                    pass
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"the program does not end; the screen is\n{self.text}")

    def wait_until_stopped(self) -> None:
        """Wait until the program has suspended itself."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            self._read(0.1)
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid:
                assert os.WIFSTOPPED(status), status
                return
        raise AssertionError(f"the program does not stop; the screen is\n{self.text}")

    def _read(self, seconds: float) -> bool:
        if not wait_until_readable([self._master], seconds):
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # on Linux: the other side has closed
            return False
        if not data:
            return False
        data = self.filter(data)
        # Keep an escape sequence that the read cut in two, so that a query is still recognized.
        data = self._pending + data
        cut = data.rfind(b"\x1b", -40)
        data, self._pending = (data[:cut], data[cut:]) if cut > 0 and not _is_complete(data[cut:]) else (data, b"")
        self._stream.feed(_UNSUPPORTED.sub(b"", data))
        return True


def _is_complete(sequence: bytes) -> bool:
    """Return whether the escape sequence at the start is complete; text may follow it."""
    return (
        re.match(rb"\x1b(?:\[[0-9;<=>?$]*[a-zA-Z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|P[^\x1b]*\x1b\\|[^\[\]P])", sequence)
        is not None
    )
