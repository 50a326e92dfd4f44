"""Settings and resources of the process: the cores it may use, the switch interval and the garbage collector.

In the middle of a process the last two are changed only through the context managers, which restore the previous value,
so that nested uses and tests do not disturb each other.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

JOBS = "TORCHPROF_TUI_JOBS"
"""Environment variable, set by `--jobs`: the most processes that read one trace. Worker processes inherit it."""

MAX_JOBS = 1024

DECODER_NICE_LEVEL = 4  # `nice` level of a decoder, so that the UI and a running training job keep priority

_CGROUP_FILE = "/proc/self/cgroup"
_CGROUP_ROOT = "/sys/fs/cgroup"
_CPU_ROOTS = ("cpu", "cpu,cpuacct", "cpuacct,cpu")  # folders of the cpu controller of cgroup version 1


def count_cores() -> int:
    try:
        cores = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not Linux
        cores = os.cpu_count() or 1
    quota = read_cgroup_quota(_CGROUP_FILE, _CGROUP_ROOT)
    if quota is not None:
        cores = min(cores, int(quota))
    jobs = os.environ.get(JOBS, "")
    if jobs.isascii() and jobs.isdigit() and int(jobs):
        cores = min(cores, int(jobs))
    return max(cores, 1)


def lower_priority() -> None:
    """Give other programs priority over this process, if it has not been done yet."""
    os.nice(max(DECODER_NICE_LEVEL - os.nice(0), 0))


def read_cgroup_quota(cgroup_file: str, root: str) -> float | None:
    """Read how many cores the cgroups of this process allow at a time, None without a limit.

    `cgroup_file` has a line "hierarchy:controllers:path" for each hierarchy, mounted below `root`. The limit of each
    parent holds as well. In a container the path may be that of the host, which does not exist there: the cgroup of
    the container is then mounted as the root.
    """
    folders = []
    for line in _read_lines(cgroup_file):
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy != "0" and "cpu" not in controllers.split(","):
            continue
        names = [name for name in path.split("/") if name not in ("", "..")]
        for mount in [root] if hierarchy == "0" else [f"{root}/{name}" for name in _CPU_ROOTS]:
            folders += ["/".join([mount, *names[:depth]]) for depth in range(len(names) + 1)]
    return min((quota for quota in map(_read_quota, folders) if quota is not None), default=None)


def read_cgroup_memory(root: str = _CGROUP_ROOT) -> int | None:
    """Read how many bytes the cgroup of a container still allows, None without a limit."""
    limit = "".join(_read_lines(f"{root}/memory.max") or _read_lines(f"{root}/memory/memory.limit_in_bytes"))
    used = "".join(_read_lines(f"{root}/memory.current") or _read_lines(f"{root}/memory/memory.usage_in_bytes"))
    return max(int(limit) - int(used), 0) if limit.isdigit() and used.isdigit() else None


def _read_quota(folder: str) -> float | None:
    """Read the limit of one cgroup: `cpu.max` of version 2, two files of version 1; None without one."""
    fields = " ".join(_read_lines(f"{folder}/cpu.max")).split()
    fields = fields or _read_lines(f"{folder}/cpu.cfs_quota_us") + _read_lines(f"{folder}/cpu.cfs_period_us")
    try:
        quota, period = map(int, fields)
    except ValueError:  # "max", or no such cgroup
        return None
    return quota / period if quota > 0 and period > 0 else None


def _read_lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except (OSError, ValueError):
        return []


@contextmanager
def use_switch_interval(seconds: float) -> Iterator[None]:
    """Set how long a thread keeps the GIL while another one waits for it; Python's default is 5 ms.

    A thread that returns from a system call or from numpy to Python waits that long for a busy thread, so threads that
    work in short bursts beside one that runs Python all the time need a shorter interval.
    """
    previous = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(previous)


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Disable the cyclic collector.

    Decoding creates millions of short-lived dicts and no cycles; the collector would traverse them again and again and
    double the time. Reference counts free them without it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def start_without_collections() -> None:
    """Disable the cyclic collector at the start of a process, until `freeze_imported_objects`.

    At the end, no collection visits what is left: the process gives its memory back as a whole.
    """
    gc.disable()
    atexit.register(gc.freeze)


def freeze_imported_objects() -> None:
    """Exclude all objects so far from collections, and enable the collector, where it is disabled."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
