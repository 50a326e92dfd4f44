"""The protocol of everything that opens a trace: one file, the ranks of a run, or remote names."""

from __future__ import annotations

from typing import Protocol

from torchprof_tui.trace.loading.progress import Report
from torchprof_tui.trace.model.trace import Trace


class TraceOpener(Protocol):
    """Open a trace in other processes, watched from the event loop.

    Call `start` before textual is imported and `load_trace` from the event loop; call `cancel` to give up and `close`
    when the trace is no longer used. Both remove every file and process that the opener made, except cache entries.
    `label`: what the user called the trace. `spec`: the name that opens it again, "" where no single name does.
    """

    label: str
    spec: str

    @property
    def left_out(self) -> tuple[str, ...]:
        """One line for each trace of the folder that is not opened. Final when `load_trace` has returned."""

    @property
    def path(self) -> str:
        """The file, or the first of several ranks' files."""

    @property
    def cached(self) -> bool:
        """Whether nothing had to be decoded. Final when `load_trace` has returned."""

    @property
    def cache_was_damaged(self) -> bool:
        """Whether a damaged cache entry had to be built again. Final when `load_trace` has returned."""

    def start(self) -> None:
        """Begin as much as is possible without an event loop. Raises OSError where no process can be started."""

    def wait_until_connected(self) -> None:
        """Log in to the hosts where that has to ask. Blocks; the terminal must be free for ssh's questions."""

    async def load_trace(self, report: Report) -> Trace:
        """Load the trace, reporting progress. Raises LoadError; on failure or cancellation, nothing is left behind."""

    def split_into_blocks(self, trace: Trace) -> None:
        """Write the text blocks that loading deferred. Blocks until they are written: call it in a thread."""

    def cancel(self) -> None:
        """Stop loading and close. Blocks until the worker processes have ended: not for the event loop."""

    def close(self) -> None:
        """Release the trace's cache entries; call it when the trace is no longer used."""
