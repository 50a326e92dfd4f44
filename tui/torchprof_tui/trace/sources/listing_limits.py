"""Limits and checks for listings of folders on other hosts, which are as untrusted as the traces in them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.specs.address import ListedTrace

MAX_LISTED = 2000
"""Traces of a folder that are listed."""

MAX_LISTING_BYTES = 16 << 20
"""Bytes that a host may send as its listing."""

MAX_LISTING_SECONDS = 60
"""Time in which a server or an object store must have listed a folder."""

MAX_NAME_BYTES = 4096
"""Bytes of a name, at most: PATH_MAX of Linux."""

MAX_SIZE = (1 << 63) - 1

MAX_MODIFIED = 253_402_300_799
"""Seconds from the epoch to the end of the year 9999, which dates can show."""

_VERSION_KEYS = (
    *("ETag", "Last-Modified", "Content-MD5", "etag", "LastModified", "last_modified", "mtime", "updated"),
    *("generation", "md5Hash", "blob_id", "sha"),
)
"""Keys of fsspec's file info that identify the version of a file, as the servers name them."""

_MODIFIED_KEYS = ("LastModified", "last_modified", "mtime", "updated", "created")

Result = TypeVar("Result")


class RemoteEntry(msgspec.Struct, frozen=True):
    """An entry of a listing, checked.

    `size`: bytes, None if unknown. `modified`: seconds since the epoch, 0 if unknown. `versions`: what identifies the
    content, as the server reports it.
    """

    name: str
    is_folder: bool
    size: int | None
    modified: float
    versions: tuple[str, ...]

    def to_listed_trace(self, spec: str) -> ListedTrace:
        """Return the entry under the name that opens it."""
        return ListedTrace(spec, self.size, self.modified, self.identity(spec))

    def identity(self, spec: str) -> str | None:
        """Identify the content of the file by its size and version, None if the server does not report both."""
        return "\0".join(("url", spec, str(self.size), *self.versions)) if self.size and self.versions else None


def read_entry(entry: object) -> RemoteEntry | None:
    """Check an entry of fsspec, whose fields have the types that a server chose; None where it has no usable name."""
    if not isinstance(entry, dict):
        return None
    name = entry.get("name")
    if not isinstance(name, str) or not is_usable_name(name):
        return None
    versions = tuple(
        f"{key}={value}"[:MAX_NAME_BYTES]
        for key in _VERSION_KEYS
        if isinstance(value := entry.get(key), str | int | float | datetime) and value
    )
    modified = next((seconds for key in _MODIFIED_KEYS if (seconds := _seconds(entry.get(key)))), 0.0)
    return RemoteEntry(name, entry.get("type") == "directory", checked_size(entry.get("size")), modified, versions)


def is_usable_name(name: str) -> bool:
    """Tell whether a name from a listing can be opened and shown on one line: no control characters, no `..`."""
    if not name or len(name) > MAX_NAME_BYTES or ".." in name.split("/"):
        return False
    return not any(ord(c) < 32 or ord(c) == 127 for c in name)


def checked_size(size: object) -> int | None:
    """Return a size in bytes, None for anything else."""
    return size if isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= MAX_SIZE else None


def checked_modified(seconds: float) -> float:
    """Return seconds since the epoch, 0 for what no calendar shows."""
    return seconds if 0 <= seconds <= MAX_MODIFIED else 0.0  # a comparison with NaN is false


def select_newest(traces: Sequence[ListedTrace]) -> list[ListedTrace]:
    """Return the MAX_LISTED newest traces, newest first."""
    return sorted(traces, key=lambda trace: (-trace.modified, trace.spec))[:MAX_LISTED]


SLOW_LIST = f"the list takes longer than {MAX_LISTING_SECONDS} s; name a subfolder or a trace"
SLOW_ANSWER = f"the server does not answer within {MAX_LISTING_SECONDS} s"


def run_limited(spec: str, ask: Callable[[], Result], reason: str = SLOW_LIST) -> Result:
    """Run a request that cannot be limited otherwise on a thread.

    Raises TraceError with the reason after MAX_LISTING_SECONDS. A timeout of a socket is no limit: requests are
    repeated, and a server may send a byte a minute.
    """
    outcome: list[Result] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(ask())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(MAX_LISTING_SECONDS)
    if failure:
        raise failure[0]
    if not outcome:
        raise TraceError(f"{spec}: {reason}")
    return outcome[0]


def _seconds(value: Any) -> float:
    """Return a time in one of the forms that file systems use as seconds since the epoch, 0 for anything else."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value.replace("Z", "+00:00"))
        if isinstance(value, datetime):
            return checked_modified(value.timestamp())
        if isinstance(value, int | float):
            return checked_modified(float(value))
    except (ValueError, OverflowError, OSError):
        pass
    return 0.0
