"""Complete a path that is being typed."""

from __future__ import annotations

import contextlib
import itertools
import os

from torchprof_tui.trace.specs.address import is_key_averages_file, list_local_suffixes

MAX_ENTRIES = 5_000  # entries of a folder that are examined; completion must keep up with typing


def list_completions(typed: str, only_traces: bool = False) -> list[str]:
    """List the paths that begin as typed: folders (with a slash) and possible traces first, then other files."""
    folder, slash, prefix = typed.rpartition("/")
    parent = folder + slash
    names: list[str] = []
    try:
        with os.scandir(os.path.expanduser(parent) or ".") as entries:
            for entry in itertools.islice(entries, MAX_ENTRIES):
                is_hidden = entry.name.startswith(".") and not prefix.startswith(".")
                if entry.name.startswith(prefix) and not is_hidden and not is_key_averages_file(entry.name):
                    with contextlib.suppress(OSError):
                        names.append(entry.name + "/" if entry.is_dir() else entry.name)
    except (OSError, ValueError):  # ValueError: a NUL in what was pasted
        return []
    known = (*list_local_suffixes(), "/")
    names.sort(key=lambda name: (not name.endswith(known), name))
    return [parent + name for name in names if not only_traces or name.endswith(known)]
