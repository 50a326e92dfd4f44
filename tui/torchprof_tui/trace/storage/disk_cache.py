"""Where the columns of a trace lie on disk: opened again, a trace is only mapped.

One folder per trace below the cache folder, named by a digest of the file's path, size, time of change and of this
program's version: what does not match is not found, and what is not found is rebuilt. A folder is written under
another name and renamed once it is whole, so a half-written one is never opened. Whoever uses a folder holds a
lock on it, so that nobody else's tidying takes the text of its args away.

Read before numpy is, on the way to the first frame: standard library only.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchprof_tui import __version__

FORMAT_VERSION = 1
"""Of these folders; the columns inside have a version of their own, which `store.open_trace` checks."""

LIMIT_BYTES = 4 << 30
"""Bytes kept over all traces; the oldest go first. Columns take a fifth of their JSON: this is some 20 GB of it."""

ORPHAN_SECONDS = 3600
"""A draft that nobody holds, untouched for so long, was left behind by a process that was killed."""

_DRAFT_PREFIX = ".draft-"
_LOCK_FILE = "lock"


@dataclass(eq=False, slots=True)
class CacheEntry:
    """One trace's folder: where its columns lie (`ready`), or where they are to be written.

    `key` is None for what cannot be recognised before it is opened (a pipe, another host, a URL), for a cache that is
    turned off and for one that cannot be written: the folder then lives as long as this object, or the process, unless
    it is published under an identity.
    """

    spec: str
    folder: Path
    key: str | None
    ready: bool = False
    lock_descriptor: int | None = None

    def publish(self, identity: str | None = None) -> None:
        """Call when the folder is whole: later openings find it. `identity`: of what is no local file, where known."""
        key = self.key
        if key is not None and _file_key(self.spec) != key:
            return  # a file that changed while it was read serves this session and no other
        if key is None and identity is not None and is_in_cache_folder(self.folder):
            key = _digest(identity)
        if self.ready or key is None:
            return
        final = cache_folder() / key
        try:
            self.folder.rename(final)
        except OSError:
            return  # somebody was faster; our copy is as good and goes when we do
        self.folder = final
        self.ready = True

    def close(self) -> None:
        """Let go of the folder; one that was not published is removed. May be called again."""
        _open_entries.discard(self)
        if not self.ready:
            shutil.rmtree(self.folder, ignore_errors=True)
        if self.lock_descriptor is not None:
            os.close(self.lock_descriptor)
            self.lock_descriptor = None

    def discard(self) -> None:
        """What lies here is damaged or of another version: remove it."""
        self.ready = False
        self.close()


_open_entries: set[CacheEntry] = set()


@atexit.register
def _close_entries() -> None:
    for place in list(_open_entries):
        place.close()


def cache_folder() -> Path:
    """`$TORCHPROF_TUI_CACHE`, else `$XDG_CACHE_HOME/torchprof-tui`, else `~/.cache/torchprof-tui`."""
    own = os.environ.get("TORCHPROF_TUI_CACHE")
    if own:
        return Path(own).absolute()
    home = os.environ.get("XDG_CACHE_HOME")
    base = Path(home) if home and os.path.isabs(home) else Path(os.path.expanduser("~/.cache"))
    return base / "torchprof-tui"


def find_or_create_entry(spec: str, cache: bool = True) -> CacheEntry:
    """The place of a trace: ready where it was opened before and has not changed, else an empty folder to fill.

    Never fails for the cache's sake; raises OSError only where not even a temporary folder can be made.
    """
    key = _file_key(spec) if cache else None
    if key is not None:
        folder = cache_folder() / key
        lock = _lock_folder(folder)
        if lock is not None:
            return _register_entry(CacheEntry(spec, folder, key, ready=True, lock_descriptor=lock))
    return create_draft(spec, key, cache)


def find_by_identity(spec: str, identity: str) -> CacheEntry | None:
    """As `find`, for what is no local file and told by `identity`; None where it is not kept."""
    folder = cache_folder() / _digest(identity)
    lock = _lock_folder(folder)
    return (
        None
        if lock is None
        else _register_entry(CacheEntry(spec, folder, folder.name, ready=True, lock_descriptor=lock))
    )


def is_cached(identity: str) -> bool:
    """Whether `find_identity` would find it now."""
    return (cache_folder() / _digest(identity) / _LOCK_FILE).exists()


def is_in_cache_folder(folder: Path) -> bool:
    """Whether a folder to fill lies where later openings look."""
    return folder.parent == cache_folder()


def create_draft(spec: str, key: str | None = None, cache: bool = True) -> CacheEntry:
    """An empty folder to fill: beside the cache's own, where a disk is; the system's temporary one as a last resort."""
    if cache:
        with contextlib.suppress(OSError):
            home = cache_folder()
            home.mkdir(parents=True, exist_ok=True, mode=0o700)  # names in a trace may be nobody else's business
            folder = Path(tempfile.mkdtemp(prefix=_DRAFT_PREFIX, dir=home))
            return _register_entry(CacheEntry(spec, folder, key, lock_descriptor=_lock_folder(folder, new=True)))
    return _register_entry(CacheEntry(spec, Path(tempfile.mkdtemp(prefix="torchprof-tui-")), None))


def prune_cache(limit: int = LIMIT_BYTES) -> int:
    """Remove the traces opened longest ago until the rest fits, and what dead processes left. Returns bytes freed."""
    freed = 0
    now = time.time()
    kept = []
    for entry in _scan_folders():
        if entry.is_draft and now - entry.last_used > ORPHAN_SECONDS:
            freed += _remove_folder(entry)
        elif not entry.is_draft:
            kept.append(entry)
    total = sum(entry.size for entry in kept)
    for entry in sorted(kept, key=lambda entry: entry.last_used):
        if total <= limit:
            break
        gone = _remove_folder(entry)
        freed += gone
        total -= gone
    return freed


def clear_cache() -> tuple[int, int]:
    """Remove all that nobody has open. Returns (traces removed, bytes freed)."""
    removed = freed = 0
    for entry in list(_scan_folders()):
        gone = _remove_folder(entry)
        freed += gone
        removed += bool(gone) and not entry.is_draft
    return removed, freed


def cache_usage() -> tuple[int, int]:
    """(traces kept, bytes they take)."""
    sizes = [entry.size for entry in _scan_folders() if not entry.is_draft]
    return len(sizes), sum(sizes)


@dataclass(frozen=True, slots=True)
class _FolderInfo:
    folder: Path
    size: int
    last_used: float  # when it was last opened, seconds since the epoch
    is_draft: bool


def _scan_folders() -> Iterator[_FolderInfo]:
    try:
        folders = [entry for entry in os.scandir(cache_folder()) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for folder in folders:
        # Only what has our lock in it is ours: the folder may be shared with something else by mistake.
        with contextlib.suppress(OSError):
            used = os.stat(os.path.join(folder.path, _LOCK_FILE)).st_mtime
            size = sum(file.lstat().st_size for file in Path(folder.path).rglob("*"))
            yield _FolderInfo(Path(folder.path), size, used, folder.name.startswith(_DRAFT_PREFIX))


def _remove_folder(entry: _FolderInfo) -> int:
    """Bytes freed; 0 where somebody has it open, or where it cannot be removed."""
    try:
        lock = os.open(entry.folder / _LOCK_FILE, os.O_RDWR)
    except OSError:
        return 0
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return 0
        # A file system without locks: removing what another reads costs that one its args, no more.
    doomed = entry.folder.with_name(f"{_DRAFT_PREFIX}gone-{os.getpid()}-{entry.folder.name.lstrip('.')}")
    try:
        entry.folder.rename(doomed)  # so that nobody finds half of it
        shutil.rmtree(doomed, ignore_errors=True)
        return entry.size
    except OSError:
        return 0
    finally:
        os.close(lock)


def _lock_folder(folder: Path, new: bool = False) -> int | None:
    """A shared lock on a folder, as an open file; None where there is no such folder, or it is being removed."""
    path = folder / _LOCK_FILE
    try:
        lock = os.open(path, os.O_RDWR | (os.O_CREAT if new else 0), 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            os.close(lock)
            return None
    if not path.exists():  # removed between the two calls
        os.close(lock)
        return None
    with contextlib.suppress(OSError):
        os.utime(lock)
    return lock


def _register_entry(place: CacheEntry) -> CacheEntry:
    _open_entries.add(place)
    return place


def _file_key(spec: str) -> str | None:
    """What a regular file is recognised by; None for everything else."""
    try:
        path = os.path.realpath(spec)
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    # The second time is the kernel's own: tools set the first one back, after they have written other bytes.
    return _digest(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_ctime_ns}")


def _digest(identity: str) -> str:
    text = f"{identity}\0{FORMAT_VERSION}\0{__version__}"
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=12).hexdigest()
