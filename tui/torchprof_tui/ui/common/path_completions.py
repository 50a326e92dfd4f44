"""Complete and replace what is typed into an input."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os

from textual.widgets import Input

from torchprof_tui.trace.specs.address import is_key_averages_file, list_local_suffixes
from torchprof_tui.ui.common.cell_text import find_common_prefix

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


async def complete_path(field: Input, only_traces: bool = False) -> None:
    """Type what all completions of a path share, as a shell does. Reads the folder on a thread."""
    typed = field.value
    completed = find_common_prefix(await asyncio.to_thread(list_completions, typed, only_traces))
    if completed and field.value == typed:
        type_text(field, completed)


def type_text(field: Input, text: str) -> None:
    """Replace the text of an input, with the cursor at its end."""
    field.value = text
    field.cursor_position = len(text)
