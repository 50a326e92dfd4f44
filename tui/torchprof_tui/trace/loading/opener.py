"""Open what the user named in other processes, watched from the event loop: one trace, and what all openers share."""

from __future__ import annotations

import importlib
import os
import shutil
import stat
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchprof_tui.trace.core.errors import TraceError, format_error
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.loading.open_or_build import BuildResult, OpeningState, open_or_build_async
from torchprof_tui.trace.loading.progress import LoadError, LoginNeededLoadError, Phase, Progress, Report
from torchprof_tui.trace.loading.worker_process import DEFER_BLOCKS_OPTION, EARLY_OPTION, Task, WorkerProcess
from torchprof_tui.trace.sources.ssh_command import LoginNeededError
from torchprof_tui.trace.storage.disk_cache import CacheEntry

if TYPE_CHECKING:
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


@record
class EarlyTrace:
    """A trace that ends at `end`, ns, where the recording goes on; `share`: the part of the file that it is, 0 to 1."""

    trace: Trace
    end: int
    share: float


class SingleTraceOpener(TraceOpener):
    """Open one trace. `spec` is what is read, `label` what the user called it.

    `stdin`: the pipe to read, where `spec` is `-`. `defer_blocks`: `split_into_blocks` is called when the trace is on
    screen. `cached`: after `start`, whether the cache has the trace; after `load_trace`, whether it came from there.
    """

    takes_captures = True

    def __init__(
        self,
        spec: str,
        label: str | None = None,
        cache: bool = True,
        stdin: int | None = None,
        defer_blocks: bool = False,
        left_out: tuple[str, ...] = (),
    ) -> None:
        super().__init__(label or spec, spec, spec, left_out)
        self._use_cache = cache
        self._stdin = stdin
        self._defer_blocks = defer_blocks
        self._state: OpeningState | None = None
        self._worker: WorkerProcess | None = None
        self._lock = threading.Lock()  # guards the two below: `split_into_blocks` is called in a thread
        self._splitter: WorkerProcess | None = None
        self._closed = False

    def _start(self) -> None:
        """Look in the cache, and start a worker where the trace is not there. Raises OSError where that fails."""
        self._state = OpeningState(self.spec, self.label, self._use_cache, captures=self.captures)
        self.cached = self._state.cached
        if not self.cached:
            try:
                self._worker = self._start_worker(self._state.entry)
            except BaseException:
                self.close()
                raise

    async def _load(self, report: Report) -> Trace:
        assert self._state is not None, "start() comes first"
        try:
            opened = await open_or_build_async(self._state, partial(self._build, report))
        except LoadError:
            raise
        except Exception as error:
            raise LoadError(format_error(error), traceback.format_exc()) from error
        self.cached = opened.cached
        self.cache_was_damaged = opened.was_damaged
        return opened.trace

    async def _build(self, report: Report, entry: CacheEntry) -> BuildResult:
        """Have a worker fill an entry: the one that `start` started, or a new one."""
        # deferred: importing asyncio takes as long as starting a worker, which comes first
        from torchprof_tui.trace.loading.cleanup import clean_up_in_thread, run_in_thread, start_in_thread

        async def receive_early(message: dict[str, Any]) -> None:
            early = await run_in_thread(map_early, entry.folder, self.label, message)
            if early is not None and self.receive_early is not None:
                self.receive_early(early)

        worker = self._worker = self._worker or self._start_worker(entry)
        try:
            result = await worker.read_build(report, receive_early)
        except BaseException:
            self._worker = None
            worker.detach()
            await clean_up_in_thread(worker.cancel)
            raise
        self._worker = None
        worker.detach()
        # Not awaited: the worker has finished, and freeing its memory takes a moment.
        start_in_thread(worker.cancel)
        return result

    def split_into_blocks(self, trace: Trace) -> None:
        """Have a worker write them. Where no process can be started, reading args stays slower."""
        # deferred: not needed before the first frame
        from torchprof_tui.trace.loading.load_in_process import find_deferred_text

        text = find_deferred_text(trace)
        if text is None:
            return
        with self._lock:
            if self._closed or self._state is None:
                return
            worker = WorkerProcess(Task.SPLIT, os.fspath(self._state.entry.folder))
            try:
                worker.start()
            except OSError:
                return
            self._splitter = worker
        text.wait_for_blocks = worker.wait
        worker.wait()
        text.wait_for_blocks = None
        worker.cancel()

    def _stop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.cancel()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._splitter is not None:
                self._splitter.cancel()
            if self._state is not None:
                self._state.close()

    def _start_worker(self, entry: CacheEntry) -> WorkerProcess:
        stdin, spec = self._stdin, self.spec
        opened = None
        if stdin is None and _is_pipe(spec):
            # `<(zcat trace)` is a pipe that only this process holds open.
            stdin = opened = os.open(spec, os.O_RDONLY)
            spec = "-"
        options = [DEFER_BLOCKS_OPTION, EARLY_OPTION] if self._defer_blocks else []
        try:
            worker = WorkerProcess(Task.DECODE, spec, os.fspath(entry.folder), *options, stdin=stdin)
            worker.start()
            return worker
        finally:
            if opened is not None:
                os.close(opened)


def _is_pipe(spec: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(spec).st_mode)
    except (OSError, ValueError):
        return False


def map_early(folder: Path, label: str, message: Mapping[str, Any]) -> EarlyTrace | None:
    """Map the part that a worker has announced with `message`, and remove its files, which stay mapped.

    Returns None where it cannot be used: the whole trace follows anyway.
    """
    trace_store = importlib.import_module("torchprof_tui.trace.storage.trace_store")  # here, because it imports numpy
    part = folder / Path(message["early"]).name
    try:
        trace = replace(trace_store.open_trace(part), label=label, part=f"first {format_duration(message['end'])}")
        return EarlyTrace(trace, message["end"], message["share"])
    except (OSError, LookupError, ValueError, TypeError):
        return None
    finally:
        shutil.rmtree(part, ignore_errors=True)
