"""Report a bug of the program: one line on stderr, and the traceback in a file that can be sent."""

from __future__ import annotations

import sys
import tempfile
import traceback

from textual.worker import WorkerFailed


def print_crash(error: BaseException) -> None:
    """Print one line about an error that ended the app, and write its traceback to a temporary file."""
    if isinstance(error, WorkerFailed):  # does not say where the worker failed
        error = error.error
    path = write_log("".join(traceback.format_exception(error)))
    name = type(error).__name__
    print(f"torchprof-tui: crashed ({name}); please report it, the details are in {path}", file=sys.stderr)


def write_log(text: str) -> str:
    """Write details to a new temporary file; return its path."""
    with tempfile.NamedTemporaryFile("w", prefix="torchprof-tui-", suffix=".log", delete=False) as log:
        log.write(text)
    return log.name
