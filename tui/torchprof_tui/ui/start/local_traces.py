"""Traces in a folder, found quickly: by name, then by a look at the first kilobytes.

The search is bounded in entries, depth and time, because the folder may be a home folder on a slow network disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchprof_tui.trace.specs.address import TRACE_SUFFIXES
from torchprof_tui.trace.specs.rank_files import read_trace_head

MAX_ENTRIES = 3_000
"""Directory entries looked at: a folder of checkpoints and logs has fewer."""

MAX_DEPTH = 2
"""`./log/run1/x.pt.trace.json` is where tensorboard's handler puts them."""

MAX_SECONDS = 0.5
"""A list that comes later than this is not a list that one waits for."""

SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "site-packages"})


@dataclass(frozen=True, slots=True)
class LocalTrace:
    """A file that looks like a trace."""

    path: Path
    size: int
    modified: float  # seconds since the epoch


def find_traces(folder: Path, limit: int = 50) -> list[LocalTrace]:
    """The traces in and just below a folder, newest first; whatever cannot be read is skipped."""
    until = time.monotonic() + MAX_SECONDS
    named = sorted(_scan_folder(folder, until), key=lambda found: -found.modified)
    traces: list[LocalTrace] = []
    for found in named:
        if len(traces) == limit or time.monotonic() > until:
            break
        if looks_like_trace(found.path):
            traces.append(found)
    return traces


def looks_like_trace(path: Path) -> bool:
    """Whether the beginning of the file reads like trace events. False where it cannot be read."""
    return read_trace_head(os.fspath(path)).looks_like_trace


def _scan_folder(folder: Path, until: float) -> Iterator[LocalTrace]:
    left = MAX_ENTRIES
    level = [os.fspath(folder)]
    for _ in range(MAX_DEPTH + 1):
        below: list[str] = []
        for place in level:
            try:
                entries = os.scandir(place)
            except OSError:
                continue
            with entries:
                for entry in entries:
                    left -= 1
                    if left < 0 or time.monotonic() > until:
                        return
                    if entry.name.startswith(".") or entry.name in SKIPPED_FOLDERS:
                        continue
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            below.append(entry.path)
                        elif entry.name.endswith(TRACE_SUFFIXES) and entry.is_file():
                            status = entry.stat()
                            yield LocalTrace(Path(entry.path), status.st_size, status.st_mtime)
                    except OSError:
                        continue
        level = below
