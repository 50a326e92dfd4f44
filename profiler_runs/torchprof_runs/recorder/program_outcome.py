"""Exit status and traceback of the program, as Python itself would show them."""

from __future__ import annotations

import os
import sys
from types import TracebackType

_OWN_FILES = tuple(
    os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    for name in ("recording_session.py", "target_program.py")
)


def exit_status(code: object) -> int:
    """Return the exit status that Python derives from SystemExit's code."""
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def format_exit_status(status: int | None) -> str:
    """Format `status` as a suffix to the reason why a run ended; "" if that implies it."""
    return "" if status is None or status < 0 else f", exit status {status}"


def print_exception(error: BaseException) -> None:
    """Print an uncaught exception as Python does, through the program's own hook, without the recorder's frames."""
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename in _OWN_FILES:
        traceback = traceback.tb_next
    error = error.with_traceback(traceback)
    try:
        sys.excepthook(type(error), error, traceback)
    except Exception:  # the hook failed; Python then prints the exception itself
        sys.__excepthook__(type(error), error, traceback)
