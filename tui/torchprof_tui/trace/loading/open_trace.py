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

from torchprof_tui.trace.core.errors import describe
from torchprof_tui.trace.loading.errors import LoadError
from torchprof_tui.trace.loading.load import Built, map_place, open_place
from torchprof_tui.trace.loading.progress import Report
from torchprof_tui.trace.loading.worker_process import LoaderProcess
from torchprof_tui.trace.storage.disk_cache import Place, find, find_identity

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Trace


class Opening:
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
        late: bool = False,
    ) -> None:
        self.spec = spec
        self.label = label or spec
        self._cache = cache
        self._stdin = stdin
        self._ask = ask
        self._late = late
        self._finishing: LoaderProcess | None = None
        self._lock = threading.Lock()  # around these two: `finish` is called in a thread
        self._place: Place | None = None
        self._child: LoaderProcess | None = None

    @property
    def path(self) -> str:
        """The file, or the first of several ranks'."""
        return self.spec

    @property
    def cached(self) -> bool:
        """Whether only mapping is left to do. Known after `start`."""
        return self._child is None

    def start(self) -> None:
        """Look in the cache, and start a child where it has nothing. Raises OSError where neither is possible."""
        self._place = find(self.spec, self._cache)
        if not self._place.ready:
            self._start_child(self._place)

    def wait_until_connected(self) -> None:
        """Block until nothing more is asked on the terminal, or Ctrl-C."""
        if self._child is not None:
            self._child.wait_for_word()
        self._ask = False

    async def trace(self, report: Report) -> Trace:
        """The trace, when it is there. Raises LoadError with a line for the user.

        Where it fails or is cancelled, the child has gone and nothing is left behind.
        """
        import asyncio  # not before the child has been started

        loop = asyncio.get_running_loop()
        gone_wrong = True
        try:
            trace = await self._trace(report)
            gone_wrong = False
            return trace
        except LoadError:
            raise
        except Exception as error:
            raise LoadError(describe(error), traceback.format_exc()) from error
        finally:
            if gone_wrong:
                await asyncio.to_thread(self.cancel)
            elif self._child is not None:
                # It has said its last word, but freeing what it read takes a moment that nobody should wait for.
                loop.run_in_executor(None, self._child.cancel)
                self._child = None

    async def _trace(self, report: Report) -> Trace:
        import asyncio

        assert self._place is not None, "start() comes first"
        if self._child is None:
            found = await asyncio.to_thread(open_place, self._place, self.label)
            if found is not None:
                return found
            self.start()
        built = await self._read(report)
        if built.kept and built.identity is not None:
            found = await asyncio.to_thread(self._map_kept, built.identity)
            if found is not None:
                return found
            self._cache = False  # what is kept is of no use
            self.start()
            built = await self._read(report)
        self._place.publish(built.identity)
        return await asyncio.to_thread(map_place, self._place, self.label)

    async def _read(self, report: Report) -> Built:
        if self._child is None:
            return Built()
        async for progress in self._child.progress():
            report(progress)
        return self._child.built

    def _map_kept(self, identity: str) -> Trace | None:
        """What was kept of it, in place of the folder that was to be filled."""
        self.cancel()
        self._place = find_identity(self.spec, identity)
        return None if self._place is None else open_place(self._place, self.label)

    def cancel(self) -> None:
        """Stop reading and remove what was written. Waits for the child to be gone: not for the event loop."""
        if self._child is not None:
            self._child.cancel()
            self._child = None
        self.close()

    def finish(self, trace: Trace) -> None:
        """Have a child do what nobody has waited for. Waits for it, so call it in a thread. Raises OSError."""
        from torchprof_tui.trace.text.text_index import TextIndex

        text = trace.text
        if not isinstance(text, TextIndex) or text.whole is None or text.apart is not None:
            return
        child = None
        with self._lock:
            if self._place is not None:
                child = self._finishing = LoaderProcess(self.spec, self._place.folder, take_apart=True)
                child.start()
        if child is not None:
            text.coming = child.wait
            child.wait()
            text.coming = None
            child.cancel()

    def close(self) -> None:
        """The trace is no longer looked at."""
        with self._lock:
            if self._finishing is not None:
                self._finishing.cancel()
            self._finishing = None
            if self._place is not None:
                self._place.close()
            self._place = None

    def _start_child(self, place: Place) -> None:
        stdin, spec = self._stdin, self.spec
        opened = None
        if stdin is None and _is_pipe(spec):
            # `<(zcat trace)` is a pipe that only this process holds open.
            stdin = opened = os.open(spec, os.O_RDONLY)
            spec = "-"
        try:
            self._child = LoaderProcess(spec, place.folder, stdin, self._ask, late=self._late)
            self._child.start()
        except BaseException:
            self._child = None
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
