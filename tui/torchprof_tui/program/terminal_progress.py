"""Tell the terminal how far long work is: its own progress bar (OSC 9;4) and a notification at the end (OSC 9, 777).

Only where stderr is a terminal that reads such sequences; NO_PROGRESS in the environment turns both off.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from torchprof_tui.trace.core.printable import clean

OFF_VARIABLE = "NO_PROGRESS"
"""As NO_COLOR: any value but an empty one turns sequences to the terminal off; lines of text stay."""

DELAY_SECONDS = 0.3  # shorter work shows nothing

REDRAW_SECONDS = 0.25
MAX_TEXT = 200
_UNABLE_TERMINALS = ("", "dumb", "linux", "vt100", "vt220", "unknown")
_TERMINALS_OF_777 = ("foot", "rxvt")  # how TERM begins where notifications are OSC 777; elsewhere they are OSC 9


def can_signal(out: TextIO) -> bool:
    """Return whether sequences about progress may be written to `out`."""
    if os.environ.get(OFF_VARIABLE) or os.environ.get("TERM", "") in _UNABLE_TERMINALS:
        return False
    try:
        return out.isatty()
    except ValueError:  # closed
        return False


def _write_sequence(out: TextIO, body: str) -> None:
    """Write an operating system command; within tmux it is passed through to the terminal around it."""
    sequence = f"\x1b]{body}\x1b\\"
    if os.environ.get("TMUX"):
        sequence = f"\x1bPtmux;{sequence.replace(chr(27), chr(27) * 2)}\x1b\\"
    with contextlib.suppress(OSError, ValueError):
        out.write(sequence)
        out.flush()


class TerminalProgress:
    """The progress bar of the terminal itself. `set` and `clear` do nothing where it has none."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_able = can_signal(out)
        self._last: int | None = None

    def set(self, share: float | None) -> None:
        """Show a share of 0 to 1; None: work of unknown length goes on."""
        percent = -1 if share is None else min(100, max(0, int(share * 100)))
        if self._is_able and percent != self._last:
            self._last = percent
            _write_sequence(self._out, "9;4;3" if percent < 0 else f"9;4;1;{percent}")

    def clear(self) -> None:
        if self._last is not None:
            self._last = None
            _write_sequence(self._out, "9;4;0")


class ReplacedLine:
    """A line of text that is replaced while work goes on, and the progress bar of the terminal."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._bar = TerminalProgress(out)
        self._is_shown = False

    def show(self, text: str, share: float | None) -> None:
        """Show how far the work is, and a share of 0 to 1 in the bar; None: unknown."""
        self._is_shown = True
        self._bar.set(share)
        self._out.write(f"\r{text}, ctrl+c stops\x1b[K")
        self._out.flush()

    def clear(self) -> None:
        """Clear the line and the bar."""
        if self._is_shown:
            self._out.write("\r\x1b[K")
            self._out.flush()
            self._bar.clear()


def notify(text: str, out: TextIO) -> None:
    """Let the terminal show a notification, where it can."""
    if not can_signal(out):
        return
    said = clean(text).replace(";", ",")[:MAX_TEXT]
    term = os.environ.get("TERM", "")
    _write_sequence(out, f"777;notify;torchprof-tui;{said}" if term.startswith(_TERMINALS_OF_777) else f"9;{said}")


@contextlib.contextmanager
def show_work(what: str, out: TextIO | None = None) -> Iterator[None]:
    """Show on a terminal that work goes on, how long it has taken and how to stop it; nothing within DELAY_SECONDS.

    The block must print nothing.
    """
    stream = sys.stderr if out is None else out
    try:
        is_terminal = stream.isatty()
    except ValueError:
        is_terminal = False
    if not is_terminal:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_draw_work, args=(what, stream, ended), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _draw_work(what: str, out: TextIO, ended: threading.Event) -> None:
    started = time.monotonic()
    if ended.wait(DELAY_SECONDS):
        return
    line = ReplacedLine(out)
    with contextlib.suppress(OSError, ValueError):
        while True:
            line.show(f"{clean(what)}: {time.monotonic() - started:.1f} s", None)
            if ended.wait(REDRAW_SECONDS):
                break
    with contextlib.suppress(OSError, ValueError):
        line.clear()
