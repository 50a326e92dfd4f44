"""The traces that an agent may ask about: below the folders of the server, every path resolved and checked; the last
ones are kept open, with what was asked about them, by the identity of their files."""

from __future__ import annotations

import os
import re
import stat
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from torchprof_samples import SAMPLES, find
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.typed_json import MAX_TEXT
from torchprof_tui.trace.loading.capture_files import CAPTURE_FOLDER
from torchprof_tui.trace.loading.load_in_process import load_resolved
from torchprof_tui.trace.loading.open_or_build import OpenedTrace
from torchprof_tui.trace.loading.progress import ignore_progress
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.ssh_connections import SshConnections
from torchprof_tui.trace.specs.address import is_remote
from torchprof_tui.trace.storage.disk_cache import prune_cache
from torchprof_tui.ui.start.recent_traces import find_traces

MAX_OPEN = 4
MAX_ANSWERS = 8  # answers that are kept of one trace

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
        identity = _identify(found.path)  # before it is read: a file that is replaced meanwhile is read again
        resolved = resolve_specs([found.path])
        for path in map(os.path.realpath, (resolved.path, *(file.spec for file in resolved.rank_files))):
            if not self._folders.contains(path) and not _is_within(path, found.path):
                raise UsageError(f"{found.spec}: it leads outside of the folders of this server")
        with SshConnections() as connections:
            opened = load_resolved(resolved, connections, ignore_progress)
        if not opened.cached:
            prune_cache()
        self._open[found.path] = OpenTrace(opened, found.spec, identity)
        if len(self._open) > MAX_OPEN:
            self._close(next(iter(self._open)))
        return self._open[found.path]

    def close_all(self) -> None:
        for path in [*self._open]:
            self._close(path)

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


SAMPLE_PREFIX = "sample:"
MAX_WALKED = 20_000  # names that are looked at below a folder

_SAMPLE_NAME = re.compile(r"[A-Za-z0-9_]+")


@record
class AllowedPath:
    """A trace that may be read: its resolved `path`, and the `spec` that opens it on the command line."""

    path: str
    spec: str


class AllowedFolders:
    """The folders given at the start, resolved. All methods raise UsageError with one line."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = [os.path.realpath(folder) for folder in folders]
        for given, folder in zip(folders, self._folders, strict=True):
            if not os.path.isdir(folder):
                raise UsageError(f"{given}: no such folder")

    def find_trace(self, spec: str) -> AllowedPath:
        """Find a trace or a folder of ranks that may be read."""
        if spec.startswith(SAMPLE_PREFIX):
            name = spec.removeprefix(SAMPLE_PREFIX)
            if not _SAMPLE_NAME.fullmatch(name):
                raise UsageError(f"{spec}: no such sample")
            try:
                return AllowedPath(str(find(name).path), f"{SAMPLE_PREFIX}{name}")
            except LookupError as error:
                raise UsageError(str(error.args[0])) from error
        if "\0" in spec or not 0 < len(spec) <= MAX_TEXT:
            raise UsageError("trace: that is no path")
        for candidate in self._list_candidates(spec):
            path = os.path.realpath(candidate)
            if not self.contains(path):
                continue
            if os.path.isdir(path):
                self._check_links(path, spec)
            elif not os.path.exists(path):
                continue
            elif not stat.S_ISREG(os.stat(path).st_mode):
                raise UsageError(f"{spec}: not a regular file")
            else:
                captures = os.path.join(os.path.dirname(path), CAPTURE_FOLDER)
                if os.path.isdir(captures):
                    if not self.contains(os.path.realpath(captures)):
                        raise UsageError(
                            f"{spec}: {CAPTURE_FOLDER} is a link that leads outside of the folders of this server"
                        )
                    self._check_links(captures, spec)
            return AllowedPath(path, _shorten(candidate))
        if spec == "-" or is_remote(spec) or "://" in spec:
            raise UsageError(f"{spec}: only files in {self.description} and sample:NAME can be read here")
        if any(self.contains(os.path.realpath(candidate)) for candidate in self._list_candidates(spec)):
            raise UsageError(f"{spec}: no such file in {self.description}; overview without a trace lists them")
        raise UsageError(f"{spec}: outside of the folders of this server, {self.description}")

    def find_output(self, output: str, suffixes: tuple[str, ...]) -> Path:
        """Find where a new file is to be written. Nothing may be there yet."""
        if "\0" in output or not output.endswith(suffixes):
            raise UsageError(f"output: {output!r} ends in neither {' nor '.join(suffixes)}")
        base = output if os.path.isabs(output) else os.path.join(self._folders[0], output)
        folder, name = os.path.split(base)
        folder = os.path.realpath(folder)
        if not self.contains(folder):
            raise UsageError(f"output: {output}: outside of the folders of this server, {self.description}")
        if not os.path.isdir(folder):
            raise UsageError(f"output: {output}: no such folder")
        path = Path(folder, name)
        if os.path.lexists(path):
            raise UsageError(f"output: {output}: exists; nothing is overwritten, choose another name")
        return path

    def list_traces(self) -> list[tuple[str, int]]:
        """List (path, bytes) of the traces in the folders, newest first; what links lead out to is left out."""
        return [
            (_shorten(found.spec), found.size or 0)
            for folder in self._folders
            for found in find_traces(Path(folder))
            if self.contains(os.path.realpath(found.spec))
        ]

    @property
    def description(self) -> str:
        return ", ".join(map(_shorten, self._folders))

    def _list_candidates(self, spec: str) -> list[str]:
        """List where a path may lead: as it is, else below the working folder and each of the folders."""
        if os.path.isabs(spec):
            return [spec]
        return [os.path.join(folder, spec) for folder in dict.fromkeys((os.getcwd(), *self._folders))]

    def contains(self, path: str) -> bool:
        return any(_is_within(path, folder) for folder in self._folders)

    def _check_links(self, folder: str, spec: str) -> None:
        """Check that no link below a folder of ranks leads out."""
        for walked, (base, folders, files) in enumerate(os.walk(folder)):
            if walked > MAX_WALKED:
                raise UsageError(f"{spec}: too many folders; name the folder of one run")
            for name in (*folders, *files):
                path = os.path.join(base, name)
                if os.path.islink(path) and not self.contains(os.path.realpath(path)):
                    raise UsageError(f"{spec}: {name} is a link that leads outside of the folders of this server")


def list_samples() -> list[str]:
    return [f"{SAMPLE_PREFIX}{sample.name}" for sample in SAMPLES]


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _shorten(path: str) -> str:
    """Return a path relative to the working folder where it is in it, so that a command can be repeated there."""
    here = os.getcwd()
    short = os.path.relpath(path, here) if _is_within(path, here) else path
    return f"./{short}" if short.startswith("-") else short
