"""The disk cache of decoded traces: a trace that is opened again is only mapped.

Each trace has a folder below the cache folder, named by a digest of the file's path, size and times of change and of
this program's version; without a match it is built again. A folder is written as a draft and renamed once it is
complete, so an incomplete one is never opened. Its file `seal` binds what is in it to its key, so that another trace's
files are not taken for it. A process that uses a folder holds a shared lock on it, so that pruning
by another process does not remove the text of its args.

Imported on the way to the first frame: standard library only.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import os
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from torchprof_tui import __version__
from torchprof_tui.trace.core.byte_size import parse_byte_size
from torchprof_tui.trace.core.user_files import find_home_folder

try:
    from _blake2 import blake2b  # hashlib loads all of OpenSSL
except ImportError:
    from hashlib import blake2b

FORMAT_VERSION = 2
"""Version of the folders; the columns in them have a version of their own, which `trace_store.open_trace` checks."""

NO_FOLDER = Path(os.devnull, "torchprof-tui")
"""A folder that cannot exist, because what is above it is no folder: nothing is found in it and nothing written."""

DEFAULT_LIMIT_BYTES = 4 << 30
"""Bytes of all entries, at most; the oldest are removed first. Columns take a fifth of their JSON: some 20 GB of it."""

ORPHAN_SECONDS = 3600
"""Seconds since its last use after which a draft without a lock is removed: its process was killed."""

_DRAFT_PREFIX = ".draft-"
_LOCK_FILE = "lock"
_SEAL_FILE = "seal"

_SEALED_FILE = "meta.json"
"""The file that the seal binds to the key; it holds the checksums of all others (`trace_store.META_FILE`)."""


@dataclass(eq=False, slots=True)
class CacheEntry:
    """One trace's folder: complete (`ready`), or a draft whose columns are to be written.

    `key` is None for what has no key before it is opened (a pipe, a remote file, a URL), for a cache that is turned off
    and for one that cannot be written: `close` removes the folder then, at exit at the latest, unless it is published
    under an identity.
    """

    spec: str
    folder: Path
    key: str | None
    ready: bool = False
    lock_descriptor: int | None = None

    def publish(self, identity: str | None = None) -> None:
        """Make a complete folder available to later openings. `identity`: of a remote trace, where it is known."""
        key = self.key
        if key is not None and _file_key(self.spec) != key:
            return  # the file changed while it was read: use the columns in this session only
        if key is None and identity is not None and is_in_cache_folder(self.folder):
            key = _digest(identity)
        if self.ready or key is None:
            return
        final = cache_folder() / key
        try:
            (self.folder / _SEAL_FILE).write_text(_compute_seal(self.folder, key), encoding="ascii")
            if final.is_symlink() and not final.exists():
                final.unlink()  # its target is gone
            self.folder.rename(final)
        except OSError:
            return  # another process was faster; this copy is as good, and removed when it is closed
        self.folder, self.key = final, key
        self.ready = True

    @property
    def is_sealed(self) -> bool:
        """Whether the files in a complete folder are those that were published under its key."""
        try:
            seal = _read_file(self.folder / _SEAL_FILE)
            return self.key is not None and seal == _compute_seal(self.folder, self.key).encode()
        except OSError:
            return False

    def close(self) -> None:
        """Release the folder; a draft is removed. May be called again."""
        _open_entries.discard(self)
        if not self.ready:
            shutil.rmtree(self.folder, ignore_errors=True)
        if self.lock_descriptor is not None:
            os.close(self.lock_descriptor)
            self.lock_descriptor = None

    def discard(self) -> None:
        """Remove a folder that is damaged or of another version, unless another process has replaced it since."""
        if self._is_locked_folder():
            gone = self.folder.with_name(f"{_DRAFT_PREFIX}damaged-{os.getpid()}-{self.folder.name}")
            with contextlib.suppress(OSError):
                self.folder.rename(gone)  # at once, so that no process opens a part of it
                self.folder = gone
            if self.folder.is_symlink():
                with contextlib.suppress(OSError):
                    self.folder.unlink()  # what it points to is not ours
            self.ready = False
        self.close()

    def _is_locked_folder(self) -> bool:
        """Whether the folder of this name is the one that this entry has locked."""
        try:
            found = os.stat(self.folder / _LOCK_FILE)
            return self.lock_descriptor is None or os.path.samestat(found, os.fstat(self.lock_descriptor))
        except OSError:
            return True


_open_entries: set[CacheEntry] = set()


def list_open_entries() -> set[CacheEntry]:
    """List the entries that this process has open."""
    return set(_open_entries)


@atexit.register
def close_entries(keep: Collection[CacheEntry] = ()) -> None:
    """Close the entries that this process has open, except those to keep."""
    for entry in list_open_entries().difference(keep):
        entry.close()


def cache_folder() -> Path:
    """Return `$TORCHPROF_TUI_CACHE`, else `$XDG_CACHE_HOME/torchprof-tui`, else `~/.cache/torchprof-tui`.

    Without a home folder it is NO_FOLDER: a path relative to the current folder would be created there.
    """
    configured = os.environ.get("TORCHPROF_TUI_CACHE")
    if configured:
        return Path(configured).absolute()
    xdg_cache = os.environ.get("XDG_CACHE_HOME")
    if xdg_cache and os.path.isabs(xdg_cache):
        return Path(xdg_cache) / "torchprof-tui"
    home = find_home_folder()
    return NO_FOLDER if home is None else home / ".cache" / "torchprof-tui"


def cache_limit() -> int:
    """Return the bytes of all entries, at most: `$TORCHPROF_TUI_CACHE_LIMIT` (bytes, or `20 GB`), else the default."""
    with contextlib.suppress(ValueError):
        return parse_byte_size(os.environ.get("TORCHPROF_TUI_CACHE_LIMIT", "").strip())
    return DEFAULT_LIMIT_BYTES


def find_or_create_entry(spec: str, cache: bool = True) -> CacheEntry:
    """Return the entry of a trace: ready where it was opened before and has not changed, else an empty draft.

    A cache that cannot be used is no error; raises OSError only where not even a temporary folder can be made.
    """
    key = _file_key(spec) if cache else None
    if key is not None:
        folder = cache_folder() / key
        lock = _lock_folder(folder)
        if lock is not None:
            return _register_entry(CacheEntry(spec, folder, key, ready=True, lock_descriptor=lock))
    return create_draft(spec, key, cache)


def find_by_identity(spec: str, identity: str) -> CacheEntry | None:
    """Return the entry of a remote trace by its identity; None where it is not in the cache."""
    folder = cache_folder() / _digest(identity)
    lock = _lock_folder(folder)
    if lock is None:
        return None
    return _register_entry(CacheEntry(spec, folder, folder.name, ready=True, lock_descriptor=lock))


def is_cached(identity: str) -> bool:
    """Return whether `find_by_identity` would return an entry now."""
    return (cache_folder() / _digest(identity) / _LOCK_FILE).exists()


def find_key(spec: str, identity: str | None = None) -> str | None:
    """Return the key of a trace: of its `identity` where it is remote, else of the file; None for what has none."""
    return _file_key(spec) if identity is None else _digest(identity)


def is_in_cache_folder(folder: Path) -> bool:
    """Return whether a draft is in the cache folder, so that it can be published."""
    return folder.parent == cache_folder()


def create_draft(spec: str, key: str | None = None, cache: bool = True) -> CacheEntry:
    """Create an empty draft: in the cache folder, which is on a disk; else in the system's temporary folder."""
    if cache:
        with contextlib.suppress(OSError):
            parent = cache_folder()
            parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # names in a trace may be confidential
            folder = Path(tempfile.mkdtemp(prefix=_DRAFT_PREFIX, dir=parent))
            return _register_entry(CacheEntry(spec, folder, key, lock_descriptor=_lock_folder(folder, new=True)))
    return _register_entry(CacheEntry(spec, Path(tempfile.mkdtemp(prefix="torchprof-tui-")), None))


def prune_cache(limit: int | None = None) -> int:
    """Remove the entries opened longest ago until the rest fits, and orphaned drafts. Returns the bytes freed."""
    limit = cache_limit() if limit is None else limit
    freed = 0
    now = time.time()
    entries = []
    for info in _scan_folders():
        # A time in the future: the clock was set back. A draft that is being written is locked.
        if info.is_draft and abs(now - info.last_used) > ORPHAN_SECONDS:
            freed += _remove_folder(info)
        elif not info.is_draft:
            entries.append(info)
    total = sum(info.size for info in entries)
    for info in sorted(entries, key=lambda info: info.last_used):
        if total <= limit:
            break
        removed_bytes = _remove_folder(info)
        freed += removed_bytes
        total -= removed_bytes
    return freed


def clear_cache() -> tuple[int, int]:
    """Remove all folders that no process has open. Returns (traces removed, bytes freed)."""
    removed = freed = 0
    for info in list(_scan_folders()):
        removed_bytes = _remove_folder(info)
        freed += removed_bytes
        removed += bool(removed_bytes) and not info.is_draft
    return removed, freed


def cache_usage() -> tuple[int, int]:
    """Return (traces in the cache, bytes they take)."""
    sizes = [info.size for info in _scan_folders() if not info.is_draft]
    return len(sizes), sum(sizes)


@dataclass(frozen=True, slots=True)
class _FolderInfo:
    folder: Path
    size: int
    last_used: float  # when it was last opened, seconds since the epoch
    is_draft: bool


def _scan_folders() -> Iterator[_FolderInfo]:
    """Yield the entries and drafts in the cache folder."""
    try:
        folders = [item for item in os.scandir(cache_folder()) if item.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for folder in folders:
        # A folder without a lock file was not made by this program: the user may have named a shared folder by mistake.
        with contextlib.suppress(OSError):
            used = os.stat(os.path.join(folder.path, _LOCK_FILE)).st_mtime
            size = _measure_files(folder.path)
            yield _FolderInfo(Path(folder.path), size, used, folder.name.startswith(_DRAFT_PREFIX))


def _measure_files(folder: str) -> int:
    """Sum the bytes of all files below a folder; links are not followed. Raises OSError."""
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            total += entry.stat(follow_symlinks=False).st_size
            if entry.is_dir(follow_symlinks=False):
                total += _measure_files(entry.path)
    return total


def _remove_folder(info: _FolderInfo) -> int:
    """Remove a folder; return the bytes freed, 0 where a process has it open or it cannot be removed."""
    try:
        lock = os.open(info.folder / _LOCK_FILE, os.O_RDWR)
    except OSError:
        return 0
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return 0
        # A file system without locks: a process that reads the folder loses the args of its trace, no more.
    renamed = info.folder.with_name(f"{_DRAFT_PREFIX}gone-{os.getpid()}-{info.folder.name.lstrip('.')}")
    try:
        info.folder.rename(renamed)  # so that no process opens a part of it
        shutil.rmtree(renamed, ignore_errors=True)
        return info.size
    except OSError:
        return 0
    finally:
        os.close(lock)


def _lock_folder(folder: Path, new: bool = False) -> int | None:
    """Take a shared lock on a folder; return its descriptor, None where the folder is missing or being removed."""
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


def _compute_seal(folder: Path, key: str) -> str:
    """Return the text of `seal`: the key and the checksum of the file that holds all other checksums."""
    try:
        sealed = _read_file(folder / _SEALED_FILE)
    except FileNotFoundError:
        sealed = b""
    return f"{key} {zlib.crc32(sealed):08x}"


def _read_file(path: Path) -> bytes:
    """Read a file without waiting where it is a pipe. Raises OSError."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        return file.read() or b""


def _register_entry(entry: CacheEntry) -> CacheEntry:
    """Have an entry closed at exit."""
    _open_entries.add(entry)
    return entry


def _file_key(spec: str) -> str | None:
    """Return the key of a regular file; None for everything else."""
    try:
        path = os.path.realpath(spec)
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    # ctime as well: some tools restore mtime after they have written other bytes.
    return _digest(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_ctime_ns}")


def _digest(identity: str) -> str:
    text = f"{identity}\0{FORMAT_VERSION}\0{__version__}"
    return blake2b(text.encode(errors="surrogateescape"), digest_size=12).hexdigest()
