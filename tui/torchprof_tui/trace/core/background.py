"""Work that a thread does behind another's back: writing, compressing, numpy's, which need no interpreter."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class BackgroundWorker(Generic[Item]):
    """A thread that does `work` with every item that is put, in order; `waiting` of them wait at most (0: any number).

    What goes wrong belongs to who puts: it is raised there, and items put meanwhile are let go.
    """

    def __init__(self, work: Callable[[Item], None], name: str, max_pending: int = 0) -> None:
        self._work = work
        self._error: Exception | None = None
        self._queue: queue.Queue[tuple[Item] | None] = queue.Queue(max_pending)
        self._closed = self._cancelled = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Raises what went wrong with an earlier one."""
        if self._error is not None:
            raise self._error
        self._queue.put((item,))

    def close(self) -> None:
        """Wait until all is done. May be called again. Raises what went wrong."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Let go of all that waits, and of what is put from here on."""
        self._cancelled = True

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if self._error is None and not self._cancelled:  # else it keeps taking, or who puts would wait for ever
                try:
                    self._work(item[0])
                except Exception as error:
                    self._error = error


def submit(work: Callable[[], Result]) -> Callable[[], Result]:
    """Have a thread do it. What is returned waits for that, and returns what was found or raises what went wrong, again
    and again."""
    found: list[Result] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def wait() -> Result:
        thread.join()
        if failed:
            raise failed[0]
        return found[0]

    return wait
