"""Name the folders that tests read: the repository, its samples, the shared traces, fixtures and goldens."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from torchprof_tui.trace.storage.disk_cache import TAG_FILE

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_traces" / "torchprof_samples"
FIXTURES = ROOT / "tests" / "fixtures"
SNAPSHOTS = ROOT / "tests" / "snapshots"
SHARED_TRACES = ROOT / "../shared/traces"
"""Real traces that are not part of the repository; tests that need one skip where it is missing."""
KEPT_TRACES = FIXTURES / "traces"
"""Small ones of them, and cuts of others, which are in every checkout."""

_TRACE_SUFFIXES = (".json", ".json.gz")
_OTHER_SUFFIXES = (".key_averages.json", "execution_details.json", "et.json.gz")
"""Ends of names of other files than traces: the profiler's own table, TensorBoard's details, Chakra's operators."""

_OTHER_FOLDERS = ("stragglers", "memory")
"""Folders of shared data that hold other kinds of JSON than traces."""

LONG_TRACE_BYTES = 250_000
"""Stored size from which tests of every shared trace leave a file to the long run: 28 of 147 files, 91 % of all."""


def is_long(*paths: Path) -> bool:
    """Whether files together are as large as one that is left to the long run."""
    return sum(path.stat().st_size for path in paths if path.exists()) >= LONG_TRACE_BYTES


def name_trace(path: Path) -> str:
    """Return the path of a trace below the folder of shared traces, or of those in the repository."""
    return next(
        (str(path.relative_to(each)) for each in (SHARED_TRACES, KEPT_TRACES) if each in path.parents), path.name
    )


def mark_long_traces(paths: Iterable[Path]) -> list[Any]:
    """Make a parameter of each trace, named by its path; large ones are left to the long run."""
    return [pytest.param(path, marks=pytest.mark.long if is_long(path) else (), id=name_trace(path)) for path in paths]


def find_shared_trace(name: str) -> Path:
    """Find a file or folder among the shared traces, or where it is missing, among those of the repository."""
    shared = SHARED_TRACES / name
    return shared if shared.exists() or not (KEPT_TRACES / name).exists() else KEPT_TRACES / name


def find_shared_traces() -> list[Path]:
    """List the shared files that are traces, sorted by name; without the 338 MB one, which is packed as .xz."""
    names = {
        str(path.relative_to(folder))
        for folder in (SHARED_TRACES, KEPT_TRACES)
        for path in folder.rglob("*")
        if path.is_file()
        and path.name.endswith(_TRACE_SUFFIXES)
        and not path.name.endswith(_OTHER_SUFFIXES)
        and path.relative_to(folder).parts[0] not in _OTHER_FOLDERS
    }
    return [find_shared_trace(name) for name in sorted(names)]


def list_cache(folder: Path) -> list[str]:
    """List the names in a cache folder, without the tag that marks it."""
    return sorted({path.name for path in folder.iterdir()} - {TAG_FILE})
