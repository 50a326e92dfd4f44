"""The opener of one trace: mapped from the cache, or decoded by a worker process and then mapped."""

from __future__ import annotations

import importlib
import os
import shutil
import stat
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchprof_tui.trace.core.errors import format_error
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.loading.errors import LoadError
from torchprof_tui.trace.loading.open_or_build import BuildResult, OpeningState, open_or_build_async
from torchprof_tui.trace.loading.opener import TraceOpener
from torchprof_tui.trace.loading.progress import Report
from torchprof_tui.trace.loading.worker_process import DEFER_BLOCKS_OPTION, EARLY_OPTION, Task, WorkerProcess
from torchprof_tui.trace.storage.disk_cache import CacheEntry

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Trace


@dataclass(frozen=True, slots=True)
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
