"""Run work that releases the GIL (writing, compressing, numpy) on a background thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class BackgroundWorker(Generic[Item]):
    """Thread that calls `work` with every item put, in order.

    `put` blocks while `max_pending` items are queued (0: never). An exception of `work` is raised by the next `put` or
    by `close`; the items queued until then are dropped.
    """

    def __init__(self, work: Callable[[Item], None], name: str, max_pending: int = 0) -> None:
        self._work = work
        self._error: Exception | None = None
        self._queue: queue.Queue[tuple[Item] | None] = queue.Queue(max_pending)
        self._closed = self._cancelled = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Queue an item. Raises the exception of an earlier one."""
        if self._error is not None:
            raise self._error
        self._queue.put((item,))

    def close(self) -> None:
        """Wait until all items are done. May be called again. Raises the exception of an item that failed."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Drop all queued items, and those put from now on."""
        self._cancelled = True

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if self._error is None and not self._cancelled:  # else only empty the queue, because `put` may block on it
                try:
                    self._work(item[0])
                except Exception as error:
                    self._error = error


def submit(work: Callable[[], Result]) -> Callable[[], Result]:
    """Start `work` on a thread. Returns a function that waits for it and returns its result or raises its exception.

    That function may be called any number of times.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def wait() -> Result:
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    return wait
