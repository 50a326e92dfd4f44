"""The disk cache of decoded traces: a trace that is opened again is only mapped.

Each trace has a folder below the cache folder, named by a digest of the file's path, size and times of change and of
this program's version; without a match it is built again. A folder is written as a draft and renamed once it is
complete, so an incomplete one is never opened. Its file `seal` binds what is in it to its key, so that another trace's
files are not taken for it. A process that uses a folder holds a shared lock on it, so that pruning
by another process does not remove the text of its args.

The user may name any folder as the cache, so only what carries a marker of this program is ever removed: the cache
folder has a `CACHEDIR.TAG`, each entry's file `lock` begins with `LOCK_TEXT`. A folder that holds anything else when it
is first used is refused.

Imported on the way to the first frame: standard library only.

Sketches are small files in a folder of their own beside the decoded traces. A file is named by the same digest as the
decoded trace (path, size and times of change, or a remote identity) and by the version of its format. The folder counts
as one entry of the cache: it is pruned and cleared as a whole.
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
from io import FileIO
from pathlib import Path

from torchprof_tui import __version__
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.user_files import find_home_folder

_BYTES_OF_UNIT = {"": 1, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = compile_later(r"([0-9]{1,15}(?:\.[0-9]{1,3})?) ?(MB|GB|TB|)\Z")


def parse_byte_size(text: str) -> int:
    """Return the bytes of a size. Raises ValueError."""
    match = _SIZE.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size")
    return int(float(match[1]) * _BYTES_OF_UNIT[match[2]])


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

LOCK_TEXT = b"an entry of the cache of torchprof-tui\n"  # what the file `lock` of an entry holds

TAG_FILE = "CACHEDIR.TAG"
TAG_TEXT = b"""\
Signature: 8a477f597d28d172789f06886806bc55
# The cache of torchprof-tui, which removes its own entries from this folder. Backups may leave it out:
# https://bford.info/cachedir/
"""
"""What marks a cache folder: a cache directory tag, of this program."""

SKETCHES_FOLDER = "sketches"

_DRAFT_PREFIX = ".draft-"
_LOCK_FILE = "lock"
_SEAL_FILE = "seal"
_KEY_BYTES = 12
_HEX_DIGITS = frozenset("0123456789abcdef")

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

    def __post_init__(self) -> None:
        _open_entries.add(self)  # closed at exit

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
            if final.is_symlink() and not _is_own(final):
                final.unlink()  # its target is gone, or something else
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
    return Path(configured).absolute() if configured else _find_default_folder()


def _find_default_folder() -> Path:
    xdg_cache = os.environ.get("XDG_CACHE_HOME")
    if xdg_cache and os.path.isabs(xdg_cache):
        return Path(xdg_cache) / "torchprof-tui"
    home = find_home_folder()
    return NO_FOLDER if home is None else home / ".cache" / "torchprof-tui"


def find_usable_folder() -> Path | None:
    """Return the cache folder if it may be used: the default one, or one that has or now gets this program's tag.

    A folder without the tag gets it where all that it holds are entries: they may be of a version that wrote no tag.
    None where it does not exist, holds anything else, or cannot be read.
    """
    folder = cache_folder()
    is_default = folder == _find_default_folder()
    if _has_tag(folder):
        return folder
    try:
        if is_default or all(_is_own_item(item) for item in os.scandir(folder)):
            with contextlib.suppress(FileExistsError):
                tag = os.open(folder / TAG_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
                with FileIO(tag, "w") as file:
                    file.write(TAG_TEXT)
            return folder
    except OSError:
        return folder if is_default and folder.is_dir() else None
    return folder if _has_tag(folder) else None  # another process may have tagged it and made an entry meanwhile


def explain_refused_folder() -> str | None:
    """Return one line about a cache folder that is not used because it holds other things; None where it is used."""
    folder = cache_folder()
    if not folder.is_dir() or find_usable_folder() is not None:
        return None
    return (
        f"{folder}: holds other things and no cache of torchprof-tui, so nothing is cached; "
        "set cache.folder or TORCHPROF_TUI_CACHE to a new or empty folder"
    )


def _has_tag(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return _read_file(folder / TAG_FILE, len(TAG_TEXT)) == TAG_TEXT
    return False


def _is_own_item(item: os.DirEntry[str]) -> bool:
    """Return whether what lies in a folder without a tag is an entry, a draft, or a tag that is being written."""
    if item.name == TAG_FILE:
        return item.is_file(follow_symlinks=False) and TAG_TEXT.startswith(_read_file(item.path, len(TAG_TEXT)))
    return item.is_dir(follow_symlinks=False) and _is_own(item.path)


def _is_own(folder: str | os.PathLike[str]) -> bool:
    """Return whether this program made a folder: an entry, a draft, or the sketches."""
    lock = _open_lock(folder)
    if lock is not None:
        os.close(lock)
    return lock is not None


def _open_lock(folder: str | os.PathLike[str], new: bool = False) -> int | None:
    """Open the lock file of a folder; None where this program did not make the folder."""
    try:
        lock = os.open(os.path.join(folder, _LOCK_FILE), os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if new else 0), 0o600)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        if new:
            os.write(lock, LOCK_TEXT)
        if new or _is_own_folder(folder, lock):
            return lock
    os.close(lock)
    return None


def _is_own_folder(folder: str | os.PathLike[str], lock: int) -> bool:
    """Look at the name of a folder and at its lock file, which is open. Raises OSError.

    Earlier versions left the lock file empty: then the seal names the folder, drafts have only the form of their name,
    and the sketches have nothing beside them.
    """
    name = os.path.basename(folder)
    is_draft, is_key = name.startswith(_DRAFT_PREFIX), _is_key(name)
    if not (is_draft or is_key or name == SKETCHES_FOLDER):
        return False
    text = os.pread(lock, len(LOCK_TEXT), 0)
    if text == LOCK_TEXT:
        return True
    if is_key:  # also where the lock file is damaged
        return _read_file(os.path.join(folder, _SEAL_FILE), len(name)) == name.encode()
    return not text and (is_draft or all(_is_sketch(file) for file in os.listdir(folder)))


def _is_key(name: str) -> bool:
    return len(name) == 2 * _KEY_BYTES and _HEX_DIGITS.issuperset(name)


def _is_sketch(name: str) -> bool:
    """Return whether a file is a sketch, several in one file, or the folder's lock."""
    digest, _, version = name.partition(".v")
    return name == _LOCK_FILE or (_is_key(digest[:24]) and _HEX_DIGITS.issuperset(digest) and version[:1].isdigit())


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
    return (None if key is None else _find_entry(spec, key)) or create_draft(spec, key, cache)


def find_by_identity(spec: str, identity: str) -> CacheEntry | None:
    """Return the entry of a remote trace by its identity; None where it is not in the cache."""
    return _find_entry(spec, _digest(identity))


def _find_entry(spec: str, key: str) -> CacheEntry | None:
    cache = find_usable_folder()
    lock = None if cache is None else _lock_folder(cache / key)
    if cache is None or lock is None:
        return None
    return CacheEntry(spec, cache / key, key, ready=True, lock_descriptor=lock)


def is_cached(identity: str) -> bool:
    """Return whether `find_by_identity` would return an entry now."""
    return (cache_folder() / _digest(identity) / _LOCK_FILE).exists()


def is_in_cache_folder(folder: Path) -> bool:
    """Return whether a draft is in the cache folder, so that it can be published."""
    return folder.parent == cache_folder()


def create_draft(spec: str, key: str | None = None, cache: bool = True) -> CacheEntry:
    """Create an empty draft: in the cache folder, which is on a disk; else in the system's temporary folder."""
    if cache:
        with contextlib.suppress(OSError):
            cache_folder().mkdir(parents=True, exist_ok=True, mode=0o700)  # names in a trace may be confidential
            parent = find_usable_folder()
            if parent is not None:
                folder = Path(tempfile.mkdtemp(prefix=_DRAFT_PREFIX, dir=parent))
                return CacheEntry(spec, folder, key, lock_descriptor=_lock_folder(folder, new=True))
    # Without a free descriptor, tempfile would report that there is no folder to write to.
    os.close(os.open(os.devnull, os.O_RDONLY))
    return CacheEntry(spec, Path(tempfile.mkdtemp(prefix="torchprof-tui-")), None)


def create_sketches_folder() -> Path | None:
    """Create the folder of the sketches and note its use now; None where it cannot be used. Raises OSError."""
    cache_folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    cache = find_usable_folder()
    if cache is None:
        return None
    folder = cache / SKETCHES_FOLDER
    folder.mkdir(exist_ok=True, mode=0o700)
    with os.scandir(folder) as items:
        is_new = next(items, None) is None
    lock = _open_lock(folder, is_new)
    if lock is None:
        return None
    os.utime(lock)
    os.close(lock)
    return folder


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


@record
class _FolderInfo:
    folder: Path
    size: int
    last_used: float  # when it was last opened, seconds since the epoch
    is_draft: bool


def _scan_folders() -> Iterator[_FolderInfo]:
    """Yield the entries and drafts in the cache folder; what else is in it was not made by this program."""
    cache = find_usable_folder()
    try:
        folders = [] if cache is None else [item for item in os.scandir(cache) if item.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for folder in folders:
        lock = _open_lock(folder.path)
        if lock is None:
            continue
        try:
            used = os.fstat(lock).st_mtime
            size = _measure_files(folder.path)
        except OSError:
            continue
        finally:
            os.close(lock)
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
    lock = _open_lock(info.folder)
    if lock is None:
        return 0
    try:
        if not _try_lock(lock, fcntl.LOCK_EX):
            return 0
        renamed = info.folder.with_name(f"{_DRAFT_PREFIX}gone-{os.getpid()}-{info.folder.name.lstrip('.')}")
        info.folder.rename(renamed)  # so that no process opens a part of it
        shutil.rmtree(renamed, ignore_errors=True)
        return info.size
    except OSError:
        return 0
    finally:
        os.close(lock)


def _try_lock(lock: int, kind: int) -> bool:
    """Lock a file; False where another process holds it. On a file system without locks it counts as locked: a process
    that reads a removed folder loses the args of its trace, no more."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def _lock_folder(folder: Path, new: bool = False) -> int | None:
    """Take a shared lock on a folder; return its descriptor, None where the folder is missing or being removed."""
    lock = _open_lock(folder, new)
    if lock is None:
        return None
    if not _try_lock(lock, fcntl.LOCK_SH) or not (folder / _LOCK_FILE).exists():  # removed between the two calls
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


def _read_file(path: str | os.PathLike[str], max_bytes: int = -1) -> bytes:
    """Read a file, or its begin, without waiting where it is a pipe. Raises OSError."""
    with FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK)) as file:
        return file.read(max_bytes) or b""


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
    return blake2b(text.encode(errors="surrogateescape"), digest_size=_KEY_BYTES).hexdigest()


def find_sketch_path(spec: str, identity: str | None, version: int) -> Path | None:
    """Find where the sketch of a trace is, or would be; None for what has no identity, such as a pipe."""
    key = _file_key(spec) if identity is None else _digest(identity)
    return None if key is None else cache_folder() / SKETCHES_FOLDER / f"{key}.v{version}.parquet"


def find_pack_path(digest: str, version: int) -> Path:
    """Find where all sketches of a job are, or would be, in one file."""
    return cache_folder() / SKETCHES_FOLDER / f"{digest}.v{version}.pack"


def read_sketch(path: Path | None) -> bytes:
    """Read a stored sketch; b"" where there is none."""
    with contextlib.suppress(OSError):
        return b"" if path is None else path.read_bytes()
    return b""


def store_sketch(path: Path | None, data: bytes) -> None:
    """Store a sketch. If that fails, it is made again next time."""
    if path is None:
        return
    with contextlib.suppress(OSError):
        if create_sketches_folder() is None:
            return
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_bytes(data)
        draft.replace(path)
