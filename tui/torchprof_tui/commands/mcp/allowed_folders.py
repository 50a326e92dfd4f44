"""The folders that the server may read and write: every path that an agent gives is resolved and checked here."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchprof_samples import SAMPLES, find
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.trace.core.typed_json import MAX_TEXT
from torchprof_tui.trace.loading.capture_files import CAPTURE_FOLDER
from torchprof_tui.trace.specs.address import is_remote
from torchprof_tui.ui.start.local_traces import find_traces

SAMPLE_PREFIX = "sample:"
MAX_WALKED = 20_000
"""Names that are looked at below a folder."""

_SAMPLE_NAME = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
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
            return _find_sample(spec)
        if "\0" in spec or not 0 < len(spec) <= MAX_TEXT:
            raise UsageError("trace: that is no path")
        for candidate in self._list_candidates(spec):
            path = os.path.realpath(candidate)
            if not self._contains(path):
                continue
            if os.path.isdir(path):
                self._check_links(path, spec)
            elif not os.path.exists(path):
                continue
            elif not stat.S_ISREG(os.stat(path).st_mode):
                raise UsageError(f"{spec}: not a regular file")
            else:
                self._check_captures(path, spec)
            return AllowedPath(path, _shorten(candidate))
        if spec == "-" or is_remote(spec) or "://" in spec:
            raise UsageError(f"{spec}: only files in {self.description} and sample:NAME can be read here")
        if any(self._contains(os.path.realpath(candidate)) for candidate in self._list_candidates(spec)):
            raise UsageError(f"{spec}: no such file in {self.description}; overview without a trace lists them")
        raise UsageError(f"{spec}: outside of the folders of this server, {self.description}")

    def find_output(self, output: str, suffixes: tuple[str, ...]) -> Path:
        """Find where a new file is to be written. Nothing may be there yet."""
        if "\0" in output or not output.endswith(suffixes):
            raise UsageError(f"output: {output!r} ends in neither {' nor '.join(suffixes)}")
        base = output if os.path.isabs(output) else os.path.join(self._folders[0], output)
        folder, name = os.path.split(base)
        folder = os.path.realpath(folder)
        if not self._contains(folder):
            raise UsageError(f"output: {output}: outside of the folders of this server, {self.description}")
        if not os.path.isdir(folder):
            raise UsageError(f"output: {output}: no such folder")
        path = Path(folder, name)
        if os.path.lexists(path):
            raise UsageError(f"output: {output}: exists; nothing is overwritten, choose another name")
        return path

    def check_resolved(self, path: str, found: AllowedPath) -> None:
        """Check a file that a folder was expanded to."""
        real = os.path.realpath(path)
        if not self._contains(real) and not _is_within(real, found.path):
            raise UsageError(f"{found.spec}: it leads outside of the folders of this server")

    def list_traces(self) -> list[tuple[str, int]]:
        """List (path, bytes) of the traces in the folders, newest first; what links lead out to is left out."""
        return [
            (_shorten(str(found.path)), found.size)
            for folder in self._folders
            for found in find_traces(Path(folder))
            if self._contains(os.path.realpath(found.path))
        ]

    @property
    def description(self) -> str:
        return ", ".join(map(_shorten, self._folders))

    def _list_candidates(self, spec: str) -> list[str]:
        """List where a path may lead: as it is, else below the working folder and each of the folders."""
        if os.path.isabs(spec):
            return [spec]
        return [os.path.join(folder, spec) for folder in dict.fromkeys((os.getcwd(), *self._folders))]

    def _contains(self, path: str) -> bool:
        return any(_is_within(path, folder) for folder in self._folders)

    def _check_captures(self, path: str, spec: str) -> None:
        """Check the captures beside a trace, which are opened with it."""
        captures = os.path.join(os.path.dirname(path), CAPTURE_FOLDER)
        if os.path.isdir(captures):
            if not self._contains(os.path.realpath(captures)):
                raise UsageError(f"{spec}: {CAPTURE_FOLDER} is a link that leads outside of the folders of this server")
            self._check_links(captures, spec)

    def _check_links(self, folder: str, spec: str) -> None:
        """Check that no link below a folder of ranks leads out."""
        for walked, (base, folders, files) in enumerate(os.walk(folder)):
            if walked > MAX_WALKED:
                raise UsageError(f"{spec}: too many folders; name the folder of one run")
            for name in (*folders, *files):
                path = os.path.join(base, name)
                if os.path.islink(path) and not self._contains(os.path.realpath(path)):
                    raise UsageError(f"{spec}: {name} is a link that leads outside of the folders of this server")


def list_samples() -> list[str]:
    return [f"{SAMPLE_PREFIX}{sample.name}" for sample in SAMPLES]


def _find_sample(spec: str) -> AllowedPath:
    name = spec.removeprefix(SAMPLE_PREFIX)
    if not _SAMPLE_NAME.fullmatch(name):
        raise UsageError(f"{spec}: no such sample")
    try:
        return AllowedPath(str(find(name).path), f"{SAMPLE_PREFIX}{name}")
    except LookupError as error:
        raise UsageError(str(error.args[0])) from error


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _shorten(path: str) -> str:
    """Return a path relative to the working folder where it is in it, so that a command can be repeated there."""
    here = os.getcwd()
    short = os.path.relpath(path, here) if _is_within(path, here) else path
    return f"./{short}" if short.startswith("-") else short
