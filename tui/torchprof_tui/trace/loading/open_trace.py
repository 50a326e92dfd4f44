"""A trace on its way into the program: mapped where the cache has it, else decoded by a child and then mapped.

`start` before textual is imported, `trace` from the event loop. Whoever gives up calls `cancel`; whoever looks at the
trace no longer calls `close`. Either leaves nothing behind.
"""

from __future__ import annotations

import os
import stat
import threading
import traceback
from typing import TYPE_CHECKING

from torchprof_tui.trace.core.errors import format_error
from torchprof_tui.trace.loading.errors import LoadError
from torchprof_tui.trace.loading.load import BuildResult, map_cache_entry, try_map_cache_entry
from torchprof_tui.trace.loading.progress import Report
from torchprof_tui.trace.loading.worker_process import LoaderProcess
from torchprof_tui.trace.storage.disk_cache import CacheEntry, find_by_identity, find_or_create_entry

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Trace


class SingleTraceOpener:
    """One trace being opened. `spec` is what will be read, `label` what the user called it.

    `stdin`: the pipe to read, where `spec` is `-`. `ask`: ssh may ask on the terminal until `wait_until_connected`
    returns. `late`: `finish` is called when the trace is on screen.
    """

    def __init__(
        self,
        spec: str,
        label: str | None = None,
        cache: bool = True,
        stdin: int | None = None,
        ask: bool = False,
        defer_blocks: bool = False,
    ) -> None:
        self.spec = spec
        self.label = label or spec
        self._cache = cache
        self._stdin = stdin
        self._ask = ask
        self._defer_blocks = defer_blocks
        self._splitter: LoaderProcess | None = None
        self._lock = threading.Lock()  # around these two: `finish` is called in a thread
        self._cache_entry: CacheEntry | None = None
        self._loader: LoaderProcess | None = None

    @property
    def path(self) -> str:
        """The file, or the first of several ranks'."""
        return self.spec

    @property
    def cached(self) -> bool:
        """Whether only mapping is left to do. Known after `start`."""
        return self._loader is None

    def start(self) -> None:
        """Look in the cache, and start a child where it has nothing. Raises OSError where neither is possible."""
        self._cache_entry = find_or_create_entry(self.spec, self._cache)
        if not self._cache_entry.ready:
            self._start_loader(self._cache_entry)

    def wait_until_connected(self) -> None:
        """Block until nothing more is asked on the terminal, or Ctrl-C."""
        if self._loader is not None:
            self._loader.wait_for_message()
        self._ask = False

    async def load_trace(self, report: Report) -> Trace:
        """The trace, when it is there. Raises LoadError with a line for the user.

        Where it fails or is cancelled, the child has gone and nothing is left behind.
        """
        import asyncio  # not before the child has been started

        loop = asyncio.get_running_loop()
        gone_wrong = True
        try:
            trace = await self._load_trace(report)
            gone_wrong = False
            return trace
        except LoadError:
            raise
        except Exception as error:
            raise LoadError(format_error(error), traceback.format_exc()) from error
        finally:
            if gone_wrong:
                await asyncio.to_thread(self.cancel)
            elif self._loader is not None:
                # It has said its last word, but freeing what it read takes a moment that nobody should wait for.
                loop.run_in_executor(None, self._loader.cancel)
                self._loader = None

    async def _load_trace(self, report: Report) -> Trace:
        import asyncio

        assert self._cache_entry is not None, "start() comes first"
        if self._loader is None:
            found = await asyncio.to_thread(try_map_cache_entry, self._cache_entry, self.label)
            if found is not None:
                return found
            self.start()
        built = await self._wait_for_loader(report)
        if built.kept and built.identity is not None:
            found = await asyncio.to_thread(self._map_by_identity, built.identity)
            if found is not None:
                return found
            self._cache = False  # what is kept is of no use
            self.start()
            built = await self._wait_for_loader(report)
        self._cache_entry.publish(built.identity)
        return await asyncio.to_thread(map_cache_entry, self._cache_entry, self.label)

    async def _wait_for_loader(self, report: Report) -> BuildResult:
        if self._loader is None:
            return BuildResult()
        async for progress in self._loader.read_progress():
            report(progress)
        return self._loader.result

    def _map_by_identity(self, identity: str) -> Trace | None:
        """What was kept of it, in place of the folder that was to be filled."""
        self.cancel()
        self._cache_entry = find_by_identity(self.spec, identity)
        return None if self._cache_entry is None else try_map_cache_entry(self._cache_entry, self.label)

    def cancel(self) -> None:
        """Stop reading and remove what was written. Waits for the child to be gone: not for the event loop."""
        if self._loader is not None:
            self._loader.cancel()
            self._loader = None
        self.close()

    def split_into_blocks(self, trace: Trace) -> None:
        """Have a child do what nobody has waited for. Waits for it, so call it in a thread. Raises OSError."""
        from torchprof_tui.trace.text.gzip_text import GzipText

        text = trace.text
        if not isinstance(text, GzipText) or text.block_text is not None:
            return
        child = None
        with self._lock:
            if self._cache_entry is not None:
                child = self._splitter = LoaderProcess(self.spec, self._cache_entry.folder, split_into_blocks=True)
                child.start()
        if child is not None:
            text.wait_for_blocks = child.wait
            child.wait()
            text.wait_for_blocks = None
            child.cancel()

    def close(self) -> None:
        """The trace is no longer looked at."""
        with self._lock:
            if self._splitter is not None:
                self._splitter.cancel()
            self._splitter = None
            if self._cache_entry is not None:
                self._cache_entry.close()
            self._cache_entry = None

    def _start_loader(self, place: CacheEntry) -> None:
        stdin, spec = self._stdin, self.spec
        opened = None
        if stdin is None and _is_pipe(spec):
            # `<(zcat trace)` is a pipe that only this process holds open.
            stdin = opened = os.open(spec, os.O_RDONLY)
            spec = "-"
        try:
            self._loader = LoaderProcess(spec, place.folder, stdin, self._ask, defer_blocks=self._defer_blocks)
            self._loader.start()
        except BaseException:
            self._loader = None
            self.close()
            raise
        finally:
            if opened is not None:
                os.close(opened)


def _is_pipe(spec: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(spec).st_mode)
    except (OSError, ValueError):
        return False
