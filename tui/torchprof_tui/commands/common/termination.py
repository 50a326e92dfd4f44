"""End a command: by SIGTERM or SIGHUP as Ctrl-C does, with cleanup and the exit status 128 + n that shells report; and
with the cache entries closed that it opened, for a process that calls several commands.

Standard library only: imported before the command is known.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

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


@contextlib.contextmanager
def close_command_entries() -> Iterator[None]:
    """Close the cache entries that are opened in this context; those that were open before stay so.

    The cache is not imported for this: a command that opens no trace answers without it.
    """
    before = _find_cache()
    kept = set() if before is None else before.list_open_entries()
    try:
        yield
    finally:
        cache = _find_cache()
        if cache is not None:
            cache.close_entries(keep=kept)


def _find_cache() -> Any:
    """Find the module of the cache, None where it is not imported."""
    return sys.modules.get("torchprof_tui.trace.storage.disk_cache")
