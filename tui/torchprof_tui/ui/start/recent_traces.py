"""Which traces were opened lately: a small JSON file in the user's state folder.

Losing the list is harmless, so every failure to read or write it is silent.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from torchprof_tui.trace.specs.address import is_url

MAX_ENTRIES = 20
"""More than fits the start screen at once; older ones are forgotten."""


@dataclass(frozen=True, slots=True)
class RecentTrace:
    """A trace that was opened: `spec` as `open` takes it, `opened` in seconds since the epoch."""

    spec: str
    opened_at: float
    size: int | None  # bytes on disk now; None where it is no file, or has gone

    @property
    def is_missing(self) -> bool:
        return self.size is None


def state_file() -> Path:
    """`$XDG_STATE_HOME/torchprof-tui/recent.json`, beneath `~/.local/state` where that is not set."""
    home = os.environ.get("XDG_STATE_HOME")
    base = Path(home) if home and os.path.isabs(home) else Path.home() / ".local" / "state"
    return base / "torchprof-tui" / "recent.json"


def add_recent_trace(spec: str) -> None:
    """Put a trace first. Not remembered: pipes, which cannot be opened again, and URLs that may hold a secret."""
    if spec == "-" or _contains_secret(spec):
        return
    if os.path.exists(spec):
        spec = os.path.abspath(spec)
    kept = [entry for entry in _read_entries() if entry[0] != spec]
    try:
        path = state_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another instance may be reading: it sees the old list or the new one, never half of one.
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        draft.write_text(json.dumps([[spec, time.time()], *kept][:MAX_ENTRIES]), encoding="utf-8")
        draft.replace(path)
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return


def list_recent_traces() -> list[RecentTrace]:
    """The traces opened lately, newest first; local files that have gone are left out."""
    found = [RecentTrace(spec, opened, _file_size(spec)) for spec, opened in _read_entries()]
    return [entry for entry in found if not (entry.is_missing and os.path.isabs(entry.spec))]


def _contains_secret(spec: str) -> bool:
    """Whether it is a URL with a password in it, or signed: what follows a `?` lets anybody in."""
    if not is_url(spec):
        return False
    where, _, query = spec.partition("?")
    return bool(query) or "@" in where


def _read_entries() -> list[tuple[str, float]]:
    try:
        stored = json.loads(state_file().read_text(encoding="utf-8"))
        return [(str(spec), float(opened)) for spec, opened in stored]
    except (OSError, RuntimeError, ValueError, TypeError):
        return []


def _file_size(spec: str) -> int | None:
    try:
        return os.stat(spec).st_size
    except (OSError, ValueError):
        return None
