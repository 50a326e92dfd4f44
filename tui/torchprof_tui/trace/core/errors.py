"""Define the errors that reading a trace raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

if TYPE_CHECKING:
    pass


class TraceError(ValueError):
    """This is no trace, or cannot be read at all. `str()` is one clear line for the user."""


class ConnectionLostError(Exception):
    """The bytes stopped before their end, for a reason that `str()` says; what came before is good."""


def format_error(error: BaseException) -> str:
    """One line for the user. A TraceError's text is made for that; the others get a sentence around them."""
    if isinstance(error, TraceError):
        return " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return "not enough memory to read this trace"
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return f"{name}{error.strerror or error}"
    return f"could not read the trace ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
