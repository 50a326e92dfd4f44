"""Names of recorded traces on the start screen: by their run, with the command that it recorded."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from torchprof_tui.runs.history import read_request
from torchprof_tui.trace.core.errors import UnreadableFileError

MAX_COMMAND_CHARACTERS = 200


def name_trace(path: Path) -> str:
    """Name a trace by its run (``train-20260101-120000 rank1``), by its file where it is not in a run's folder.

    All runs of a program have the same file names, so only the folder distinguishes them.
    """
    stem, *parts = path.name.partition(".pt.trace.json")[0].split(".")
    is_run = path.parent.name.startswith(f"{stem}-")
    return " ".join([path.parent.name, *parts]) if is_run else path.name


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
