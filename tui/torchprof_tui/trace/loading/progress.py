"""What a load reports: its progress (phase, bytes and events, of one trace or of several ranks), and its errors."""

from __future__ import annotations

from collections.abc import Callable

from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.text_enum import TextEnum
from torchprof_tui.trace.specs.address import ListedTrace

REPORT_INTERVAL_SECONDS = 0.05  # seconds between two reports of one phase; the screen redraws no more often


class Phase(TextEnum):
    """Name a stage of a load. The values are the words that workers send and that screens and commands print."""

    STARTING = "starting"
    CONNECTING = "connecting"
    READING = "reading"
    ARRANGING = "arranging"
    STORING = "storing"
    MERGING = "merging"


@record
class Progress:
    """Progress of one load. `bytes` of `total` count the file as stored (compressed); `total` is None for a pipe."""

    phase: Phase
    bytes: int = 0
    total: int | None = None
    events: int = 0


FAILED_SHARE = -1.0  # the share of a rank that could not be opened


@record
class RanksProgress(Progress):
    """Progress of several ranks together. `shares`: the part of each that has been read, 0 to 1, or FAILED_SHARE."""

    shares: tuple[float, ...] = ()

    @property
    def finished_count(self) -> int:
        """Count the ranks that have been read completely."""
        return sum(share == 1.0 for share in self.shares)


Report = Callable[[Progress], None]  # a function that receives progress


def ignore_progress(progress: Progress) -> None:
    """Discard progress that is not shown."""


class LoadError(Exception):
    """Report that a trace could not be loaded.

    `str()` is one line for the user; `detail` is a traceback or what the worker printed. `listed_files`: the traces in
    the remote folder that was named in place of a file, None for every other error. `storage_full`: there was no room
    where the columns are stored.
    """

    def __init__(
        self, message: str, detail: str = "", listed_files: list[ListedTrace] | None = None, storage_full: bool = False
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
