"""The opener of a local folder with several recordings: its load ends with the list to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchprof_tui.trace.loading.errors import LoadError
from torchprof_tui.trace.loading.progress import Report
from torchprof_tui.trace.specs.runs_by_name import FolderError

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Trace


class FolderOpener:
    """List the traces of a folder; a `TraceOpener` that opens none of them."""

    cached = cache_was_damaged = False
    left_out: tuple[str, ...] = ()

    def __init__(self, folder: FolderError) -> None:
        self.label = self.path = folder.spec
        self.spec = ""
        self._folder = folder

    def start(self) -> None:
        """Do nothing: the folder has been listed."""

    def wait_until_connected(self) -> None:
        """Do nothing: the folder is local."""

    async def load_trace(self, report: Report) -> Trace:
        """Raise LoadError with the traces of the folder, which the screen lists."""
        raise LoadError(str(self._folder), listed_files=self._folder.traces)

    def split_into_blocks(self, trace: Trace) -> None:
        """Do nothing: there is no trace."""

    def cancel(self) -> None:
        """Do nothing: nothing was started."""

    def close(self) -> None:
        """Do nothing: nothing is held."""
