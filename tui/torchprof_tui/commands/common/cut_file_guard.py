"""End a command with one line where a mapped file is cut short by another program: a read of the missing part is a
SIGBUS.

Python's own handlers run after the instruction that failed, which never ends: it would fail again and again. A C
function may be called at once, and ctypes makes one of a Python function. It does nothing but write and exit.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from typing import Any

CUT_FILE_LINE = "torchprof-tui: a cached file was cut short while it was read; run the command again"

_kept_handlers: list[Any] = []  # C calls them for as long as the process lives


def guard_mapped_files() -> None:
    """Print one line and exit with the status of a SIGBUS, 128 + its number, should one arrive in this process."""
    if _kept_handlers or not hasattr(signal, "SIGBUS"):
        return
    process = os.getpid()
    line = f"\n{CUT_FILE_LINE}\n".encode()

    def exit_with_line(number: int) -> None:
        if os.getpid() == process:  # a worker process ends without a word: this one explains it
            with contextlib.suppress(OSError):
                os.write(2, line)
        os._exit(128 + number)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(exit_with_line)
    with contextlib.suppress(OSError, AttributeError):  # without it, the shell says "Bus error"
        install = ctypes.CDLL(None).signal
        install.restype = ctypes.c_void_p
        install(int(signal.SIGBUS), handler)
        _kept_handlers.append(handler)
