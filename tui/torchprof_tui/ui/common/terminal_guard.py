"""Restore the terminal after a program that had no time to: killed for lack of memory, or by a mapped file cut short.

No handler runs on SIGKILL. On SIGBUS, Python's own would return to the instruction that failed, again and again. So a
small shell waits for the end of this process, in a session of its own, where no signal to the job reaches it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import Any

RESET_MODES = "".join(f"\\033[?{mode}l" for mode in (1000, 1002, 1003, 1006, 1015, 1016, 1004, 2004, 2026, 2048, 1049))
"""No mouse, no focus reports, no bracketed paste, the usual screen; written as `printf` reads them."""

KILLED_LINE = "torchprof-tui: the program was killed: out of memory, or a cached file was cut short while open"

_CANCEL = "\\030"
"""Ends a control sequence that the program was killed in the middle of, which would swallow the first mode."""

# The word arrives when the terminal has been restored; without it, the pipe was closed by the end of the program.
_SCRIPT = f"""
trap '' HUP INT TERM
read -r word
[ "$word" = restored ] && exit
stty "$1" <&1 || stty sane <&1
printf '{_CANCEL}{RESET_MODES}\\033[<u\\033[?7h\\033[?25h\\033[0m\\r\\n%s\\r\\n' "$2"
"""

_END_SECONDS = 1.0


class TerminalGuard:
    """One shell, from the moment that the terminal is raw to the moment that it is not."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, output: int, attributes: list[Any] | None) -> None:
        """Guard the terminal that `output` is; `attributes`: its modes before, as `termios.tcgetattr` returns them."""
        self.stop()
        if not os.isatty(output):
            return
        modes = "sane" if attributes is None else format_modes(attributes)
        with contextlib.suppress(OSError):  # without a shell, or another process, the terminal is not guarded
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "torchprof-tui-guard", modes, KILLED_LINE],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def stop(self) -> None:
        """End the shell: the terminal is restored."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            process.communicate(b"restored\n", timeout=_END_SECONDS)


def format_modes(attributes: list[Any]) -> str:
    """Format terminal attributes as `stty -g` does on Linux: hexadecimal numbers, separated by colons."""
    characters = [ord(value) if isinstance(value, bytes) else value for value in attributes[6]]
    return ":".join(f"{number:x}" for number in [*attributes[:4], *characters])
