"""What several names mean that lie elsewhere: files, folders and patterns, each told by the host that has it.

Each host is asked once, over one connection, one host after the other: whatever ssh asks on the terminal is asked by
one of them at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchprof_tui.trace.specs.address import Listed, Remote, is_pattern, is_url, remote

MOST = 4096
"""Traces of one name, at most."""

DEEP = 4
"""Folders that `**/` stands for on another host, at most."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What a name means: the traces that were `found`, or in one line why there are none."""

    name: str
    found: tuple[Listed, ...] = ()
    why: str = ""


def look(names: Sequence[str], ask: bool, hold: contextlib.ExitStack) -> list[Looked]:
    """Ask all hosts. Names of what lies here are given back as they are.

    `ask`: ssh may ask on the terminal. `hold` keeps connections that the ones to come go through: close it when these
    are over.
    """
    answers: dict[str, list[Listed] | str] = {}
    hosts: dict[tuple[str, int | None], list[Remote]] = {}
    for name in dict.fromkeys(names):
        if is_url(name):
            answers[name] = _url(name)
        elif (there := remote(name)) is not None:
            hosts.setdefault((there.host, there.port), []).append(there)
        else:
            answers[name] = [Listed(name, None, 0.0)]
    for paths in hosts.values():
        answers |= _host(paths, ask, hold)
    return [_looked(name, answers[name]) for name in names]


def _url(name: str) -> list[Listed] | str:
    if not is_pattern(name) and not name.endswith("/"):
        return [Listed(name, None, 0.0)]  # a file: one request less, to ask when it is opened
    from torchprof_tui.trace.sources.url import look as look_url

    return look_url(name)


def _host(paths: list[Remote], ask: bool, hold: contextlib.ExitStack) -> dict[str, list[Listed] | str]:
    from torchprof_tui.trace.core.errors import TraceError
    from torchprof_tui.trace.sources.ssh_listing import look as look_host

    asked = [(path, each) for path in paths for each in _levels(path)]
    try:
        looked = look_host([each for _, each in asked], ask)
    except TraceError as error:
        # What the host itself says is the same for all of its paths.
        why = str(error).removeprefix(f"{asked[0][1].spec}: ")
        return {path.spec: f"{path.spec}: {why}" for path in paths}
    if looked.held is not None:
        hold.callback(looked.held.close)
    answers: dict[str, list[Listed] | str] = {}
    for (path, each), found in zip(asked, looked.found, strict=True):
        known = answers.get(path.spec)
        if isinstance(found, list):
            answers[path.spec] = [*(known if isinstance(known, list) else []), *found]
        elif known is None:
            answers[path.spec] = f"{path.spec}: {found.removeprefix(f'{each.spec}: ')}"
    return answers


def _levels(path: Remote) -> list[Remote]:
    """`**/` means any number of folders; a shell over there knows one at a time, so it is asked for each number."""
    if "**/" not in path.path or not is_pattern(path.spec):
        return [path]
    folders = ["*/" * deep for deep in range(DEEP + 1)]
    return [replace(path, spec=path.spec.replace("**/", some), path=path.path.replace("**/", some)) for some in folders]


def _looked(name: str, answer: list[Listed] | str) -> Looked:
    if isinstance(answer, str):
        return Looked(name, why=" ".join(answer.split()))
    if len(answer) > MOST:
        return Looked(name, why=f"{name}: {len(answer):,} traces; more than {MOST:,} at once are too many")
    return Looked(name, tuple(answer))


def from_json(told: dict[str, Any]) -> Looked:
    """What `dataclasses.asdict` made of it."""
    return Looked(told["name"], tuple(Listed(**each) for each in told["found"]), told["why"])
