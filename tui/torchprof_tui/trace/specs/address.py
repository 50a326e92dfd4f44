"""Which names mean a trace elsewhere: `host:path` and `ssh://user@host:port/path`, or a URL.

Only names are looked at here, nothing is connected to. Read on the way to the first frame: standard library only.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(://|::)")
_HOST_PATH = re.compile(r"(?P<host>(?:[^/:@\[\]]+@)?(?:\[[0-9A-Za-z:.%_-]+\]|[^/:@\[\]\s]+)):(?P<path>.*)", re.DOTALL)
_WINDOWS_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
RANK_IN_NAME = re.compile(r"(?<![a-z])(?:rank|worker|r)[-_.]?([0-9]{1,6})(?![0-9])", re.IGNORECASE)
"""The rank that a file's name says: `rank3.json`, `host_worker-3.pt.trace.json.gz`."""

_HOME = re.compile(r"~([A-Za-z0-9_.-]*)(?:/|$)")


_GLOB_MAGIC = re.compile(r"[*?\[]")
_URL_GLOB_MAGIC = re.compile(r"[*\[]")


TRACE_SUFFIXES = (".json", ".json.gz", ".json.xz", ".json.zst", ".trace", ".trace.gz")
"""What the names of traces end with: the files of a folder that are listed, local, over ssh or behind a URL."""

_TABLE = re.compile(r"\.key_averages\.json(\.\w+)?$")


def is_key_averages_file(name: str) -> bool:
    """Whether a file ends like a trace and is a profiler's table, which is often kept beside it."""
    return _TABLE.search(name) is not None


@dataclass(frozen=True, slots=True)
class ListedTrace:
    """A trace elsewhere, as its folder has it: `spec` opens it; `size` in bytes, None where that is not told;
    `modified` in seconds since the epoch, 0 where not; `identity` as `Source` has it."""

    spec: str
    size: int | None
    modified: float
    identity: str | None = None

    @property
    def rank(self) -> int | None:
        """The rank that its name says."""
        found = RANK_IN_NAME.search(self.spec.rpartition("/")[2])
        return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class SshPath:
    """A file or folder that the user's ssh reaches.

    `host`: as ssh is to be told it, `user@` and all. `port`: None for what the user's configuration says. `path`: as
    the host knows it, relative to the home folder there unless it begins with a slash; `~` and `~name` are homes.
    `spec`: what the user typed.
    """

    spec: str
    host: str
    port: int | None
    path: str

    @property
    def host_name(self) -> str:
        """The host as people say it."""
        return self.host.rpartition("@")[2]

    def child_spec(self, relative_path: str) -> str:
        """How the user would name what lies below this folder."""
        relative_path = relative_path.replace("%", "%25") if self._is_url else relative_path
        return f"{self.spec}{'' if self.spec.endswith((':', '/')) else '/'}{relative_path}"

    def spec_for_path(self, path: str) -> str:
        """How the user would name another path on this host: absolute, or from the home folder there, as `./runs`."""
        path = path.replace("//", "/")
        while path.startswith("./"):
            path = path[2:]
        if self._is_url:
            host = self.spec[len("ssh://") :].partition("/")[0]
            inside = path if path.startswith("/") else f"/~/{path}"
            return f"ssh://{host}{inside.replace('%', '%25')}"
        # What begins with a tilde would be somebody's home.
        return f"{self.spec[: len(self.spec) - len(self.path)]}{'./' if path.startswith('~') else ''}{path}"

    @property
    def _is_url(self) -> bool:
        return self.spec.lower().startswith("ssh://")

    def quote_path(self) -> str:
        """The path as one word for the host's shell, whichever that is."""
        path = self.path or "."
        home = _HOME.match(path)
        if home and home[1]:
            # Only a shell knows where somebody else's home is, and only unquoted.
            rest = path[home.end() :]
            return f"~{home[1]}/{_quote_shell(rest)}" if rest else f"~{home[1]}"
        if home:
            path = path[home.end() :].lstrip("/") or "."  # where ssh begins anyway
        return _quote_shell(path if path.startswith("/") else f"./{path}")


def parse_ssh_path(spec: str) -> SshPath | None:
    """What is meant, where it is something behind ssh; None for everything else.

    A file of that very name here is meant before any host, and so is whatever has a slash before its first colon.
    Raises ValueError, with one line, for an ssh:// that names no host.
    """
    if spec.lower().startswith("ssh://"):
        return _parse_ssh_url(spec)
    if _URL.match(spec) or _WINDOWS_DRIVE.match(spec) or "\0" in spec:
        return None
    found = _HOST_PATH.fullmatch(spec)
    if found is None or found["host"].startswith("-") or os.path.lexists(spec):
        return None
    host = found["host"].replace("[", "").replace("]", "")
    return SshPath(spec, host, None, found["path"])


def is_url(spec: str) -> bool:
    """Whether it is for fsspec: `https://…`, `s3://…`, also its chains, such as `zip://a.json::https://…`."""
    return _URL.match(spec) is not None and not spec.lower().startswith("ssh://") and not os.path.lexists(spec)


def is_remote(spec: str) -> bool:
    """Whether opening it means talking to another machine."""
    return is_url(spec) or parse_ssh_path(spec) is not None


def host_of(spec: str) -> str | None:
    """Who is asked for it: the ssh host with its port, or where a URL leads; None for what lies here."""
    if is_url(spec):
        return spec.partition("://")[2].partition("/")[0]
    there = parse_ssh_path(spec)
    return None if there is None else f"{there.host}:{there.port or ''}"


def is_pattern(spec: str) -> bool:
    """Whether something elsewhere may be a pattern of files, such as `host:runs/*.json`. A `?` in a URL is none."""
    if is_url(spec):
        return _URL_GLOB_MAGIC.search(spec.partition("?")[0]) is not None
    there = parse_ssh_path(spec)
    return there is not None and _GLOB_MAGIC.search(there.path) is not None


def _parse_ssh_url(spec: str) -> SshPath:
    try:
        parts = urlsplit(spec)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{spec}: not an address ({error})") from error
    if not host or host.startswith("-") or (parts.username or "").startswith("-"):
        raise ValueError(f"{spec}: names no host; ssh://user@host:port/path is the form")
    user = f"{unquote(parts.username)}@" if parts.username else ""
    # urlsplit lowers the host's case; aliases in the user's configuration have theirs.
    where = parts.netloc.lower().rindex(host)
    host = parts.netloc[where : where + len(host)]
    path = unquote(spec.split("://", 1)[1].partition("/")[2])
    return SshPath(spec, f"{user}{host}", port, path if path.startswith("~") else f"/{path}")


def _quote_shell(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"
