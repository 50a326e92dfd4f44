"""Keep the last traces open, with what was asked about them, by the identity of their files."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torchprof_tui.commands.mcp.allowed_folders import AllowedFolders, AllowedPath
from torchprof_tui.trace.loading.load_in_process import load_resolved
from torchprof_tui.trace.loading.open_or_build import OpenedTrace
from torchprof_tui.trace.loading.progress import ignore_progress
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.ssh_connections import SshConnections
from torchprof_tui.trace.storage.disk_cache import prune_cache

MAX_OPEN = 4
MAX_ANSWERS = 8
"""Answers that are kept of one trace."""

AnyKey = TypeVar("AnyKey", bound=Hashable)
Identity = tuple[tuple[str, int, int, int, int], ...]


@dataclass(eq=False, slots=True)
class OpenTrace:
    """An open trace. `spec`: what opens it on the command line; `answers`: documents by options of commands."""

    opened: OpenedTrace
    spec: str
    identity: Identity
    answers: OrderedDict[Hashable, dict[str, Any]] = field(default_factory=OrderedDict)

    @property
    def specs(self) -> tuple[str, ...]:
        """What a command about the trace takes as TRACE."""
        return (self.spec,)

    @property
    def trace(self) -> Trace:
        return self.opened.trace

    def recall(self, options: AnyKey, build: Callable[[OpenTrace, AnyKey], dict[str, Any]]) -> dict[str, Any]:
        """Return the document of a command, built at the first question. Do not change it."""
        if options not in self.answers:
            self.answers[options] = build(self, options)
            if len(self.answers) > MAX_ANSWERS:
                self.answers.popitem(last=False)
        self.answers.move_to_end(options)
        return self.answers[options]


class OpenTraces:
    """The traces that were asked about last. Not for several threads at once."""

    def __init__(self, folders: AllowedFolders) -> None:
        self._folders = folders
        self._open: OrderedDict[str, OpenTrace] = OrderedDict()

    def open(self, spec: str) -> OpenTrace:
        """Open a trace that may be read, again where its files changed. Raises UsageError, TraceError, OSError."""
        found = self._folders.find_trace(spec)
        known = self._open.get(found.path)
        if known is not None and known.identity == _identify(found.path):
            self._open.move_to_end(found.path)
            known.spec = found.spec
            return known
        if known is not None:
            self._close(found.path)
        self._open[found.path] = self._load(found)
        if len(self._open) > MAX_OPEN:
            self._close(next(iter(self._open)))
        return self._open[found.path]

    def close_all(self) -> None:
        for path in [*self._open]:
            self._close(path)

    def _load(self, found: AllowedPath) -> OpenTrace:
        identity = _identify(found.path)  # before it is read: a file that is replaced meanwhile is read again
        resolved = resolve_specs([found.path])
        for path in (resolved.path, *(file.spec for file in resolved.rank_files)):
            self._folders.check_resolved(path, found)
        with SshConnections() as connections:
            opened = load_resolved(resolved, connections, ignore_progress)
        if not opened.cached:
            prune_cache()
        return OpenTrace(opened, found.spec, identity)

    def _close(self, path: str) -> None:
        entry = self._open.pop(path).opened.cache_entry
        if entry is not None:
            entry.close()


def _identify(path: str) -> Identity:
    """Return what changes when a file, or a file of a folder, is replaced: inode, size and time of each."""
    paths = [path]
    if os.path.isdir(path):
        paths = sorted(entry.path for entry in os.scandir(path))
    return tuple(
        (each, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        for each, status in ((each, os.stat(each)) for each in paths)
    )
