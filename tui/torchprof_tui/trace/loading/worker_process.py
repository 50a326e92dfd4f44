"""The loader in a process of its own, seen from the program: start it, watch it, stop it.

Started before textual is imported, so that decoding and importing overlap; watched from the event loop without
ever blocking it; stopped by a signal, at once, wherever it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from torchprof_tui.trace.loading.errors import LoadError
from torchprof_tui.trace.loading.load import (
    ASK_OPTION,
    DEFER_BLOCKS_OPTION,
    LISTING_OPTION,
    SPLIT_INTO_BLOCKS_OPTION,
    BuildResult,
)
from torchprof_tui.trace.loading.progress import Progress
from torchprof_tui.trace.specs.address import ListedTrace

if TYPE_CHECKING:
    from torchprof_tui.trace.sources.listing import Listing

# The user's folder may hold a `random.py` or a `tui/`: isolated mode keeps it off the path, and ours is handed over.
_START_CODE = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from torchprof_tui.trace.loading.load import main; main()"
)

MAX_LINE_BYTES = 8 << 20
"""Of an answer, at the most: thousands of names."""

TERMINATE_SECONDS = 2.0
"""A child that does not end at SIGTERM within this time is killed."""


class LoaderProcess:
    """`loading.load` as a program, running. `stdin` is a pipe to read the trace from, for `-`.

    `ask`: ssh may ask on the terminal, which nobody draws on yet. `built`: what it made, when `progress` has ended.

    `look`: SPEC is a JSON list of names, and `looked` what these mean, when `progress` has ended. `late`: leave to
    another one what can be done when the trace is there, which is that with `take_apart`; it tells nothing.
    """

    def __init__(
        self,
        spec: str,
        folder: Path,
        stdin: int | None = None,
        ask: bool = False,
        *,
        defer_blocks: bool = False,
        list_names: bool = False,
        split_into_blocks: bool = False,
    ) -> None:
        self.spec = spec
        self.folder = folder
        self.result = BuildResult()
        self.listings: list[Listing] = []
        self._stdin = stdin
        wanted = {
            ASK_OPTION: ask,
            DEFER_BLOCKS_OPTION: defer_blocks,
            LISTING_OPTION: list_names,
            SPLIT_INTO_BLOCKS_OPTION: split_into_blocks,
        }
        self._options = [option for option, is_wanted in wanted.items() if is_wanted]
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr_file: IO[bytes] | None = None

    def start(self) -> None:
        """Start reading. Raises OSError where no process can be started."""
        self._stderr_file = tempfile.TemporaryFile(prefix="torchprof-tui-")  # noqa: SIM115  (open as long as the child runs)
        arguments = [json.dumps(sys.path), self.spec, os.fspath(self.folder), *self._options]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START_CODE, *arguments],
            stdin=subprocess.DEVNULL if self._stdin is None else self._stdin,
            stdout=subprocess.PIPE,
            stderr=self._stderr_file,
            # One thread of BLAS is plenty for a program that multiplies nothing, and 64 cost memory.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )

    def wait_for_message(self) -> None:
        """Block until it has something to tell, or has ended: what is asked on the terminal is answered by then."""
        assert self._process is not None, "start() comes first"
        if self._process.stdout is not None:
            select.select([self._process.stdout], [], [])

    async def read_progress(self) -> AsyncIterator[Progress]:
        """How far it is, until the folder is filled. Raises LoadError where it will not be."""
        import asyncio  # whose import takes as long as starting the child does, so that comes first

        process = self._process
        assert process is not None, "start() comes first"
        assert process.stdout is not None
        reader = asyncio.StreamReader(MAX_LINE_BYTES)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.stdout)
        try:
            async for line in reader:
                message = json.loads(line)
                if "looked" in message:
                    from torchprof_tui.trace.sources.listing import (
                        listing_from_json,  # of names elsewhere, which most traces do not have
                    )

                    self.listings = [listing_from_json(each) for each in message["looked"]]
                    return
                if "done" in message:
                    self.result = BuildResult(message["identity"], message["kept"])
                    return
                if "error" in message:
                    found = message.get("found")
                    listed = None if found is None else [ListedTrace(**each) for each in found]
                    raise LoadError(message["error"], message.get("detail", ""), listed)
                yield Progress(**message)
        finally:
            transport.close()
        raise await asyncio.to_thread(self._create_exit_error, process)

    def wait(self) -> None:
        """Block until it has ended."""
        process = self._process
        if process is not None:
            process.wait()

    def cancel(self) -> None:
        """Stop it, if it still runs, and wait until it has gone: its folder is then nobody's. Blocks briefly."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(TERMINATE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()
        if self._stderr_file is not None:
            self._stderr_file.close()

    def _create_exit_error(self, process: subprocess.Popen[bytes]) -> LoadError:
        """What to say of a child that ended without a word."""
        assert self._stderr_file is not None
        status = process.wait()
        self._stderr_file.seek(0)
        printed = self._stderr_file.read().decode(errors="replace")
        if status == -signal.SIGKILL:
            return LoadError("the loader was killed, most likely because the machine ran out of memory", printed)
        if status == -signal.SIGBUS:  # some file systems take back the room that was set aside
            return LoadError("the loader was stopped, most likely because the disk is full", printed)
        if status < 0:
            name = str(-status)
            with contextlib.suppress(ValueError):
                name = signal.Signals(-status).name
            return LoadError(f"the loader was stopped by {name}", printed)
        last = printed.strip().splitlines()[-1:] or [f"exit status {status}"]
        return LoadError(f"the loader stopped without a result ({last[0][:200]})", printed)
