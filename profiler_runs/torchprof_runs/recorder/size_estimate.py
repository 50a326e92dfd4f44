"""How big a trace gets, told from one step of it, and the memory that a recording may take."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from .trace_export import MAX_TABLE_EVENTS, TraceCounts

# A trace beyond this opens slowly everywhere, and torch holds it in memory twice over while it writes it.
LARGE_TRACE_BYTES = 1_000_000_000  # bytes of JSON
COMPRESSION_RATIO = 16  # a trace's JSON is about this many times its .gz
# The profiler's own records and their JSON on the way out take about twice the JSON's size in memory.
MEMORY_PER_BYTE = 2
MEMORY_SHARE = 0.5  # of what is free as recording starts: saving it takes as much again
WATCH_INTERVAL_SECONDS = 0.2  # seconds
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
_CGROUP_MEMORY_PREFIX = "/sys/fs/cgroup/memory."


def format_size_estimate(
    step: TraceCounts, active: int, with_stack: bool, free_disk: int, free_memory: int | None
) -> tuple[str, bool]:
    """What a recording of `active` steps like `step` comes to, in one line, and whether that line is a warning."""
    total = step.bytes * active
    size = (
        f"one step is {step.events:,} events, {format_megabytes(step.bytes)} of trace: {active} steps make "
        f"{format_megabytes(total)} ({format_megabytes(total // COMPRESSION_RATIO)} compressed)"
    )
    limits = [LARGE_TRACE_BYTES, free_disk]
    if free_memory is not None:
        limits.append(int(free_memory * MEMORY_SHARE) // MEMORY_PER_BYTE)
    if total <= min(limits) or step.bytes == 0:
        return size, False
    why = (
        "more than the disk has room for"
        if total > free_disk
        else "more than memory has room for"
        if total > limits[-1] and free_memory is not None
        else "slow to write and to open"
    )
    fitting = max(1, min(limits) // step.bytes)
    better = f"--active {fitting}" if fitting < active else ""
    if with_stack:
        better = " or ".join(filter(None, [better, "leave out --with-stack"]))
    if step.events * active > MAX_TABLE_EVENTS:
        why += ", with no table"
    return f"{size}, {why}: better {better or 'a smaller step'}", True


def format_megabytes(count: int) -> str:
    if count < 1_000_000:
        return f"{max(1, round(count / 1e3)):,} kB"
    return f"{count / 1e6:,.1f} MB" if count < 10_000_000 else f"{count / 1e6:,.0f} MB"


def read_resident_memory() -> int | None:
    """This process's memory in bytes; None where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_SIZE
    except (OSError, ValueError, IndexError):
        return None


def read_available_memory() -> int | None:
    """Memory that this process can still take, in bytes: what the machine has free, or its container's rest."""
    found = []
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found += [int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:")]
        with (
            open(f"{_CGROUP_MEMORY_PREFIX}max", encoding="ascii") as limit,
            open(f"{_CGROUP_MEMORY_PREFIX}current", encoding="ascii") as used,
        ):
            found.append(int(limit.read()) - int(used.read()))
    except (OSError, ValueError):  # no Linux, no container, or a container without a limit ("max")
        pass
    return min(found, default=None)


class MemoryGuard:
    """Calls `full(growth)` once if this process grows by `limit` bytes between `start` and `stop`."""

    def __init__(self, limit: int | None, on_limit: Callable[[int], None]) -> None:
        self._limit, self._on_limit = limit, on_limit
        self._stop_event: threading.Event | None = None

    def start(self) -> None:
        """Watch from now on, in a thread, if it does not yet. Without a limit: half of what is free now."""
        if self._stop_event is not None:
            return
        self._stop_event = stopped = threading.Event()
        before, free = read_resident_memory(), read_available_memory()
        limit = self._limit if self._limit is not None else int(free * MEMORY_SHARE) if free is not None else None
        if before is not None and limit is not None:
            watch = threading.Thread(target=self._watch, args=(stopped, before, limit), name="torchprof-memory")
            watch.daemon = True
            watch.start()

    def stop(self) -> None:
        if self._stop_event is not None:
            self._stop_event.set()
            self._stop_event = None

    def _watch(self, stopped: threading.Event, before: int, limit: int) -> None:
        while not stopped.wait(WATCH_INTERVAL_SECONDS):
            growth = (read_resident_memory() or before) - before
            if growth > limit:
                self._on_limit(growth)
                return
