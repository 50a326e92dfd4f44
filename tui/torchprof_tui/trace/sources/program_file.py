"""Read a file of the program that a trace was recorded from, where it is readable on this machine.

The trace is untrusted and names any path: only regular files of text and limited size are read, without following a
FIFO or a device, and only when the user opens one.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from torchprof_tui.trace.core.column_file import open_unbuffered
from torchprof_tui.trace.core.errors import ConnectionLostError, TraceError
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.sources.ssh_stream import SHELL_FUNCTIONS, SshStream
from torchprof_tui.trace.specs.address import SshPath, is_url, parse_ssh_path

MAX_FILE_BYTES = 2_000_000  # files above this size are refused: source files are a hundred times smaller
MAX_SEARCHED_FOLDERS = 4_000  # folders below the current one that are searched for a file, breadth first

MAX_PARENTS = 3
"""Folders above the trace's in which a relative file is looked for: traces often lie in `runs/NAME/` of a project."""

_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages", "dist-packages", "venv", "env", "build"})


@record
class ProgramFile:
    """A file of the program. `place`: its path here, or `host:path`. `lines`: without line breaks, as in the file."""

    place: str
    lines: tuple[str, ...]


def read_local_program_file(file: str, trace_file: str, cwd: Path) -> ProgramFile:
    """Read a file by the name that a frame recorded. Raises TraceError (one line) if it is not readable here.

    Tried in turn: the path itself if absolute; below `cwd`, below the folder of `trace_file` and its parents; a file
    below `cwd` whose path ends alike, if it is the only one.
    """
    path = find_local_program_file(file, trace_file, cwd)
    return ProgramFile(str(path), decode_program_text(_read_regular_file(path), str(path)))


def find_local_program_file(file: str, trace_file: str, cwd: Path) -> Path:
    """Find the path of a file that a frame recorded; see `read_local_program_file`. Raises TraceError."""
    for candidate in _list_candidates(file, trace_file, cwd):
        with contextlib.suppress(OSError, ValueError):  # a name that is too long, or no permission on the way
            if candidate.exists():
                return candidate
    matches = _find_by_suffix(split_path(file), cwd)
    below = clean(str(cwd))
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise TraceError(f"{clean(file)}: not found, and {len(matches)} files below {below} have the same name")
    raise TraceError(f"{clean(file)}: no such file here, nor below {below}")


def decode_program_text(data: bytes, place: str) -> tuple[str, ...]:
    """Decode the text of a program file to its lines. Raises TraceError for binary, empty and too large files."""
    if len(data) > MAX_FILE_BYTES:
        raise TraceError(f"{clean(place)}: larger than {MAX_FILE_BYTES // 1_000_000} MB: not a source file")
    if not data:
        raise TraceError(f"{clean(place)}: the file is empty")
    if b"\0" in data:
        raise TraceError(f"{clean(place)}: a binary file, not text")
    text = data.decode("utf-8-sig", errors="replace")
    return tuple(text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n"))


def split_path(file: str) -> list[str]:
    """Split a recorded path, of POSIX or Windows, into its parts without root, drive and `.`."""
    return [part for part in re.split(r"[/\\]", file) if part not in ("", ".") and not re.fullmatch("[A-Za-z]:", part)]


def is_absolute(file: str) -> bool:
    """Tell whether a recorded path is absolute on the machine that recorded it."""
    return file.startswith(("/", "\\")) or re.match(r"[A-Za-z]:[/\\]", file) is not None


def _list_candidates(file: str, trace_file: str, cwd: Path) -> Iterator[Path]:
    if "\0" in file or file.startswith("<"):
        return
    if is_absolute(file):
        yield Path(file)
        return
    yield cwd / file
    # Unlike Path.expanduser and Path.absolute, these need neither a home folder nor a current one.
    folder = (cwd / os.path.expanduser(trace_file)).parent if trace_file else cwd
    yield folder / file
    for parent in list(folder.parents)[:MAX_PARENTS]:
        yield parent / file


def _find_by_suffix(parts: Sequence[str], cwd: Path) -> list[Path]:
    """Find the files below a folder whose paths share the longest ending with `parts`, at least the name.

    Of an ending of several parts at least two must agree: `model.py` alone says little about `mine/model.py`.
    """
    if not parts or "\0" in "".join(parts) or parts[-1].startswith("<"):
        return []
    least = min(len(parts), 2)
    found: dict[Path, int] = {}
    for path in _walk(cwd, parts[-1]):
        length = 0
        for mine, theirs in zip(reversed(path.parts), reversed(parts), strict=False):
            if mine != theirs:
                break
            length += 1
        if length >= least:
            found[path] = length
    longest = max(found.values(), default=0)
    return sorted(path for path, length in found.items() if length == longest)


def _walk(top: Path, name: str) -> Iterator[Path]:
    """Yield the files of a name below a folder; skips hidden and installed folders, follows no links."""
    folders = [top]
    for number, folder in enumerate(folders):
        if number >= MAX_SEARCHED_FOLDERS:
            return
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if not entry.name.startswith(".") and entry.name not in _SKIPPED_FOLDERS:
                            folders.append(Path(entry.path))
                    elif entry.name == name and entry.is_file():
                        yield Path(entry.path)
        except OSError:
            continue


def _read_regular_file(path: Path) -> bytes:
    """Read a regular file. A FIFO or device is refused without waiting for it. Raises TraceError."""
    try:
        with open_unbuffered(path) as file:
            data = b""
            while len(data) <= MAX_FILE_BYTES and (part := file.read(MAX_FILE_BYTES + 1 - len(data))):
                data += part
            return data
    except (OSError, ValueError) as error:
        raise TraceError(f"{clean(str(path))}: {getattr(error, 'strerror', None) or error}") from error


_SCRIPT = r"""
export LC_ALL=C;
SAY
i=0;
for p do
  if [ -f "$p" ]; then
    if [ -r "$p" ]; then
      m file $i;
      exec head -c LIMIT <"$p";
    fi;
    m denied; exit 0;
  fi;
  if [ -e "$p" ]; then m special; exit 0; fi;
  i=$((i+1));
done;
m missing
""".replace("SAY", SHELL_FUNCTIONS).replace("LIMIT", str(MAX_FILE_BYTES + 1))
"""Sends the first of several paths that is a regular file. One line, without single quotes and exclamation marks."""

_REASONS = {
    "missing": "no such file on {host}",
    "denied": "no permission to read it on {host}",
    "special": "not a regular file on {host}",
}


class ProgramFileReader:
    """Read one file by the name that a frame recorded. `read` blocks: call it on a thread; `cancel` ends it.

    `trace_file`: the trace as the user named it; from `host:path` the file is read on that host first, then here.
    """

    def __init__(self, file: str, trace_file: str, cwd: Path) -> None:
        self._file, self._trace_file, self._cwd = file, trace_file, cwd
        self._stream: SshStream | None = None
        self._cancelled = False
        self._remote: SshPath | None = None
        with contextlib.suppress(TraceError):
            self._remote = parse_ssh_path(trace_file)

    def read(self) -> ProgramFile:
        """Read the file. Raises TraceError (one line) if it is not readable."""
        if self._remote is None:
            return read_local_program_file(self._file, "" if is_url(self._trace_file) else self._trace_file, self._cwd)
        try:
            return self._read_from_host(self._remote)
        except TraceError as error:
            try:
                return read_local_program_file(self._file, "", self._cwd)
            except TraceError:
                raise error from None

    def _read_from_host(self, trace: SshPath) -> ProgramFile:
        """Read the file. Raises TraceError (one line) if the host has none, or cannot be reached."""
        paths = list_remote_candidates(self._file, trace)
        if not paths:
            raise TraceError(f"{clean(self._file)}: no path on {trace.host_name}")
        stream = self._stream = SshStream(_SCRIPT, paths)
        try:
            if self._cancelled:  # before there was a stream to stop
                raise TraceError(f"{clean(self._file)}: cancelled")
            kind, *fields = stream.read_header().split(" ")
            if kind != "file":
                reason = _REASONS.get(kind, "unexpected answer from {host}")
                raise TraceError(f"{clean(self._file)}: {reason.format(host=trace.host_name)}")
            index = int(fields[0]) if len(fields) == 1 and re.fullmatch("[0-9]{1,3}", fields[0]) else len(paths)
            if index >= len(paths):
                raise TraceError(f"{clean(self._file)}: unexpected answer from {trace.host_name}")
            path = paths[index]
            data = b""
            while len(data) <= MAX_FILE_BYTES and (part := stream.read(1 << 16)):
                data += part
        except ConnectionLostError as error:
            raise TraceError(f"{clean(self._file)}: {error}") from error
        finally:
            stream.close()
        return ProgramFile(path.spec, decode_program_text(data, path.spec))

    def cancel(self) -> None:
        """End the connection, if there is one; `read` then raises TraceError."""
        self._cancelled = True
        if self._stream is not None:
            self._stream.stop()


def list_remote_candidates(file: str, trace: SshPath) -> Sequence[SshPath]:
    """List the paths on the trace's host that a recorded file may have, best first.

    An absolute path is the only one; a relative one may be below the trace's folder, its parents, or the home folder.
    """
    if "\0" in file or "\n" in file or file.startswith("<"):
        return []
    if is_absolute(file):
        paths = [file]
    else:
        folder = PurePosixPath(trace.path or ".").parent
        folders = dict.fromkeys([folder, *list(folder.parents)[:MAX_PARENTS], PurePosixPath(".")])
        paths = [str(each / file) for each in folders]
        paths = [f"./{path}" if file.startswith("~") and path == file else path for path in paths]  # no home folder
    return [replace(trace, path=path, spec=trace.spec_for_path(path)) for path in paths]
