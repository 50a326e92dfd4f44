"""Resolve remote files, folders and patterns to traces, with one connection per host.

Hosts are queried one after the other.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.specs.address import ListedTrace, SshPath, is_pattern, is_url, parse_ssh_path

MAX_LISTED = 2000  # traces of a folder that are listed
MAX_LISTING_BYTES = 16 << 20  # bytes that a host may send as its listing
MAX_LISTING_SECONDS = 60  # time in which a server or an object store must have listed a folder
MAX_NAME_BYTES = 4096  # bytes of a name, at most: PATH_MAX of Linux

MAX_SIZE = (1 << 63) - 1

MAX_MODIFIED = 253_402_300_799  # seconds from the epoch to the end of the year 9999, which dates can show

_VERSION_KEYS = (
    *("ETag", "Last-Modified", "Content-MD5", "etag", "LastModified", "last_modified", "mtime", "updated"),
    *("generation", "md5Hash", "blob_id", "sha"),
)
"""Keys of fsspec's file info that identify the version of a file, as the servers name them."""

_MODIFIED_KEYS = ("LastModified", "last_modified", "mtime", "updated", "created")

Result = TypeVar("Result")


@record
class RemoteEntry:
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


MAX_TRACES = 4096  # largest number of traces that one name may resolve to
MAX_GLOB_DEPTH = 4  # largest number of nested folders that `**/` matches on an ssh host


@record
class Listing:
    """Traces that a name resolves to, or one line (`error`) on why there are none."""

    name: str
    traces: tuple[ListedTrace, ...] = ()
    error: str = ""


def list_remote_traces(names: Sequence[str], connections: contextlib.ExitStack) -> list[Listing]:
    """Resolve each name by its host; local names are returned unchanged.

    `connections`: holds ssh connections that later ones share by the user's configuration; close it when those have
    ended.
    """
    answers: dict[str, list[ListedTrace] | str] = {}
    hosts: dict[tuple[str, int | None], list[SshPath]] = {}
    for name in dict.fromkeys(names):
        if is_url(name):
            answers[name] = _list_url(name)
        elif (path := parse_ssh_path(name)) is not None:
            hosts.setdefault((path.host, path.port), []).append(path)
        else:
            answers[name] = [ListedTrace(name, None, 0.0)]
    for paths in hosts.values():
        answers |= _list_host(paths, connections)
    return [_to_listing(name, answers[name]) for name in names]


def _list_url(name: str) -> list[ListedTrace] | str:
    if not is_pattern(name) and not name.endswith("/"):
        return [ListedTrace(name, None, 0.0)]  # a file: its size is requested when it is opened
    from torchprof_tui.trace.sources.url import list_url  # deferred: only needed for URLs

    return list_url(name)


def _list_host(paths: list[SshPath], connections: contextlib.ExitStack) -> dict[str, list[ListedTrace] | str]:
    """List paths of one host: spec → its traces, or the reason that there are none."""
    from torchprof_tui.trace.sources.ssh_file import list_host_paths  # deferred: only needed for ssh

    targets = [(path, target) for path in paths for target in _expand_recursive_glob(path)]
    try:
        answered, shared_connection = list_host_paths([target for _, target in targets])
    except TraceError as error:
        # The reason that a host cannot be listed applies to all of its paths.
        reason = str(error).removeprefix(f"{targets[0][1].spec}: ")
        return {path.spec: f"{path.spec}: {reason}" for path in paths}
    if shared_connection is not None:
        connections.callback(shared_connection.close)
    answers: dict[str, list[ListedTrace] | str] = {}
    for (path, target), answer in zip(targets, answered, strict=True):
        previous = answers.get(path.spec)
        if isinstance(answer, list):
            answers[path.spec] = [*(previous if isinstance(previous, list) else []), *answer]
        elif previous is None:
            answers[path.spec] = f"{path.spec}: {answer.removeprefix(f'{target.spec}: ')}"
    return answers


def _expand_recursive_glob(path: SshPath) -> list[SshPath]:
    """Expand `**/` to each number of folders up to MAX_GLOB_DEPTH: a POSIX shell has no recursive pattern."""
    if "**/" not in path.path or not is_pattern(path.spec):
        return [path]
    patterns = ["*/" * depth for depth in range(MAX_GLOB_DEPTH + 1)]
    return [
        replace(path, spec=path.spec.replace("**/", pattern), path=path.path.replace("**/", pattern))
        for pattern in patterns
    ]


def _to_listing(name: str, answer: list[ListedTrace] | str) -> Listing:
    if isinstance(answer, str):
        return Listing(name, error=" ".join(answer.split()))
    if len(answer) > MAX_TRACES:
        return Listing(name, error=f"{name}: {len(answer):,} traces; at most {MAX_TRACES:,} can be opened at once")
    return Listing(name, tuple(answer))


def listing_from_json(message: dict[str, Any]) -> Listing:
    """Restore a listing from the output of `dataclasses.asdict`."""
    return Listing(message["name"], tuple(ListedTrace(**trace) for trace in message["traces"]), message["error"])
