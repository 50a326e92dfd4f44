"""Input for a path: suggests a completion while the user types; tab completes the part that is unambiguous."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

from textual.suggester import Suggester
from textual.widgets import Input

from torchprof_tui.trace.specs.address import list_local_suffixes
from torchprof_tui.ui.common import keys

MAX_ENTRIES = 5_000
"""Entries of a folder that are examined; completion must keep up with typing."""


class PathInput(Input):
    """An Input whose tab completes a path like a shell's."""

    BINDINGS = keys.PATH_INPUT

    def __init__(self, *, placeholder: str, id: str) -> None:  # noqa: A002  (textual's own word)
        super().__init__(
            placeholder=placeholder, id=id, suggester=_PathSuggester(), compact=True, select_on_focus=False
        )

    def action_complete(self) -> None:
        self.run_worker(self._complete(self.value), exclusive=True, group="complete")

    async def _complete(self, typed: str) -> None:
        completions = await asyncio.to_thread(list_completions, typed)
        if completions and self.value == typed:
            self.value = _common_prefix(completions)
            self.cursor_position = len(self.value)


class _PathSuggester(Suggester):
    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        completions = await asyncio.to_thread(list_completions, value)
        return completions[0] if completions else None


def list_completions(typed: str) -> list[str]:
    """List the paths that begin as typed: folders (with a slash) and possible traces first, then other files."""
    folder, slash, prefix = typed.rpartition("/")
    parent = folder + slash
    try:
        with os.scandir(os.path.expanduser(parent) or ".") as entries:
            names = list(_match_entries(entries, prefix))
    except (OSError, ValueError):  # ValueError: a NUL in what was pasted
        return []
    known = (*list_local_suffixes(), "/")
    names.sort(key=lambda name: (not name.endswith(known), name))
    return [parent + name for name in names]


def _common_prefix(names: list[str]) -> str:
    """Return the longest common prefix, character by character as in a shell."""
    first, last = min(names), max(names)
    length = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:length]


def _match_entries(entries: Iterable[os.DirEntry[str]], prefix: str) -> Iterable[str]:
    for index, entry in enumerate(entries):
        if index == MAX_ENTRIES:
            return
        is_hidden = entry.name.startswith(".") and not prefix.startswith(".")
        if entry.name.startswith(prefix) and not is_hidden:
            try:
                yield entry.name + "/" if entry.is_dir() else entry.name
            except OSError:
                continue
