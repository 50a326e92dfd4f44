"""Write files for the user: to a temporary name in the same folder, renamed when complete, with one-line errors.

Everything that the program writes where the user says (slices, tables, snapshots) is written here.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from torchprof_tui.trace.core.late_regex import compile_later

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MAX_NAME_BYTES = 255  # longest file name of the usual file systems (ext4, XFS, APFS, NTFS), in bytes of UTF-8

_BUFFER_BYTES = 1 << 18

_MAX_SHOWN_PATH = 120  # characters of a path that an error quotes: one line


class OutputError(Exception):
    """A file was not written; `str()` is one line that names it."""


def expand_path(text: str) -> Path:
    """Expand a leading `~` of a path that the user typed. Raises OutputError where there is no home folder."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise OutputError(f"{_shorten(text)}: the home folder is unknown; write the whole path") from error


_TRACE_SUFFIX = compile_later(r"(\.pt)?(\.trace)?\.json(\.\w+)?$")
_UNSAFE_CHARACTERS = compile_later(r"[^\w.+-]+")
_MAX_STEM_LENGTH = 80


def make_file_stem(label: str) -> str:
    """Make the beginning of a file's name of that of a trace: its last part without ending, in safe characters."""
    name = label.rstrip("/").replace("\\", "/").replace(":", "/").rpartition("/")[2]
    return _UNSAFE_CHARACTERS.sub("_", _TRACE_SUFFIX.sub("", name))[:_MAX_STEM_LENGTH] or "trace"


def shorten_file_name(stem: str, suffix: str, max_bytes: int = MAX_NAME_BYTES) -> str:
    """Join a stem and a suffix, the stem cut so that the name has at most `max_bytes` bytes in UTF-8."""
    room = max(max_bytes - len(os.fsencode(suffix)), 0)
    name = os.fsencode(stem)
    if len(name) <= room:
        return stem + suffix
    return name[:room].decode(errors="ignore") + suffix


def check_target(path: Path) -> bool:
    """Return whether a file exists at `path`. Raises OutputError if it can be no file: a folder, a name too long, …"""
    if len(os.fsencode(path.name)) > MAX_NAME_BYTES:
        raise OutputError(f"{_shorten(path)}: the name is longer than {MAX_NAME_BYTES} bytes; choose a shorter one")
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = None
    except (OSError, ValueError) as error:
        raise _describe_error(path, error) from error
    if mode is not None and stat.S_ISDIR(mode):
        raise OutputError(f"{_shorten(path)}: that is a folder; add a file name")
    if mode is None and not path.parent.is_dir():
        raise OutputError(f"{_shorten(path.parent)}: no such folder")
    return mode is not None


@contextlib.contextmanager
def open_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` on success and is deleted on failure.

    A symbolic link stays, and its target is replaced; a replaced file keeps its permissions. Raises OutputError if the
    file cannot be opened or written; exceptions of the body pass through, so that an OSError is one of reading.
    """
    exists = check_target(path)
    with _describe_errors(path):
        target = path.resolve() if path.is_symlink() else path
        is_regular = not exists or target.is_file()  # else a device or a pipe
        draft = target.with_name(f".torchprof-tui-{os.getpid()}-{os.urandom(4).hex()}.part") if is_regular else target
        file = io.BufferedWriter(_OutputFile(path, draft, "x" if is_regular else "w"), _BUFFER_BYTES)
    try:
        with file:
            if exists and is_regular:
                with contextlib.suppress(OSError):
                    os.chmod(draft, stat.S_IMODE(target.stat().st_mode))
            yield file
        if is_regular:
            with _describe_errors(path):
                draft.replace(target)
    finally:
        if is_regular:
            with contextlib.suppress(OSError):
                draft.unlink()


class _OutputFile(io.FileIO):
    """A file whose errors of writing are OutputErrors that name `path`, not the temporary name `draft`."""

    def __init__(self, path: Path, draft: Path, mode: str) -> None:
        self._path = path
        super().__init__(draft, mode)

    def write(self, data: ReadableBuffer, /) -> int:
        with _describe_errors(self._path):
            return super().write(data)

    def close(self) -> None:
        with _describe_errors(self._path):
            super().close()


@contextlib.contextmanager
def _describe_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _describe_error(path, error) from error


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write a whole file; text as UTF-8, what is no valid Unicode as `?`. Raises OutputError."""
    with open_atomically(path) as file:
        file.write(data.encode(errors="replace") if isinstance(data, str) else data)


def _describe_error(path: Path, error: OSError | ValueError) -> OutputError:
    """Describe in one line why a file cannot be written. The name in the error itself may be a temporary one."""
    if isinstance(error, ValueError):
        return OutputError(f"{_shorten(path)}: not a valid file name")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return OutputError(f"{_shorten(path.parent)}: no such folder")
    if error.errno == errno.ENOSPC:
        return OutputError(f"{_shorten(path)}: no space left on the device; nothing was written")
    return OutputError(f"{_shorten(path)}: {error.strerror or error}")


def _shorten(path: Path | str) -> str:
    text = str(path)
    return text if len(text) <= _MAX_SHOWN_PATH else text[: _MAX_SHOWN_PATH - 1] + "…"
