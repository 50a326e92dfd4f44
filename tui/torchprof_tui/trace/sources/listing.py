"""What several names mean that lie elsewhere: files, folders and patterns, each told by the host that has it.

Each host is asked once, over one connection, one host after the other: whatever ssh asks on the terminal is asked by
one of them at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchprof_tui.trace.specs.address import ListedTrace, SshPath, is_pattern, is_url, parse_ssh_path

MAX_TRACES = 4096
"""Traces of one name, at most."""

MAX_GLOB_DEPTH = 4
"""Folders that `**/` stands for on another host, at most."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a name means: the traces that were `found`, or in one line why there are none."""

    name: str
    traces: tuple[ListedTrace, ...] = ()
    error: str = ""


def list_remote_traces(names: Sequence[str], allow_prompt: bool, connections: contextlib.ExitStack) -> list[Listing]:
    """Ask all hosts. Names of what lies here are given back as they are.

    `ask`: ssh may ask on the terminal. `hold` keeps connections that the ones to come go through: close it when these
    are over.
    """
    answers: dict[str, list[ListedTrace] | str] = {}
    hosts: dict[tuple[str, int | None], list[SshPath]] = {}
    for name in dict.fromkeys(names):
        if is_url(name):
            answers[name] = _list_url(name)
        elif (there := parse_ssh_path(name)) is not None:
            hosts.setdefault((there.host, there.port), []).append(there)
        else:
            answers[name] = [ListedTrace(name, None, 0.0)]
    for paths in hosts.values():
        answers |= _list_host(paths, allow_prompt, connections)
    return [_to_listing(name, answers[name]) for name in names]


def _list_url(name: str) -> list[ListedTrace] | str:
    if not is_pattern(name) and not name.endswith("/"):
        return [ListedTrace(name, None, 0.0)]  # a file: one request less, to ask when it is opened
    from torchprof_tui.trace.sources.url import list_url as look_url

    return look_url(name)


def _list_host(paths: list[SshPath], ask: bool, hold: contextlib.ExitStack) -> dict[str, list[ListedTrace] | str]:
    from torchprof_tui.trace.core.errors import TraceError
    from torchprof_tui.trace.sources.ssh_listing import list_host_paths as look_host

    asked = [(path, each) for path in paths for each in _expand_recursive_glob(path)]
    try:
        looked = look_host([each for _, each in asked], ask)
    except TraceError as error:
        # What the host itself says is the same for all of its paths.
        why = str(error).removeprefix(f"{asked[0][1].spec}: ")
        return {path.spec: f"{path.spec}: {why}" for path in paths}
    if looked.shared_connection is not None:
        hold.callback(looked.shared_connection.close)
    answers: dict[str, list[ListedTrace] | str] = {}
    for (path, each), found in zip(asked, looked.answers, strict=True):
        known = answers.get(path.spec)
        if isinstance(found, list):
            answers[path.spec] = [*(known if isinstance(known, list) else []), *found]
        elif known is None:
            answers[path.spec] = f"{path.spec}: {found.removeprefix(f'{each.spec}: ')}"
    return answers


def _expand_recursive_glob(path: SshPath) -> list[SshPath]:
    """`**/` means any number of folders; a shell over there knows one at a time, so it is asked for each number."""
    if "**/" not in path.path or not is_pattern(path.spec):
        return [path]
    folders = ["*/" * deep for deep in range(MAX_GLOB_DEPTH + 1)]
    return [replace(path, spec=path.spec.replace("**/", some), path=path.path.replace("**/", some)) for some in folders]


def _to_listing(name: str, answer: list[ListedTrace] | str) -> Listing:
    if isinstance(answer, str):
        return Listing(name, error=" ".join(answer.split()))
    if len(answer) > MAX_TRACES:
        return Listing(name, error=f"{name}: {len(answer):,} traces; more than {MAX_TRACES:,} at once are too many")
    return Listing(name, tuple(answer))


def listing_from_json(message: dict[str, Any]) -> Listing:
    """What `dataclasses.asdict` made of it."""
    return Listing(message["name"], tuple(ListedTrace(**each) for each in message["traces"]), message["error"])
