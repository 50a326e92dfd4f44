"""A few processes that decode many traces: each takes one after the other, because starting Python costs more than a
short trace does. Watched from the event loop, stopped by a signal.

A worker is `loader.serve`: it reads a job a line on stdin, `{"spec": …, "folder": …}`, and answers as the loader does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from torchprof_tui.trace.loading.errors import LoadError
from torchprof_tui.trace.loading.load import BuildResult
from torchprof_tui.trace.loading.progress import Progress, Report
from torchprof_tui.trace.loading.worker_process import TERMINATE_SECONDS

_START_CODE = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from torchprof_tui.trace.loading.load import serve; serve()"
)

MAX_LINE_BYTES = 1 << 20
"""Of an answer at the most; a traceback is cut to less."""


class WorkerPool:
    """At most `size` processes. `build` may be called by as many tasks as like to: they wait for a free one."""

    def __init__(self, size: int) -> None:
        self._idle: list[_Worker] = []
        self._workers: list[_Worker] = []
        self._free_slots = asyncio.Semaphore(max(size, 1))

    async def decode_trace(self, spec: str, folder: Path, report: Report) -> BuildResult:
        """Have a trace decoded into a folder, its collectives with it. Raises LoadError."""
        async with self._free_slots:
            if self._idle:
                worker = self._idle.pop()
            else:
                worker = _Worker()
                self._workers.append(worker)
                await worker.start()
            try:
                built = await worker.decode_trace(spec, folder, report)
            except LoadError:
                if worker.is_alive:  # it said why, and can do the next
                    self._idle.append(worker)
                raise
            self._idle.append(worker)
            return built

    def detach(self) -> None:
        """The event loop watches them no more. Call it there, before `close`."""
        for worker in self._workers:
            worker.detach()

    def close(self) -> None:
        """End them, wherever they are. Blocks briefly: not for the event loop."""
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.wait()
        self._workers.clear()
        self._idle.clear()


class _Worker:
    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._messages: asyncio.StreamReader | None = None
        self._transport: asyncio.ReadTransport | None = None
        self._stderr_file: IO[bytes] | None = None

    async def start(self) -> None:
        self._stderr_file = tempfile.TemporaryFile(prefix="torchprof-tui-")  # noqa: SIM115  (open as long as it runs)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START_CODE, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr_file,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        self._messages = asyncio.StreamReader(MAX_LINE_BYTES)
        reader = self._messages
        loop = asyncio.get_running_loop()
        assert self._process.stdout is not None
        self._transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._process.stdout
        )

    async def decode_trace(self, spec: str, folder: Path, report: Report) -> BuildResult:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._messages is not None
        job = json.dumps({"spec": spec, "folder": os.fspath(folder)})
        with contextlib.suppress(BrokenPipeError):  # it has died: that is told below
            self._process.stdin.write(job.encode() + b"\n")  # a line that fits the pipe: it never waits
            self._process.stdin.flush()
        async for line in self._messages:
            message = json.loads(line)
            if "done" in message:
                return BuildResult(message["identity"], message["kept"])
            if "error" in message:
                raise LoadError(message["error"], message.get("detail", ""))
            report(Progress(**message))
        assert self._stderr_file is not None
        status = await asyncio.to_thread(self._process.wait)
        self._stderr_file.seek(0)
        printed = self._stderr_file.read().decode(errors="replace")
        why = "was killed, most likely for want of memory" if status == -9 else f"ended with status {status}"
        raise LoadError(f"{spec}: the process that decoded it {why}", printed)

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def detach(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def terminate(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def wait(self) -> None:
        process = self._process
        if process is None:
            return
        try:
            process.wait(TERMINATE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout, self._stderr_file):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
