"""Run a command in the process as its caller has set it up, and leave nothing behind.

stdin, stdout and stderr may be closed, or have an encoding that lacks some characters. SIGTERM and SIGHUP end a command
as Ctrl-C does, with cleanup and the exit status 128 + n that shells report. Cache entries that it opened are closed,
for a process that calls several commands. Standard library only: imported before the command is known.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

SUBSTITUTES = str.maketrans("µμ…·•–—−→←×│─█▌░", "uu.-----><x|-##.")
"""Characters that the program prints often, each with one ASCII character, so that columns stay aligned."""

_HANDLER = "torchprof_tui.substitute"


def replace_closed_streams() -> None:
    """Open /dev/null in place of streams that are closed (`>&-`), so that no file of the program takes their numbers.

    Input is empty then, and messages are lost; to write the answer to a closed stdout fails, as it should.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            descriptor = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
        mode = "r" if name == "stdin" else "w"
        setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  (for the whole run)


def drop_unwritten_output() -> None:
    """Drop what stdout and stderr cannot take: Python would fail again when it flushes at exit, with status 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def is_stdout_error(error: Exception) -> bool:
    """Return whether an error is that stdout cannot be written: it still cannot."""
    if not isinstance(error, OSError) or error.filename is not None:
        return False
    try:
        sys.stdout.flush()
    except OSError as again:
        return again.errno == error.errno
    return False


def tolerate_encoding() -> None:
    """Substitute what stdout and stderr cannot encode, where they are not UTF-8; Python raises UnicodeEncodeError."""
    codecs.register_error(_HANDLER, _substitute)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and not (stream.encoding or "").lower().replace("-", "").startswith("utf"):
            reconfigure(errors=_HANDLER)


def _substitute(error: UnicodeError) -> tuple[str, int]:
    """Return the substitute of the characters that cannot be encoded, and where to go on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(SUBSTITUTES)
    return "".join(c if c.isascii() else "?" for c in text), error.end


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
