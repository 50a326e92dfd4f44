"""Count the processes that the program starts by multiprocessing: the profiler of this process does not record them."""

from __future__ import annotations

import functools
import multiprocessing.process
import os
from collections import Counter
from typing import Any

_LOADER_MODULE = "torch.utils.data._utils.worker"
_SPAWN_MODULE = "torch.multiprocessing.spawn"
_HELPER_MODULES = ("multiprocessing.managers", "multiprocessing.resource_sharer")
"""Modules of targets that do no work of the program."""


class ChildProcessCounter:
    """Count started children by what they run. Forked children count nothing."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self.loader_workers = 0
        self.functions: Counter[str] = Counter()

    def install(self) -> None:
        """Wrap the method that starts a process of multiprocessing, also of torch's spawn and DataLoader."""
        process: Any = multiprocessing.process.BaseProcess
        original_start = process.start

        @functools.wraps(original_start)
        def counting_start(instance: Any) -> None:
            # Read before: a started process forgets them.
            target, arguments = getattr(instance, "_target", None), getattr(instance, "_args", ())
            original_start(instance)
            if os.getpid() == self._pid:
                self._count(target, arguments, type(instance).__name__)

        process.start = counting_start

    def _count(self, target: Any, arguments: tuple[Any, ...], class_name: str) -> None:
        module = getattr(target, "__module__", "") or ""
        if module == _LOADER_MODULE:
            self.loader_workers += 1
        elif module not in _HELPER_MODULES:
            if module == _SPAWN_MODULE and arguments:  # torch's wrapper of the program's function
                target = arguments[0]
            self.functions[str(getattr(target, "__qualname__", class_name))] += 1

    def describe(self) -> list[str]:
        """Return a line for each kind of children that were not recorded, and how to record what they do."""
        lines = []
        count = sum(self.functions.values())
        if count:
            names = ", ".join(list(self.functions)[:3]) + (", …" if len(self.functions) > 3 else "")
            lines.append(
                f"not recorded: {count} process{'' if count == 1 else 'es'} that the program started ({names}); ranks "
                "are recorded if torchrun or --nproc starts them, a running process by torchprof-tui attach"
            )
        if self.loader_workers:
            plural = "" if self.loader_workers == 1 else "s"
            lines.append(
                f"not recorded: {self.loader_workers} DataLoader worker{plural}; the trace has the wait for them, and "
                "num_workers=0 records what they do"
            )
        return lines
