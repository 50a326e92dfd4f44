"""End a command by SIGTERM or SIGHUP as Ctrl-C does: with cleanup, and with the exit status 128 + n that shells report.

Standard library only: imported before the command is known.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """Raise SystemExit(128 + n) in the main thread on these signals; one that is ignored (nohup) stays ignored."""
    with contextlib.suppress(ValueError):  # called in another thread, which cannot set handlers
        for number in _SIGNALS:
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, _exit)
    try:
        yield
    finally:
        for number in _SIGNALS:
            if signal.getsignal(number) == _exit:
                signal.signal(number, signal.SIG_DFL)


def _exit(number: int, _: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
    raise SystemExit(128 + number)
