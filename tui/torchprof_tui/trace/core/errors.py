"""Define the errors that reading a trace raises."""

from __future__ import annotations

import errno
import os

NOT_A_TRACE = "not a trace"  # in the line about a file that could be read and holds something else

DAMAGED_CACHE_MESSAGE = "the cache entry was damaged; the trace was read again"

QUOTES = "TORCHPROF_TUI_QUOTES"
"""Environment variable, which worker processes inherit: "0" where errors may not quote files that are no traces."""


class TraceError(ValueError):
    """The input is not a trace or cannot be read at all. `str()` is one line for the user."""


class NotThereError(TraceError):
    """The trace was read, and does not have what was asked for: one line, with `--debug` too."""


def quote_file(text: str, otherwise: str = "") -> str:
    """Return a part of an error that quotes a file that is no trace; `otherwise` where nothing may be quoted."""
    return otherwise if os.environ.get(QUOTES) == "0" else text


class ExtensionError(ValueError):
    """An extension cannot be used. `str()` is one line for the user: which, of which package, and why."""


class UnreadableFileError(ValueError):
    """A small file (manifest, request, recent traces …) is damaged or of another type. `str()` is one line."""


DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors that mean that a file cannot grow


class TraceChangedError(LookupError):
    """The text of an entry is no longer what it was when the trace was opened. `str()` is one line for the user."""


class ConnectionLostError(Exception):
    """The connection ended before the data did; `str()` is the reason. The bytes received before are valid."""


def is_expected(error: BaseException) -> bool:
    """Return whether an error is about the input or the machine, so that its line is all there is to say."""
    known = (TraceError, TraceChangedError, ExtensionError, UnreadableFileError, ConnectionLostError)
    return isinstance(error, (*known, OSError, MemoryError)) or "start new thread" in str(error)


def format_error(error: BaseException) -> str:
    """Format an error as one line for the user. The text of errors for the user is used as it is."""
    if isinstance(error, (TraceError, TraceChangedError, ExtensionError)):
        return " ".join(str(error).split())
    # Python cannot start a thread where there is no address space for its stack.
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "start new thread" in str(error)):
        return "not enough memory to read this trace"
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return "too many open files; raise the limit of the shell (ulimit -n 65536) and try again"
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return f"{name}{error.strerror or error}"
    return f"could not read the trace ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
