"""Define the error of a load that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchprof_tui.trace.specs.address import ListedTrace

if TYPE_CHECKING:
    pass
if TYPE_CHECKING:
    pass


class LoadError(Exception):
    """The load failed. `str()` is one line for the user, `detail` a traceback or what the child printed.

    `found`: it is a folder elsewhere, and these traces are in it.
    """

    def __init__(self, message: str, detail: str = "", listed_files: list[ListedTrace] | None = None) -> None:
        super().__init__(message)
        self.detail = detail
        self.listed_files = listed_files
