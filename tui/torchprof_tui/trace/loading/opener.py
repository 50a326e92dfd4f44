"""Open what the user named in other processes, watched from the event loop: what all openers have in common."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.errors import LoadError, LoginNeededLoadError
from torchprof_tui.trace.loading.progress import Phase, Progress, Report
from torchprof_tui.trace.sources.ssh_errors import LoginNeededError

if TYPE_CHECKING:
    from torchprof_tui.trace.loading.open_trace import EarlyTrace
    from torchprof_tui.trace.model.trace import Trace
    from torchprof_tui.trace.sources.ssh_connections import SshConnections
    from torchprof_tui.trace.specs.address import SshPath
    from torchprof_tui.trace.specs.runs_by_name import FolderError


class TraceOpener:
    """Open a trace in other processes, watched from the event loop.

    Call `start` before textual is imported and `load_trace` from the event loop; call `cancel` to give up and `close`
    when the trace is no longer used. Both remove every file and process that the opener made, except cache entries.
    `label`: what the user called the trace. `spec`: the name that opens it again, "" where no single name does.
    `path`: the file, or the first of several ranks' files. Final when `load_trace` has returned: `cached`, whether
    nothing had to be decoded; `cache_was_damaged`, whether a damaged entry had to be built again; `left_out`, one line
    for each trace of the folder that is not opened.
    `receive_early`: set before `load_trace` to be called with the beginning of a large trace, on the event loop.
    """

    takes_captures = False

    def __init__(self, label: str, spec: str, path: str, left_out: tuple[str, ...] = ()) -> None:
        self.label, self.spec, self.path = label, spec, path
        self.cached = self.cache_was_damaged = False
        self.left_out = left_out
        self.captures: tuple[str, ...] = ()
        self.receive_early: Callable[[EarlyTrace], None] | None = None
        self._hosts: _Hosts | None = None

    def connect_first(self, hosts: Sequence[SshPath], connections: SshConnections) -> None:
        """Have `start` connect to ssh hosts, and begin to open only then. `hosts`: a path on each."""
        self._hosts = _Hosts(hosts, connections)

    def set_captures(self, captures: tuple[str, ...]) -> bool:
        """Use these files or folders with captures of its graphs, instead of those beside the trace; before `start`.

        Returns whether it can be given any.
        """
        if self.takes_captures:
            self.captures = captures
        return self.takes_captures

    def start(self) -> None:
        """Begin as much as is possible without an event loop. Raises OSError where no process can be started."""
        if self._hosts is None:
            self._start()
        else:
            self._hosts.thread.start()

    def wait_until_connected(self) -> None:
        """Log in to the hosts where that has to ask. Blocks; the terminal must be free for ssh's questions."""
        if self._hosts is not None:
            self._hosts.wait_and_ask()

    async def load_trace(self, report: Report) -> Trace:
        """Load the trace, reporting progress. Raises LoadError; on failure or cancellation, nothing is left behind.

        LoginNeededLoadError: `wait_until_connected` asks on the terminal, and this may be called again.
        """
        if self._hosts is not None:
            report(Progress(Phase.CONNECTING))
            await self._hosts.wait()
            self._start()
        return await self._load(report)

    def split_into_blocks(self, trace: Trace) -> None:
        """Write the text blocks that loading deferred. Blocks until they are written: call it in a thread."""

    def cancel(self) -> None:
        """Stop loading and close. Blocks until the worker processes have ended: not for the event loop."""
        if self._hosts is not None:
            self._hosts.connections.stop_connecting()
        self._stop()
        self.close()

    def close(self) -> None:
        """Release the trace's cache entries; call it when the trace is no longer used."""

    def _start(self) -> None:
        """Begin, once the hosts are connected."""

    async def _load(self, report: Report) -> Trace:
        raise NotImplementedError

    def _stop(self) -> None:
        """End the worker processes, and wait for that."""


class FolderOpener(TraceOpener):
    """List the traces of a local folder with several recordings, and open none of them."""

    def __init__(self, folder: FolderError) -> None:
        super().__init__(folder.spec, "", folder.spec)
        self._folder = folder

    async def _load(self, report: Report) -> Trace:
        """Raise LoadError with the traces of the folder, which the screen lists."""
        raise LoadError(str(self._folder), listed_files=self._folder.traces)


class _Hosts:
    """The ssh hosts of an opener, which a thread connects without asking anything."""

    def __init__(self, hosts: Sequence[SshPath], connections: SshConnections) -> None:
        self.connections = connections
        self.thread = threading.Thread(target=self._connect, args=(False,), daemon=True)
        self._hosts = hosts
        self._failure: TraceError | None = None

    def wait_and_ask(self) -> None:
        """Wait for the connections; where ssh has to ask, it does on the terminal."""
        self.thread.join()
        if self._needs_login:
            self._connect(allow_prompt=True)

    async def wait(self) -> None:
        """Wait for the connections. Raises LoadError, LoginNeededLoadError."""
        import asyncio  # deferred: takes as long as starting a worker, which comes first

        try:
            await asyncio.to_thread(self.thread.join)
        except asyncio.CancelledError:
            self.connections.stop_connecting()
            raise
        if self._failure is not None:
            raise (LoginNeededLoadError if self._needs_login else LoadError)(str(self._failure))

    @property
    def _needs_login(self) -> bool:
        return isinstance(self._failure, LoginNeededError)

    def _connect(self, allow_prompt: bool) -> None:
        self._failure = None
        try:
            self.connections.connect_all(self._hosts, allow_prompt)
        except TraceError as error:
            self._failure = error
