"""Run the program in a real terminal, and check that it gives the terminal back as it was."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import time

from tests.hostile.cases import TerminalCase
from tests.hostile.oracle import FindingError
from tests.hostile.world import build_world
from torchprof_tui.trace.core.readable import wait_until_readable

SECONDS = 300
"""A session of a few keys that takes longer hangs."""

QUIET_SECONDS = 0.7
"""The first frame is complete, or waits for something, when nothing was written for this time."""

PAIRS = ((b"\x1b[?1049h", b"\x1b[?1049l"), (b"\x1b[?25l", b"\x1b[?25h"), (b"\x1b[?1000h", b"\x1b[?1000l"))
"""Modes of the terminal that are set and reset: alternate screen, hidden cursor, mouse."""

FORBIDDEN = (b"\x1b]0;", b"\x1b]2;", b"\x1b[2J\x07", b"\x1b[31mEVIL", b"\xc2\x9b")
"""Sequences in hostile names that must not reach the terminal; the program writes none of them itself."""


def run_terminal_case(case: TerminalCase) -> tuple[int, bytes]:
    """Run one session in a terminal of its own. Returns (the exit status, what it wrote). Raises FindingError."""
    with build_world(case.inputs, named_outputs=True):
        master, slave = os.openpty()
        try:
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", case.size[1], case.size[0], 0, 0))
            before = termios.tcgetattr(slave)
            process = subprocess.Popen(
                [sys.executable, "-c", _START, *case.words], stdin=slave, stdout=slave, stderr=slave, bufsize=0
            )
            try:
                written = _exchange(process, master, case.keys)
            finally:
                process.kill()
                process.wait()
            _check(written, process.returncode)
            if termios.tcgetattr(slave)[:4] != before[:4]:
                raise FindingError("the terminal's modes are not what they were before")
            return process.returncode, written
        finally:
            os.close(master)
            os.close(slave)


_START = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from pathlib import Path
from torchprof_tui.trace.core.readable import wait_until_readable
from torchprof_tui.cli import main
from torchprof_tui.runs import recording_request
recording_request.HARNESS = Path(os.environ["HOSTILE_HARNESS"])
sys.exit(main())
"""


def _exchange(process: subprocess.Popen[bytes], master: int, keys: bytes) -> bytes:
    """Read until the program ends; send the keys when it is quiet, then `q` and ctrl+c. Returns what it wrote.

    Not before the app is on the screen: until then, ctrl+c is a signal.
    """
    written = bytearray()
    pending = [keys, b"\x1b", b"q", b"\x03", b"\x03"]
    deadline = time.monotonic() + SECONDS
    last = time.monotonic()
    while time.monotonic() < deadline:
        if wait_until_readable([master], 0.1):
            written += os.read(master, 65536)
            last = time.monotonic()
        elif process.poll() is not None:
            return bytes(written)
        elif pending and PAIRS[0][0] in written and time.monotonic() - last > QUIET_SECONDS:
            os.write(master, pending.pop(0))
            last = time.monotonic()
    raise FindingError(f"the session does not end within {SECONDS} s")


def _check(written: bytes, status: int) -> None:
    # On a slow machine the last ctrl+c comes when the screen is given back already, and is a signal again.
    if status not in (0, 1, 2, 130, -signal.SIGINT):
        raise FindingError(f"exit status {status}: {written[-200:]!r}")
    if b"Traceback (most" in written or b"crashed (" in written:
        raise FindingError(f"a traceback on the terminal: {written[-400:]!r}")
    for begin, end in PAIRS:
        if written.rfind(begin) > written.rfind(end):
            raise FindingError(f"{begin!r} is not undone")
    for sequence in FORBIDDEN:
        if sequence in written:
            around = written[max(written.index(sequence) - 60, 0) :][:120]
            raise FindingError(f"{sequence!r} reached the terminal: {around!r}")
    if re.search(rb"EVIL\x07|\x9b2J", written):
        raise FindingError("a control byte of a name reached the terminal")
