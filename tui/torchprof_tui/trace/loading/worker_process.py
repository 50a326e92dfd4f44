"""Worker processes seen from the app: start them, read their messages, cancel them, explain how they ended.

Started before textual is imported, so that decoding and importing overlap; watched from the event loop, which is never
blocked; cancelled by a signal at any time. `worker_main.py` is the program that it runs, with the messages.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from enum import Enum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from torchprof_tui.trace.core.process_state import count_cores
from torchprof_tui.trace.core.readable import wait_until_readable
from torchprof_tui.trace.loading.open_or_build import BuildResult
from torchprof_tui.trace.loading.progress import LoadError, Phase, Progress, Report, WorkerExitError
from torchprof_tui.trace.specs.address import ListedTrace

if TYPE_CHECKING:
    import asyncio


class Task(str, Enum):
    """Name what a worker does: the first argument of the program."""

    DECODE = "decode"
    SERVE = "serve"
    LIST = "list"
    SPLIT = "split"


DEFER_BLOCKS_OPTION = "--defer-blocks"  # leave the text of a local gzip file whole; `split` writes its blocks later


EARLY_OPTION = "--early"  # build the beginning of a large file first, and announce it
MAX_MESSAGE_BYTES = 8 << 20  # bytes of a message, at most: a listing has thousands of names

# The user's folder may hold a `random.py`: isolated mode keeps it off `sys.path`, and this process's path is passed on.
_START_CODE = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from torchprof_tui.trace.loading.worker_main import main; main()"
)

ReceiveEarly = Callable[[dict[str, Any]], Awaitable[None]]

TERMINATE_SECONDS = 2.0  # a worker that does not end within this time after SIGTERM is killed


class WorkerProcess:
    """One worker. `arguments`: operands and options of `task`. `stdin`: a pipe to read, or subprocess.PIPE for jobs."""

    def __init__(self, task: Task, *arguments: str, stdin: int | None = None) -> None:
        self._arguments = [task.value, *arguments]
        self._stdin = stdin
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr_file: IO[bytes] | None = None
        self._end_pipe = -1  # ends when the worker and all processes that it has forked have ended
        self._messages: asyncio.StreamReader | None = None
        self._transport: asyncio.ReadTransport | None = None

    def start(self) -> None:
        """Start the process. Raises OSError where that is impossible."""
        self._stderr_file = tempfile.TemporaryFile(prefix="torchprof-tui-")  # noqa: SIM115  (open as long as it runs)
        self._end_pipe, inherited = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _START_CODE, json.dumps(sys.path), *self._arguments],
                stdin=subprocess.DEVNULL if self._stdin is None else self._stdin,
                stdout=subprocess.PIPE,
                stderr=self._stderr_file,
                env={**os.environ, **_list_memory_options()},
                pass_fds=[inherited],
            )
        except OSError:
            os.close(self._end_pipe)
            self._end_pipe = -1
            raise
        finally:
            os.close(inherited)

    def send_job(self, spec: str, folder: Path) -> None:
        """Send a job to a worker that serves. Where it has died, `read_result` says so."""
        assert self._process is not None, "start() comes first"
        assert self._process.stdin is not None, "stdin is a pipe"
        job = json.dumps({"spec": spec, "folder": os.fspath(folder)})
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(job.encode() + b"\n")  # does not block: a pipe holds more than a line
            self._process.stdin.flush()

    async def read_build(self, report: Report, receive_early: ReceiveEarly | None = None) -> BuildResult:
        """Read messages as `read_result` does, until a trace is built."""
        message = await self.read_result(report, receive_early)
        return BuildResult(message["identity"], message["already_cached"])

    async def read_result(self, report: Report, receive_early: ReceiveEarly | None = None) -> dict[str, Any]:
        """Report progress until the last message of a job, and return that.

        `receive_early` gets the messages that announce the beginning of a large file.
        Raises LoadError with the worker's own error, WorkerExitError where it ended without a result.
        """
        import asyncio  # deferred: takes as long as starting a worker, which comes first

        process = self._process
        assert process is not None, "start() comes first"
        assert process.stdout is not None
        if self._messages is None:
            reader = self._messages = asyncio.StreamReader(MAX_MESSAGE_BYTES)
            self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), process.stdout
            )
        async for line in self._messages:
            message: dict[str, Any] = json.loads(line)
            if "error" in message:
                listed = message.get("listed_files")
                files = None if listed is None else [ListedTrace(**fields) for fields in listed]
                raise LoadError(message["error"], message["detail"], files, message.get("storage_full", False))
            if "early" in message:
                if receive_early is not None:
                    await receive_early(message)
                continue
            if "phase" not in message:
                return message
            message["phase"] = Phase(message["phase"])
            report(Progress(**message))
        raise await asyncio.to_thread(self._create_exit_error, process)

    def detach(self) -> None:
        """Stop reading messages. Call it on the event loop, before `cancel`."""
        if self._transport is not None:
            self._transport.close()

    def wait(self) -> None:
        """Block until the worker has ended."""
        process = self._process
        if process is not None:
            process.wait()

    def terminate(self) -> None:
        """Ask the worker to end."""
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()

    def cancel(self) -> None:
        """End the worker if it still runs, and block until it and its own processes have ended: no file is written
        after that."""
        process = self._process
        if process is None:
            return
        self.terminate()
        try:
            process.wait(TERMINATE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        end_pipe, self._end_pipe = self._end_pipe, -1
        if end_pipe >= 0:
            wait_until_readable([end_pipe], TERMINATE_SECONDS)
            os.close(end_pipe)
        for pipe in (process.stdin, process.stdout, self._stderr_file):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _create_exit_error(self, process: subprocess.Popen[bytes]) -> WorkerExitError:
        assert self._stderr_file is not None
        status = process.wait()
        self._stderr_file.seek(0)
        printed = self._stderr_file.read().decode(errors="replace")
        return WorkerExitError(_explain_exit(status, printed), printed)


def _list_memory_options() -> dict[str, str]:
    """List the variables with which a process gives back what it has freed: raw columns while it builds a trace.

    glibc keeps what is freed between blocks that live longer, in a heap for each thread: 110 of 150 MB in the end.
    Columns are outside of the heaps; blocks of text are smaller, because mapping each anew would take 0.5 s. Two cores
    share a heap: with one for many, their threads would wait for each other.
    """
    cores = count_cores()
    return {
        "OPENBLAS_NUM_THREADS": "1",  # nothing here multiplies matrices, and the threads of BLAS cost memory
        "MALLOC_ARENA_MAX": str(max(cores // 2, 1)),
        "MALLOC_MMAP_THRESHOLD_": str(2 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(cores * (4 << 20)),
    }


def _explain_exit(status: int, printed: str) -> str:
    """Explain an exit without a result in one line, from the exit status and what the worker printed."""
    if status == -signal.SIGKILL:
        return "the loading process was killed, most likely because the machine ran out of memory"
    if status == -signal.SIGBUS:  # some file systems withdraw blocks that were allocated to a mapped file
        return "the loading process was stopped, most likely because the disk is full"
    if status < 0:
        name = str(-status)
        with contextlib.suppress(ValueError):
            name = signal.Signals(-status).name
        return f"the loading process was stopped by {name}"
    last_line = printed.strip().splitlines()[-1:] or [f"exit status {status}"]
    return f"the loading process ended without a result ({last_line[0][:200]})"
