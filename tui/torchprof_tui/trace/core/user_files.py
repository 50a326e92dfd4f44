"""Find and write files of this user: the state folder, absolute paths, files that are replaced as a whole."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def find_home_folder() -> Path | None:
    """Return the user's home folder; None if HOME is empty or relative, or if HOME is unset and the user has none."""
    home = os.path.expanduser("~")
    return Path(home) if os.path.isabs(home) and os.environ.get("HOME") != "" else None


def find_state_folder() -> Path | None:
    """Return `$XDG_STATE_HOME/torchprof-tui`, by default below `~/.local/state`; None if no home folder was found."""
    configured = os.environ.get("XDG_STATE_HOME")
    if configured and os.path.isabs(configured):
        return Path(configured) / "torchprof-tui"
    home = find_home_folder()
    return None if home is None else home / ".local" / "state" / "torchprof-tui"


def create_state_folder() -> Path:
    """Return the state folder, created readable by this user only. Raises OSError if that is impossible."""
    folder = find_state_folder()
    if folder is None:
        raise FileNotFoundError("no home folder was found")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # created by an earlier version, which let others read it
        if folder.stat().st_mode & 0o077:
            folder.chmod(0o700)
    return folder


def make_absolute(path: str) -> str:
    """Return `path` as an absolute one; unchanged if the current folder does not exist any more."""
    try:
        return os.path.abspath(path)
    except OSError:
        return path


def replace_file(path: str | os.PathLike[str], data: bytes, mode: int = 0o666) -> None:
    """Write `data` to `path` completely, or leave it as it was; `mode` is reduced by the umask. Raises OSError.

    The temporary name does not contain the file's name, so it is never longer than the file system takes.
    """
    draft = os.path.join(os.path.dirname(path), f".draft-{os.getpid()}-{os.urandom(4).hex()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
