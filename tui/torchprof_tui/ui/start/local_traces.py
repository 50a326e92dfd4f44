"""Find the traces in a folder quickly: by name, then by their first kilobytes.

The search is limited in entries, depth and time, because the folder may be a home folder on a slow network disk.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchprof_tui.trace.specs.address import is_key_averages_file, list_local_suffixes
from torchprof_tui.trace.specs.rank_files import read_trace_head

MAX_ENTRIES = 3_000
"""Directory entries that are examined; a folder of checkpoints and logs has fewer."""

MAX_DEPTH = 2
"""Tensorboard's handler writes to `./log/run1/x.pt.trace.json`."""

MAX_SECONDS = 0.5
"""Users do not wait longer for the list."""

SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "site-packages"})


@dataclass(frozen=True, slots=True)
class LocalTrace:
    """A file that looks like a trace."""

    path: Path
    size: int
    modified: float  # seconds since the epoch


def find_traces(folder: Path, limit: int = 50) -> list[LocalTrace]:
    """Find the traces in a folder and up to MAX_DEPTH below it, newest first; unreadable files are skipped."""
    deadline = time.monotonic() + MAX_SECONDS
    candidates = sorted(_scan_folder(folder, deadline), key=lambda candidate: -candidate.modified)
    traces: list[LocalTrace] = []
    for candidate in candidates:
        if len(traces) == limit or time.monotonic() > deadline:
            break
        if looks_like_trace(candidate.path):
            traces.append(candidate)
    return traces


def looks_like_trace(path: Path) -> bool:
    """Return whether the file begins like a trace. False if it cannot be read."""
    return read_trace_head(os.fspath(path)).looks_like_trace


def sum_trace_sizes(folder: Path) -> int:
    """Sum the sizes of the traces in a folder and below, bytes.

    Counts what has a suffix of traces, without reading it, within the limits of `find_traces`.
    """
    traces = _scan_folder(folder, time.monotonic() + MAX_SECONDS)
    return sum(trace.size for trace in traces if not is_key_averages_file(trace.path.name))


def _scan_folder(folder: Path, deadline: float) -> Iterator[LocalTrace]:
    """Yield the files with a suffix of traces, level by level, until MAX_ENTRIES or the deadline."""
    suffixes, remaining = list_local_suffixes(), MAX_ENTRIES
    folders = [os.fspath(folder)]
    for _ in range(MAX_DEPTH + 1):
        subfolders: list[str] = []
        for path in folders:
            try:
                entries = os.scandir(path)
            except OSError:
                continue
            with contextlib.suppress(OSError), entries:  # a network disk may fail between two entries
                for entry in entries:
                    remaining -= 1
                    if remaining < 0 or time.monotonic() > deadline:
                        return
                    if entry.name.startswith(".") or entry.name in SKIPPED_FOLDERS:
                        continue
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            subfolders.append(entry.path)
                        elif entry.name.endswith(suffixes) and entry.is_file():
                            status = entry.stat()
                            yield LocalTrace(Path(entry.path), status.st_size, status.st_mtime)
                    except OSError:
                        continue
        folders = subfolders
