"""How a program ended: its exit status, and its exception shown as Python shows it."""

from __future__ import annotations

import os
import sys
from types import TracebackType

_OWN_FILES = tuple(
    os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    for name in ("recording_session.py", "target_program.py")
)


def exit_status(code: object) -> int:
    """The exit status that Python makes of SystemExit's code."""
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def format_exit_status(status: int | None) -> str:
    """`status` as an addition to how a run ended; nothing where that says it already."""
    return "" if status is None or status < 0 else f", exit status {status}"


def print_exception(error: BaseException) -> None:
    """Print an uncaught exception as Python does, through the program's own hook, without our frames above its own."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in _OWN_FILES:
        trace = trace.tb_next
    error = error.with_traceback(trace)
    try:
        sys.excepthook(type(error), error, trace)
    except Exception:  # a hook that fails: Python then shows the exception itself
        sys.__excepthook__(type(error), error, trace)
