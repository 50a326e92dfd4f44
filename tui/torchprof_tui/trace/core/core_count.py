"""Count the cores that this process may use: its affinity, the limits of its cgroups, and `--jobs`."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

JOBS = "TORCHPROF_TUI_JOBS"
"""Environment variable, set by `--jobs`: the most processes that read one trace. Worker processes inherit it."""

DECODER_NICE_LEVEL = 4
"""`nice` level of a decoder, so that the UI and a running training job keep priority."""

_CGROUP_FILE = Path("/proc/self/cgroup")
_CGROUP_ROOT = Path("/sys/fs/cgroup")
_CPU_ROOTS = ("cpu", "cpu,cpuacct", "cpuacct,cpu")
"""Folders of the cpu controller of cgroup version 1."""


def count_cores() -> int:
    """Count the cores to use, at least 1."""
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


def read_cgroup_quota(cgroup_file: Path, root: Path) -> float | None:
    """Read how many cores the cgroups of this process allow at a time, None without a limit.

    `cgroup_file` has a line "hierarchy:controllers:path" for each hierarchy, mounted below `root`. The limit of each
    parent holds as well. In a container the path may be that of the host, which does not exist there: the cgroup of
    the container is then mounted as the root.
    """
    try:
        lines = cgroup_file.read_text().splitlines()
    except (OSError, ValueError):
        return None
    quotas = []
    for line in lines:
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy != "0" and "cpu" not in controllers.split(","):
            continue
        relative = PurePosixPath(path.lstrip("/"))
        folders = [relative, *relative.parents] if ".." not in relative.parts else [PurePosixPath()]
        for mount in [root] if hierarchy == "0" else [root / name for name in _CPU_ROOTS]:
            quotas += [_read_quota(mount / folder) for folder in folders]
    return min((quota for quota in quotas if quota is not None), default=None)


def _read_quota(folder: Path) -> float | None:
    """Read the limit of one cgroup: `cpu.max` of version 2, two files of version 1."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        cores = int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # no limit ("max"), or no such cgroup
        return None
    return cores if cores > 0 else None
