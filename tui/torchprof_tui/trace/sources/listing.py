"""Resolve remote files, folders and patterns to traces, with one connection per host.

Hosts are queried one after the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.specs.address import ListedTrace, SshPath, is_pattern, is_url, parse_ssh_path

MAX_TRACES = 4096
"""Largest number of traces that one name may resolve to."""

MAX_GLOB_DEPTH = 4
"""Largest number of nested folders that `**/` matches on an ssh host."""


@dataclass(frozen=True, slots=True)
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
    from torchprof_tui.trace.sources.ssh_listing import list_host_paths  # deferred: only needed for ssh

    targets = [(path, target) for path in paths for target in _expand_recursive_glob(path)]
    try:
        listing = list_host_paths([target for _, target in targets])
    except TraceError as error:
        # The reason that a host cannot be listed applies to all of its paths.
        reason = str(error).removeprefix(f"{targets[0][1].spec}: ")
        return {path.spec: f"{path.spec}: {reason}" for path in paths}
    if listing.shared_connection is not None:
        connections.callback(listing.shared_connection.close)
    answers: dict[str, list[ListedTrace] | str] = {}
    for (path, target), answer in zip(targets, listing.answers, strict=True):
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
