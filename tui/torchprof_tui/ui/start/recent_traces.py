"""The traces that the start screen offers: those opened recently, and those in a folder.

The list of recent ones is a small JSON file in the user's state folder. Losing it is harmless, so errors of reading and
writing it are ignored, and a damaged list is an empty one. A folder is searched by name, then by the first kilobytes of
its files, limited in entries, depth and time, because it may be a home folder on a slow network disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from torchprof_tui.runs.history import read_request
from torchprof_tui.trace.core.errors import UnreadableFileError
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.typed_json import MAX_UNIX_SECONDS, is_storable, read_typed_file
from torchprof_tui.trace.core.typed_json import Path as PathText
from torchprof_tui.trace.core.user_files import create_state_folder, find_state_folder, replace_file
from torchprof_tui.trace.specs.address import ListedTrace, is_key_averages_file, is_url, list_local_suffixes
from torchprof_tui.trace.specs.rank_files import read_trace_head

MAX_SCANNED = 3_000  # directory entries that are examined; a folder of checkpoints and logs has fewer
MAX_DEPTH = 2  # TensorBoard's handler writes to `./log/run1/x.pt.trace.json`
MAX_SECONDS = 0.5  # users do not wait longer for the list

SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "site-packages"})


def find_traces(folder: Path, limit: int = 50) -> list[ListedTrace]:
    """Find the traces in a folder and up to MAX_DEPTH below it, newest first; unreadable files are skipped."""
    deadline = time.monotonic() + MAX_SECONDS
    candidates = sorted(_scan_folder(folder, deadline), key=lambda candidate: -candidate.modified)
    traces: list[ListedTrace] = []
    for candidate in candidates:
        if len(traces) == limit or time.monotonic() > deadline:
            break
        if read_trace_head(candidate.spec).looks_like_trace:
            traces.append(candidate)
    return traces


def sum_trace_sizes(folder: Path) -> int:
    """Sum the sizes of the traces in a folder and below, bytes.

    Counts what has a suffix of traces, without reading it, within the limits of `find_traces`.
    """
    traces = _scan_folder(folder, time.monotonic() + MAX_SECONDS)
    return sum(trace.size or 0 for trace in traces if not is_key_averages_file(os.path.basename(trace.spec)))


def _scan_folder(folder: Path, deadline: float) -> Iterator[ListedTrace]:
    """Yield the files with a suffix of traces, level by level, until MAX_SCANNED or the deadline."""
    suffixes, remaining = list_local_suffixes(), MAX_SCANNED
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
                            yield ListedTrace(str(Path(entry.path)), status.st_size, status.st_mtime)
                    except OSError:
                        continue
        folders = subfolders


MAX_ENTRIES = 20  # more than the start screen shows at once; older entries are removed
MAX_BYTES = 1 << 20  # size of the file; MAX_ENTRIES paths of the greatest length have a tenth of it

RecentFile = Annotated[tuple[tuple[PathText, float], ...], Meta(max_length=1_000)]
"""(spec, Unix seconds when it was opened) of each trace, newest first."""


@record
class RecentTrace:
    """A trace that was opened: `spec` as on the command line, `opened_at` in seconds since the epoch."""

    spec: str
    opened_at: float
    size: int | None  # bytes on disk now (a folder: of its traces); None if it is not local or does not exist any more

    @property
    def is_missing(self) -> bool:
        return self.size is None


def state_file() -> Path | None:
    """Return the path of the list; None if there is no home folder."""
    folder = find_state_folder()
    return folder / "recent.json" if folder is not None else None


def add_recent_trace(spec: str) -> None:
    """Add a trace at the front. Skips pipes, which cannot be opened again, and URLs that may contain a secret."""
    if spec == "-" or _contains_secret(spec) or not is_storable(spec):
        return
    with contextlib.suppress(OSError):
        if os.path.exists(spec):
            spec = os.path.abspath(spec)
        others = [entry for entry in _read_entries() if entry[0] != spec]
        entries = [(spec, min(max(time.time(), 0.0), MAX_UNIX_SECONDS)), *others][:MAX_ENTRIES]
        create_state_folder()
        if (path := state_file()) is not None and is_storable(spec):
            replace_file(path, json.dumps(entries).encode("ascii"), mode=0o600)


def list_recent_traces() -> list[RecentTrace]:
    """List the recently opened traces, newest first, without local files that do not exist any more."""
    traces = [RecentTrace(spec, opened_at, _file_size(spec)) for spec, opened_at in _read_entries()]
    return [trace for trace in traces if not (trace.is_missing and os.path.isabs(trace.spec))]


def _contains_secret(spec: str) -> bool:
    """Return whether a URL contains a password, or a query, which may be a signature that grants access."""
    if not is_url(spec):
        return False
    address, _, query = spec.partition("?")
    return bool(query) or "@" in address


def _read_entries() -> list[tuple[str, float]]:
    """Read the list, each spec once. A time that cannot be is moved to the nearest one that can."""
    path = state_file()
    if path is None:
        return []
    try:
        entries = read_typed_file(path, RecentFile, MAX_BYTES)
    except (UnreadableFileError, OSError):
        return []
    now = time.time()
    opened: dict[str, float] = {}
    for spec, opened_at in entries:
        opened.setdefault(spec, min(max(opened_at, 0.0), now))
    return list(opened.items())[:MAX_ENTRIES]


def _file_size(spec: str) -> int | None:
    """Return the size in bytes; of a folder the sum of its traces'. None if it does not exist."""
    try:
        return sum_trace_sizes(Path(spec)) if os.path.isdir(spec) else os.stat(spec).st_size
    except (OSError, ValueError):
        return None


MAX_COMMAND_CHARACTERS = 200


def read_commands(specs: Iterable[str]) -> dict[str, str]:
    """Read the command of each trace that was recorded by a run: spec → command. Reads a small file for each."""
    commands: dict[str, str] = {}
    for spec in specs:
        try:
            stored = read_request(spec)
        except (UnreadableFileError, OSError, ValueError):
            continue
        if stored is not None:
            commands[spec] = shlex.join(stored.request.command)[:MAX_COMMAND_CHARACTERS]
    return commands
