"""Name the folders that tests read: the repository, its samples, the shared traces, fixtures and goldens."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_traces" / "torchprof_samples"
FIXTURES = ROOT / "tests" / "fixtures"
SNAPSHOTS = ROOT / "tests" / "snapshots"
SHARED_TRACES = ROOT / "../shared/traces"
"""Real traces that are not part of the repository; tests that need them skip where the folder is missing."""

_TRACE_SUFFIXES = (".json", ".json.gz")
_OTHER_SUFFIXES = (".key_averages.json", "execution_details.json")
_OTHER_FOLDERS = ("stragglers", "memory")
"""Folders of shared data that hold other kinds of JSON than traces."""


def find_shared_traces() -> list[Path]:
    """List the shared files that are traces, sorted; without the 338 MB one, which is packed as .xz."""
    return sorted(
        path
        for path in SHARED_TRACES.rglob("*")
        if path.is_file()
        and path.name.endswith(_TRACE_SUFFIXES)
        and not path.name.endswith(_OTHER_SUFFIXES)
        and path.relative_to(SHARED_TRACES).parts[0] not in _OTHER_FOLDERS
    )
