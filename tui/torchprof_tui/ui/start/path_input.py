"""A line to type a path on: the likely rest is shown as one types, and tab takes as much of it as is certain."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.suggester import Suggester
from textual.widgets import Input

from torchprof_tui.trace.specs.address import TRACE_SUFFIXES

MAX_ENTRIES = 5_000
"""Of a folder that are looked at: completion must answer while one types."""


class PathInput(Input):
    """An Input whose tab completes a path like a shell's."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", "complete", id="path.complete", tooltip="complete the path", show=False)
    ]

    def __init__(self, *, placeholder: str, id: str) -> None:  # noqa: A002  (textual's own word)
        super().__init__(
            placeholder=placeholder, id=id, suggester=_PathSuggester(), compact=True, select_on_focus=False
        )

    def action_complete(self) -> None:
        self.run_worker(self._complete(self.value), exclusive=True, group="complete")

    async def _complete(self, typed: str) -> None:
        found = await asyncio.to_thread(list_completions, typed)
        if found and self.value == typed:
            self.value = _common_prefix(found)
            self.cursor_position = len(self.value)


class _PathSuggester(Suggester):
    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        found = await asyncio.to_thread(list_completions, value)
        return found[0] if found else None


def list_completions(typed: str) -> list[str]:
    """Paths that begin as typed: folders (with a slash) and files, those that may be traces first. May be empty."""
    folder, slash, start = typed.rpartition("/")
    shown = folder + slash
    try:
        with os.scandir(os.path.expanduser(shown) or ".") as entries:
            found = list(_match_entries(entries, start))
    except OSError:
        return []
    return [shown + name for name in sorted(found, key=lambda name: (not name.endswith((*TRACE_SUFFIXES, "/")), name))]


def _common_prefix(names: list[str]) -> str:
    """The longest text that all begin with, as a shell completes: not up to the last slash."""
    first, last = min(names), max(names)
    same = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:same]


def _match_entries(entries: Iterable[os.DirEntry[str]], start: str) -> Iterable[str]:
    for seen, entry in enumerate(entries):
        if seen == MAX_ENTRIES:
            return
        hidden = entry.name.startswith(".") and not start.startswith(".")
        if entry.name.startswith(start) and not hidden:
            try:
                yield entry.name + "/" if entry.is_dir() else entry.name
            except OSError:
                continue
