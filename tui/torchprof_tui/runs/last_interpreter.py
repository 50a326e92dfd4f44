"""The interpreter of the last run that recorded a trace: one line in the user's state folder.

Losing it is harmless, so errors of reading and writing are ignored.
"""

from __future__ import annotations

import contextlib
import os

from torchprof_tui.trace.core.user_files import create_state_folder, find_state_folder, replace_file

FILE_NAME = "interpreter.txt"
MAX_BYTES = 4096
"""Linux takes paths of at most this length."""


def remember_interpreter(path: str) -> None:
    """Store the absolute path of an interpreter that has just recorded a trace."""
    with contextlib.suppress(OSError, ValueError):
        replace_file(create_state_folder() / FILE_NAME, os.fsencode(path), mode=0o600)


def recall_interpreter() -> str | None:
    """Return the stored interpreter if it can still be executed, else None."""
    folder = find_state_folder()
    if folder is None:
        return None
    try:
        with open(folder / FILE_NAME, "rb") as file:
            path = os.fsdecode(file.read(MAX_BYTES + 1))
        is_usable = os.path.isabs(path) and path.isprintable() and os.access(path, os.X_OK)
    except (OSError, ValueError):
        return None
    return path if is_usable else None
