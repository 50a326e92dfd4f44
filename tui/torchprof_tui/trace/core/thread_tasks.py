"""Run tasks that release the GIL (numpy on long arrays) side by side on threads.

The threads end before the call returns, or with `keep_threads`: a process with a second thread must not fork, and
decoders do.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from torchprof_tui.trace.core.arrays import I32, I64, Array, Bool, bincount_chunked, block_slices, take_chunked
from torchprof_tui.trace.core.process_state import count_cores

MIN_SLICE_SIZE = 1 << 18  # elements for which another thread pays

MAX_THREADS = 8  # more threads wait longer for the GIL than they save, and each has temporary memory of its own
_BLOCK = 1 << 16


Item = TypeVar("Item")
Result = TypeVar("Result")


class _KeptThreads:
    """Threads that wait for calls of `run_tasks`. Each call asks for some; it does not wait for those that are busy."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._free = 0  # threads that wait, less calls that wait
        self._closed = False
        self._lock = threading.Lock()

    def ask(self, help_call: Callable[[], None], count: int) -> None:
        """Let `count` threads call this as soon as they can."""
        with self._lock:
            if self._closed:
                return
            self._free -= count
            while self._free < 0 and len(self._threads) < 2 * MAX_THREADS:
                self._threads.append(threading.Thread(target=self._serve, name="build", daemon=True))
                self._threads[-1].start()
                self._free += 1
            for _ in range(count):
                self._calls.put(help_call)

    def _serve(self) -> None:
        while (help_call := self._calls.get()) is not None:
            help_call()
            with self._lock:
                self._free += 1

    def close(self) -> None:
        """End all threads, and wait for that."""
        with self._lock:
            self._closed = True
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join()


_kept: _KeptThreads | None = None


@contextmanager
def keep_threads() -> Iterator[None]:
    """Keep the threads of `run_tasks` from one call to the next: starting one takes as long as a short task."""
    global _kept
    if _kept is not None:
        yield
        return
    _kept = kept = _KeptThreads()
    try:
        yield
    finally:
        _kept = None
        kept.close()


def run_tasks(tasks: Sequence[Callable[[], object]], threads: int | None = None) -> None:
    """Run all tasks, started in their order, on at most `threads` threads, including this one.

    By default there are as many as cores, up to MAX_THREADS.

    Once a task has failed no further one begins; its exception is raised when all threads have ended with it.
    """
    count = min(len(tasks), MAX_THREADS if threads is None else threads)
    if count > 1 and threads is None:  # counting cores takes longer than a short task
        count = min(count, count_cores())
    kept = _kept if count > 1 else None
    if count > 1 and kept is None:
        with keep_threads():
            run_tasks(tasks, count)
        return
    errors: list[BaseException] = []
    waiting = iter(tasks)
    lock = threading.Lock()
    ended = threading.Condition(lock)
    active, closed = 0, False

    def run() -> None:
        while not errors:
            with lock:
                task = next(waiting, None)
            if task is None:
                return
            try:
                task()
            except BaseException as error:
                errors.append(error)

    def help_this_call() -> None:
        nonlocal active
        with lock:
            if closed:  # the others have done everything
                return
            active += 1
        run()
        with lock:
            active -= 1
            ended.notify()

    if kept is not None:
        kept.ask(help_this_call, count - 1)
    run()
    with lock:
        closed = True
        while active:
            ended.wait()
    if errors:
        raise errors[0]


def split_range(size: int) -> list[slice]:
    """Split the indexes of a column into slices, one for each thread that pays."""
    count = min(size // MIN_SLICE_SIZE, MAX_THREADS)
    count = min(count, count_cores()) if count > 1 else 1
    bounds = [size * k // count // _BLOCK * _BLOCK for k in range(count)] + [size]
    return [slice(begin, end) for begin, end in pairwise(bounds) if end > begin]


def run_slices(work: Callable[[slice], object], size: int) -> None:
    """Call `work` with slices that cover a column of this size, side by side."""
    run_tasks([lambda part=part: work(part) for part in split_range(size)])  # type: ignore[misc]


def run_blocks(work: Callable[[slice], object], size: int) -> None:
    """Call `work` with short slices that cover a column of this size, as `block_slices` does, side by side."""

    def run(part: slice) -> None:
        for block in block_slices(part.stop - part.start):
            work(slice(part.start + block.start, part.start + block.stop))

    run_slices(run, size)


def map_blocks(work: Callable[[slice], Result], size: int) -> list[Result]:
    """Return what `work` returns for each of the slices of `run_blocks`, in any order."""
    results: list[Result] = []
    run_blocks(lambda block: results.append(work(block)), size)
    return results


def find_indexes(condition: Callable[[slice], Bool], size: int) -> I32:
    """Find the indexes 0..size-1 where a condition holds, int32[k] ascending. `condition`: bool[block] of a block."""
    found: dict[int, I32] = {}

    def find(block: slice) -> None:
        indexes = np.flatnonzero(condition(block))
        if len(indexes):
            indexes += block.start
            found[block.start] = indexes.astype(np.int32)

    run_blocks(find, size)
    return np.concatenate([np.zeros(0, np.int32), *(found[start] for start in sorted(found))])


def bincount_parallel(values: Array, size: int) -> I64:
    """Count each of the values 0..size-1, int64[size], as `bincount_chunked` does, on several threads."""
    counts: list[I64] = []
    run_slices(lambda part: counts.append(bincount_chunked(values[part], size)), len(values))
    return sum(counts, np.zeros(size, np.int64))


def accumulate_parallel(operation: np.ufunc, column: I64) -> None:
    """Compute the sum (np.add) or the maximum (np.maximum) of each value and all before it, in place."""
    parts = split_range(len(column))
    run_tasks([partial(operation.accumulate, column[part], out=column[part]) for part in parts])
    before = operation.accumulate(np.array([column[part.stop - 1] for part in parts[:-1]], np.int64))
    rest = zip(parts[1:], before, strict=True)
    run_tasks([partial(operation, column[part], last, out=column[part]) for part, last in rest])


def take_parallel(
    column: npt.NDArray[Any], indices: npt.NDArray[np.integer[Any]], out: npt.NDArray[Any] | None = None
) -> npt.NDArray[Any]:
    """Return `column[indices]` as `take_chunked` does, on several threads for long columns."""
    target = np.empty(len(indices), column.dtype) if out is None else out
    run_slices(lambda part: take_chunked(column, indices[part], target[part]), len(indices))
    return target


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
