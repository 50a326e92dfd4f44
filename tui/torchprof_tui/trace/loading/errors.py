"""Errors of a load that failed."""

from __future__ import annotations

from torchprof_tui.trace.specs.address import ListedTrace


class LoadError(Exception):
    """Report that a trace could not be loaded.

    `str()` is one line for the user; `detail` is a traceback or what the worker printed. `listed_files`: the traces in
    the remote folder that was named in place of a file, None for every other error.
    """

    def __init__(self, message: str, detail: str = "", listed_files: list[ListedTrace] | None = None) -> None:
        super().__init__(message)
        self.detail = detail
        self.listed_files = listed_files


class LoginNeededLoadError(LoadError):
    """Report that ssh must ask something: `TraceOpener.wait_until_connected` does, where the terminal is free."""


class WorkerExitError(LoadError):
    """Report that a worker process ended without a result."""
