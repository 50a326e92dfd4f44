"""A few worker processes that decode many traces: starting Python takes longer than a short trace does."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

from torchprof_tui.trace.loading.cleanup import clean_up_in_thread
from torchprof_tui.trace.loading.errors import LoadError, WorkerExitError
from torchprof_tui.trace.loading.open_or_build import BuildResult
from torchprof_tui.trace.loading.progress import Report
from torchprof_tui.trace.loading.worker_process import WorkerProcess
from torchprof_tui.trace.loading.worker_protocol import Task


class WorkerPool:
    """At most `size` workers. Any number of tasks may call `decode_trace`; they wait for a free worker."""

    def __init__(self, size: int) -> None:
        self._idle: list[WorkerProcess] = []
        self._workers: list[WorkerProcess] = []
        self._free_slots = asyncio.Semaphore(max(size, 1))

    async def decode_trace(self, spec: str, folder: Path, report: Report) -> BuildResult:
        """Decode a trace and its collectives into a folder. Raises LoadError, and OSError where no worker starts.

        A worker is used again after an error that it reports. A cancelled one has ended when this returns.
        """
        async with self._free_slots:
            worker = self._idle.pop() if self._idle else self._start_worker()
            try:
                worker.send_job(spec, folder)
                result = await worker.read_build(report)
            except WorkerExitError as error:
                raise LoadError(f"{spec}: {error}", error.detail) from error
            except LoadError:
                self._idle.append(worker)
                raise
            except BaseException:
                worker.detach()
                await clean_up_in_thread(worker.cancel)
                raise
            self._idle.append(worker)
            return result

    def _start_worker(self) -> WorkerProcess:
        worker = WorkerProcess(Task.SERVE, stdin=subprocess.PIPE)
        worker.start()
        self._workers.append(worker)
        return worker

    def detach(self) -> None:
        """Stop reading messages. Call it on the event loop, before `close`."""
        for worker in self._workers:
            worker.detach()

    def close(self) -> None:
        """End all workers and block until they have ended: not for the event loop."""
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.cancel()
        self._workers.clear()
        self._idle.clear()
