"""Errors of a load that failed."""

from __future__ import annotations

from torchprof_tui.trace.specs.address import ListedTrace


class LoadError(Exception):
    """Report that a trace could not be loaded.

    `str()` is one line for the user; `detail` is a traceback or what the worker printed. `listed_files`: the traces in
    the remote folder that was named in place of a file, None for every other error. `storage_full`: there was no room
    where the columns are stored.
    """

    def __init__(
        self,
        message: str,
        detail: str = "",
        listed_files: list[ListedTrace] | None = None,
        storage_full: bool = False,
    ) -> None:
        super().__init__(message)
        self.detail = detail
        self.listed_files = listed_files
        self.storage_full = storage_full


class StorageFullError(OSError):
    """Report that there is no room in the folder where the columns of a trace are stored."""

    def __init__(self, number: int, reason: str, folder: str) -> None:
        super().__init__(
            number,
            f"{reason} for the columns of the trace; TORCHPROF_TUI_CACHE=FOLDER names another folder to keep them in",
            folder,
        )


class LoginNeededLoadError(LoadError):
    """Report that ssh must ask something: `TraceOpener.wait_until_connected` does, where the terminal is free."""


class WorkerExitError(LoadError):
    """Report that a worker process ended without a result."""
