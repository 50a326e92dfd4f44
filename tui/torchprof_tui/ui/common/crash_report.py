"""Report a bug of the app: one line on stderr, and a report that can be sent."""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Sequence

from textual.worker import WorkerFailed


def print_crash(error: BaseException, details: Sequence[str] = ()) -> None:
    """Print one line about an error that ended the app, and write the report. `details`: lines about the screen."""
    if isinstance(error, WorkerFailed):  # does not say where the worker failed
        error = error.error
    # Imported by name: only a program that has failed needs it.
    line = importlib.import_module("torchprof_tui.program.crash_report").report_crash(error, details)
    print(f"torchprof-tui: {line}", file=sys.stderr)


def write_log(text: str) -> str:
    """Write details to a new temporary file; return its path."""
    with tempfile.NamedTemporaryFile("w", prefix="torchprof-tui-", suffix=".log", delete=False) as log:
        log.write(text)
    return log.name
