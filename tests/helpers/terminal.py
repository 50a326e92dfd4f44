"""A terminal for tests: a program behind a pty, what is on its screen, keys to send."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Sequence
from pathlib import Path

import pyte

PATIENCE_SECONDS = 240.0
"""How long a screen may take on a busy machine before a test gives up; no test is about time."""

_UNKNOWN = re.compile(rb"\x1b\[[<=>][0-9;]*[a-zA-Z]|\x1b\[\?[0-9;]*\$p|\x1b\[\?u|\x1bP[^\x1b]*\x1b\\")
"""Questions to modern terminals, which pyte would print: the answers are never waited for."""


class Terminal:
    """`with Terminal(command) as terminal:` runs it; `terminal.wait_for("text")` returns the screen."""

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
        self._rest = b""
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            if pipe is not None:
                os.dup2(pipe, 0)
            if folder is not None:
                os.chdir(folder)
            os.execvpe(command[0], list(command), {**os.environ, "TERM": "xterm-256color", **environment})
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass  # it has ended, as it should
        os.close(self._master)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)

    def send(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, *words: str, gone: bool = False) -> str:
        """The screen, when it shows all of the words (none of them: `gone`)."""
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            if all((word in self.text) is not gone for word in words):
                return self.text
            self._read(0.1)
        raise AssertionError(f"waited in vain for {words}; the screen is\n{self.text}")

    def wait_for_end(self) -> int:
        """The program's exit status."""
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            self._read(0.1)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                while self._read(0.1):
                    pass
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"it does not end; the screen is\n{self.text}")

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # Linux's way to say that the other side has closed
            return False
        if not data:
            return False
        # A question that is cut in two by the read must still be recognised.
        data = self._rest + data
        cut = data.rfind(b"\x1b", -40)
        data, self._rest = (data[:cut], data[cut:]) if cut > 0 and not _ends(data[cut:]) else (data, b"")
        self._stream.feed(_UNKNOWN.sub(b"", data))
        return True


def _ends(sequence: bytes) -> bool:
    """Whether an escape sequence is complete; text may follow it."""
    return (
        re.match(rb"\x1b(?:\[[0-9;<=>?$]*[a-zA-Z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|P[^\x1b]*\x1b\\|[^\[\]P])", sequence)
        is not None
    )
