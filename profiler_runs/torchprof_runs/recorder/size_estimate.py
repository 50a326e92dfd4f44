"""Estimate the size of a trace from one of its steps, and limit the memory of a recording."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import NamedTuple

from .trace_export import MAX_TABLE_EVENTS, TraceCounts

# A larger trace opens slowly in every viewer, and torch holds it in memory twice while it writes it.
LARGE_TRACE_BYTES = 1_000_000_000  # bytes of JSON
COMPRESSION_RATIO = 16  # size of the JSON divided by the size of its .gz
# The profiler's records and the JSON that is made from them take about twice the JSON's size in memory.
MEMORY_PER_BYTE = 2
MEMORY_SHARE = 0.5  # of the memory that is free when recording starts: saving takes as much again
WATCH_INTERVAL_SECONDS = 0.2  # seconds
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
_CGROUP_MEMORY_PREFIX = "/sys/fs/cgroup/memory."


class SizeEstimate(NamedTuple):
    """Expected size of a recording: `text` in one line, `bytes` of JSON.

    `warning`: more than a limit. `fitting_steps`: the number of steps that stays within the limits, at least 1.
    """

    text: str
    warning: bool
    bytes: int
    fitting_steps: int


def estimate_size(
    step: TraceCounts,
    active: int,
    with_stack: bool,
    free_disk: int,
    free_memory: int | None,
    large: int = LARGE_TRACE_BYTES,
) -> SizeEstimate:
    """Estimate the size of a recording of `active` steps like `step`.

    `free_disk`, `free_memory` and `large`, above which a trace is slow to handle, are bytes.
    """
    total = step.bytes * active
    size = (
        f"one step is {step.events:,} events, {format_megabytes(step.bytes)} of trace: {active} steps make "
        f"{format_megabytes(total)} ({format_megabytes(total // COMPRESSION_RATIO)} compressed)"
    )
    limits = [large, free_disk]
    if free_memory is not None:
        limits.append(int(free_memory * MEMORY_SHARE) // MEMORY_PER_BYTE)
    if total <= min(limits) or step.bytes == 0:
        return SizeEstimate(size, False, total, active)
    reason = (
        "more than the free disk space"
        if total > free_disk
        else "more than the free memory"
        if total > limits[-1] and free_memory is not None
        else "slow to write and to open"
    )
    fitting_steps = max(1, min(limits) // step.bytes)
    advice = f"--active {fitting_steps}" if fitting_steps < active else ""
    if with_stack:
        advice = " or ".join(filter(None, [advice, "leave out --with-stack"]))
    if step.events * active > MAX_TABLE_EVENTS:
        reason += ", too many events for torch's table"
    text = f"{size}, {reason}: better {advice or 'a smaller step'}"
    return SizeEstimate(text, True, total, min(fitting_steps, active))


def format_megabytes(count: int) -> str:
    """Format a number of bytes as MB, or as kB below 1 MB."""
    if count < 1_000_000:
        return f"{max(1, round(count / 1e3)):,} kB"
    return f"{count / 1e6:,.1f} MB" if count < 10_000_000 else f"{count / 1e6:,.0f} MB"


def read_resident_memory() -> int | None:
    """Read the resident memory of this process in bytes; None if the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_SIZE
    except (OSError, ValueError, IndexError):
        return None


def read_available_memory() -> int | None:
    """Read the bytes that this process can still allocate: the smaller of the machine's and the container's."""
    available = []
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            available += [int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:")]
        with (
            open(f"{_CGROUP_MEMORY_PREFIX}max", encoding="ascii") as limit,
            open(f"{_CGROUP_MEMORY_PREFIX}current", encoding="ascii") as used,
        ):
            available.append(int(limit.read()) - int(used.read()))
    except (OSError, ValueError):  # not Linux, no container, or a container without a limit ("max")
        pass
    return min(available, default=None)


class MemoryGuard:
    """Call `on_limit(growth)` once if this process grows by `limit` bytes between `start` and `stop`."""

    def __init__(self, limit: int | None, on_limit: Callable[[int], None]) -> None:
        self._limit, self._on_limit = limit, on_limit
        self._stop_event: threading.Event | None = None

    def start(self) -> None:
        """Start watching in a thread, unless it runs already. Without a limit: half of what is free now."""
        if self._stop_event is not None:
            return
        self._stop_event = stop_event = threading.Event()
        initial, free = read_resident_memory(), read_available_memory()
        limit = self._limit if self._limit is not None else int(free * MEMORY_SHARE) if free is not None else None
        if initial is not None and limit is not None:
            thread = threading.Thread(target=self._watch, args=(stop_event, initial, limit), name="torchprof-memory")
            thread.daemon = True
            thread.start()

    def stop(self) -> None:
        if self._stop_event is not None:
            self._stop_event.set()
            self._stop_event = None

    def _watch(self, stop_event: threading.Event, initial: int, limit: int) -> None:
        while not stop_event.wait(WATCH_INTERVAL_SECONDS):
            growth = (read_resident_memory() or initial) - initial
            if growth > limit:
                self._on_limit(growth)
                return
