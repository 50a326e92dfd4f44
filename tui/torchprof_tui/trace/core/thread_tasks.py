"""Run tasks that release the GIL (numpy on long arrays) side by side on threads, which end before the call returns.

No thread is kept: a process with a second thread must not fork, and decoders do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from torchprof_tui.trace.core.arrays import take_chunked
from torchprof_tui.trace.core.core_count import count_cores

MIN_SLICE_SIZE = 1 << 18
"""Elements for which another thread pays."""

MAX_THREADS = 16

_BLOCK = 1 << 16


def run_tasks(tasks: Sequence[Callable[[], object]], threads: int | None = None) -> None:
    """Run all tasks on at most so many threads (None: the cores), including this one, in their order.

    Once a task has failed no further one begins; its exception is raised when all threads have ended.
    """
    count = min(len(tasks), MAX_THREADS, count_cores() if threads is None else threads)
    errors: list[BaseException] = []
    waiting = iter(tasks)
    lock = threading.Lock()

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

    others = [threading.Thread(target=run, name="build", daemon=True) for _ in range(count - 1)]
    for thread in others:
        thread.start()
    run()
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]


def split_range(size: int) -> list[slice]:
    """Split the indexes of a column into slices, one for each thread that pays."""
    count = max(min(size // MIN_SLICE_SIZE, MAX_THREADS, count_cores()), 1)
    bounds = [size * k // count // _BLOCK * _BLOCK for k in range(count)] + [size]
    return [slice(begin, end) for begin, end in pairwise(bounds) if end > begin]


def run_slices(work: Callable[[slice], object], size: int) -> None:
    """Call `work` with slices that cover a column of this size, side by side."""
    run_tasks([lambda part=part: work(part) for part in split_range(size)])  # type: ignore[misc]


def take_parallel(
    column: npt.NDArray[Any], indices: npt.NDArray[np.integer[Any]], out: npt.NDArray[Any] | None = None
) -> npt.NDArray[Any]:
    """Return `column[indices]` as `take_chunked` does, on several threads for long columns."""
    target = np.empty(len(indices), column.dtype) if out is None else out
    run_slices(lambda part: take_chunked(column, indices[part], target[part]), len(indices))
    return target
