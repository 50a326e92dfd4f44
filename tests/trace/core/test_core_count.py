"""Test the number of cores: affinity, limits of cgroups of both versions, `--jobs`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchprof_tui.trace.core import process_state
from torchprof_tui.trace.core.process_state import JOBS, count_cores, read_cgroup_quota


def write_cgroups(folder: Path, lines: str, files: dict[str, str]) -> tuple[str, str]:
    """Write the file of this process's cgroups, and the files below their root."""
    for name, text in files.items():
        path = folder / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "cgroup").write_text(lines)
    return str(folder / "cgroup"), str(folder / "root")


@pytest.mark.parametrize(
    ("lines", "files", "expected"),
    [
        ("0::/job/step", {"job/step/cpu.max": "250000 100000\n"}, 2.5),
        ("0::/job/step", {"job/step/cpu.max": "max 100000\n", "job/cpu.max": "400000 100000\n"}, 4.0),
        ("0::/job", {"job/cpu.max": "max 100000\n"}, None),
        ("0::/../host/path", {"cpu.max": "100000 100000\n"}, 1.0),
        (
            "4:cpuacct,cpu:/a\n2:memory:/b",
            {"cpu/a/cpu.cfs_quota_us": "300000", "cpu/a/cpu.cfs_period_us": "100000"},
            3.0,
        ),
        ("4:cpu:/a", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, None),
        ("0::/", {"cpu.max": "nonsense"}, None),
        ("0::/", {"cpu.max": "100000 0"}, None),
        ("nonsense", {}, None),
    ],
)
def test_quota_of_cgroups(tmp_path: Path, lines: str, files: dict[str, str], expected: float | None) -> None:
    assert read_cgroup_quota(*write_cgroups(tmp_path, lines, files)) == expected


def test_no_file_of_cgroups(tmp_path: Path) -> None:
    assert read_cgroup_quota(str(tmp_path / "missing"), str(tmp_path)) is None


@pytest.mark.parametrize(
    ("affinity", "quota", "jobs", "expected"),
    [
        (8, "max 100000", "", 8),
        (8, "350000 100000", "", 3),
        (8, "50000 100000", "", 1),
        (2, "350000 100000", "", 2),
        (8, "max 100000", "5", 5),
        (2, "max 100000", "5", 2),
        (8, "max 100000", "0", 8),
        (8, "max 100000", "many", 8),
    ],
)
def test_the_smallest_limit_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, affinity: int, quota: str, jobs: str, expected: int
) -> None:
    cgroup_file, root = write_cgroups(tmp_path, "0::/", {"cpu.max": quota})
    monkeypatch.setattr(process_state, "_CGROUP_FILE", cgroup_file)
    monkeypatch.setattr(process_state, "_CGROUP_ROOT", root)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)))
    monkeypatch.setenv(JOBS, jobs)
    assert count_cores() == expected
