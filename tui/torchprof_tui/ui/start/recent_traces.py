"""The list of recently opened traces: a small JSON file in the user's state folder.

Losing the list is harmless, so errors of reading and writing it are ignored.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from torchprof_tui.trace.specs.address import is_url
from torchprof_tui.ui.start.local_traces import sum_trace_sizes

MAX_ENTRIES = 20
"""More than the start screen shows at once; older entries are removed."""


@dataclass(frozen=True, slots=True)
class RecentTrace:
    """A trace that was opened: `spec` as on the command line, `opened_at` in seconds since the epoch."""

    spec: str
    opened_at: float
    size: int | None  # bytes on disk now (a folder: of its traces); None if it is not local or does not exist any more

    @property
    def is_missing(self) -> bool:
        return self.size is None


def state_file() -> Path:
    """Return `$XDG_STATE_HOME/torchprof-tui/recent.json`; XDG_STATE_HOME is `~/.local/state` by default."""
    home = os.environ.get("XDG_STATE_HOME")
    base = Path(home) if home and os.path.isabs(home) else Path.home() / ".local" / "state"
    return base / "torchprof-tui" / "recent.json"


def add_recent_trace(spec: str) -> None:
    """Add a trace at the front. Skips pipes, which cannot be opened again, and URLs that may contain a secret."""
    if spec == "-" or _contains_secret(spec):
        return
    if os.path.exists(spec):
        spec = os.path.abspath(spec)
    others = [entry for entry in _read_entries() if entry[0] != spec]
    try:
        path = state_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written atomically: another instance that reads it meanwhile sees the old list or the new one.
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        draft.write_text(json.dumps([[spec, time.time()], *others][:MAX_ENTRIES]), encoding="utf-8")
        draft.replace(path)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home folder
        return


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
    try:
        entries = json.loads(state_file().read_text(encoding="utf-8"))
        return [(str(spec), float(opened_at)) for spec, opened_at in entries]
    except (OSError, RuntimeError, ValueError, TypeError):
        return []


def _file_size(spec: str) -> int | None:
    """Return the size in bytes; of a folder the sum of its traces'. None if it does not exist."""
    try:
        return sum_trace_sizes(Path(spec)) if os.path.isdir(spec) else os.stat(spec).st_size
    except (OSError, ValueError):
        return None
