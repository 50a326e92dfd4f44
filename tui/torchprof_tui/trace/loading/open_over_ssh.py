"""The opener of anything on ssh hosts: connect to them first, then open with another opener over the connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.errors import LoadError, LoginNeededLoadError
from torchprof_tui.trace.loading.progress import Phase, Progress, Report
from torchprof_tui.trace.sources.ssh_connections import SshConnections
from torchprof_tui.trace.sources.ssh_errors import LoginNeededError
from torchprof_tui.trace.specs.address import SshPath

if TYPE_CHECKING:
    from torchprof_tui.trace.loading.opener import TraceOpener
    from torchprof_tui.trace.model.trace import Trace


class SshOpener:
    """Connect to hosts, then open with `opener`; a `TraceOpener`.

    `hosts`: a path on each. `load_trace` connects without asking anything; where that raises LoginNeededLoadError,
    `wait_until_connected` asks on the terminal, and `load_trace` may be called again.
    """

    def __init__(self, opener: TraceOpener, hosts: Sequence[SshPath], connections: SshConnections) -> None:
        self.label = opener.label
        self.spec = opener.spec
        self._opener = opener
        self._hosts = hosts
        self._connections = connections
        self._failure: TraceError | None = None
        self._connecting = threading.Thread(target=self._connect, args=(False,), daemon=True)

    @property
    def path(self) -> str:
        """The trace, or the first of several ranks' files."""
        return self._opener.path

    @property
    def left_out(self) -> tuple[str, ...]:
        """One line for each trace of the folder that is not opened; final when `load_trace` has returned."""
        return self._opener.left_out

    @property
    def cached(self) -> bool:
        """Whether nothing had to be decoded; final when `load_trace` has returned."""
        return self._opener.cached

    @property
    def cache_was_damaged(self) -> bool:
        """Whether a damaged cache entry was discarded."""
        return self._opener.cache_was_damaged

    def start(self) -> None:
        """Begin to connect on a thread."""
        self._connecting.start()

    def wait_until_connected(self) -> None:
        """Wait for the connections; where ssh has to ask, it does on the terminal. `load_trace` raises the error."""
        self._connecting.join()
        if isinstance(self._failure, LoginNeededError):
            self._connect(allow_prompt=True)

    def _connect(self, allow_prompt: bool) -> None:
        self._failure = None
        try:
            self._connections.connect_all(self._hosts, allow_prompt)
        except TraceError as error:
            self._failure = error

    async def load_trace(self, report: Report) -> Trace:
        """Load the trace. Raises LoadError; on failure or cancellation, nothing is left behind."""
        report(Progress(Phase.CONNECTING))
        try:
            await asyncio.to_thread(self._connecting.join)
        except asyncio.CancelledError:
            self._connections.stop_connecting()
            raise
        if isinstance(self._failure, LoginNeededError):
            raise LoginNeededLoadError(str(self._failure))
        if self._failure is not None:
            raise LoadError(str(self._failure))
        self._opener.start()
        return await self._opener.load_trace(report)

    def split_into_blocks(self, trace: Trace) -> None:
        """Write the text blocks that loading deferred, as the opener does."""
        self._opener.split_into_blocks(trace)

    def cancel(self) -> None:
        """Stop loading and close. Blocks until the worker processes have ended: not for the event loop."""
        self._connections.stop_connecting()
        self._opener.cancel()

    def close(self) -> None:
        """Release the trace's cache entries; call it when the trace is no longer used."""
        self._opener.close()
