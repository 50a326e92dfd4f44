"""Recognise names of traces: `host:path`, `ssh://user@host:port/path` and URLs, and the rank in a name.

Parses names only; connects to nothing. Imported before the first frame: standard library only.

| tool | name |
|---|---|
| torch's trace handler, most scripts | `rank3.json`, `worker-3.pt.trace.json.gz`, `trace_r2.json` |
| torchtitan | `iteration_10/rank0_trace.json`, `rank_0/trace.json` |
| vLLM | `dp0_pp0_tp1_rank1.1763.pt.trace.json.gz`, beside `host_77.async_llm.1763.pt.trace.json.gz` without a rank |
| SGLang | `1763.5-TP-1.trace.json.gz`, with `-DP-0`, `-EP-1` and `-DECODE` or `-EXTEND` where it writes those |
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.extensions import list_sources
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.records import record

SAMPLE_PREFIX = "sample:"  # of the names of sample traces

_RANK = compile_later(r"(?<![a-z])(?:rank|worker|r)[-_.]?([0-9]{1,6})(?![0-9])", re.IGNORECASE)

_TENSOR_PARALLEL_RANK = compile_later(r"(?<![A-Za-z0-9])TP-([0-9]{1,6})(?![0-9])")
"""SGLang counts all GPUs of a pipeline stage by their tensor-parallel rank, also with DP attention and experts."""

_PIPELINE_RANK = compile_later(r"(?<![A-Za-z0-9])PP-[0-9]")
"""With several stages, TP is the rank within one: only `distributedInfo` has the rank of the process."""

_PARALLEL_POSITION = compile_later(r"(?<![A-Za-z])((?:TP|DP|PP|EP|CP|DCP|PCP|SP)-?)[0-9]{1,6}(?![0-9])", re.IGNORECASE)

_GENERIC_NAME = compile_later(r"trace(?:_view)?\.(?:json(?:\.\w+)?|trace(?:\.gz)?)")
"""A file name that is the same for all ranks: the folder has the rank."""

_TIMESTAMP = compile_later(r"[0-9]{9,}(?:\.[0-9]+(?![0-9]))?")
"""Seconds (since 2001), with a fraction or in finer units, which TensorBoard's trace handler and SGLang write."""

_ASCEND_FOLDER = compile_later(r"[^/]*_ascend_(?:pt|ms)(?=/)")


def find_rank_digits(spec: str) -> tuple[int, int] | None:
    """Return where in a name the digits of its rank begin and end, None if it says no rank."""
    folder, slash, name = spec.rpartition("/")
    begin = len(folder) + len(slash)
    match = _RANK.search(spec, begin)
    if match is None and not _PIPELINE_RANK.search(spec, begin):
        match = _TENSOR_PARALLEL_RANK.search(spec, begin)
    if match is None and slash and _GENERIC_NAME.fullmatch(name):
        match = _RANK.fullmatch(spec, folder.rfind("/") + 1, len(folder))
    return None if match is None else match.span(1)


def rank_in_name(spec: str) -> int | None:
    """Return the rank in the name of a trace, None if there is none."""
    digits = find_rank_digits(spec)
    return None if digits is None else int(spec[slice(*digits)])


def says_position(spec: str) -> bool:
    """Tell whether the name has a rank, or a position in a parallel group (`PP-1`), of which the rank is unknown."""
    return find_rank_digits(spec) is not None or _PIPELINE_RANK.search(spec.rpartition("/")[2]) is not None


def wildcard_rank(spec: str, timestamps: bool = True) -> str:
    """Replace what differs between the ranks of a run by `*`: the rank, positions and, if wanted, timestamps."""
    digits = find_rank_digits(spec)
    begin = spec.rfind("/") + 1
    if digits is None and not _PIPELINE_RANK.search(spec, begin):
        return _ASCEND_FOLDER.sub("*_ascend_pt", spec)
    if digits is None:
        digits = (begin, begin)
    first = min(begin, digits[0])
    before, after = spec[first : digits[0]], spec[digits[1] :]
    rank = "*" if digits[0] != digits[1] else ""
    return spec[:first] + _wildcard_rest(before, timestamps) + rank + _wildcard_rest(after, timestamps)


def _wildcard_rest(text: str, timestamps: bool) -> str:
    text = _TIMESTAMP.sub("*", text) if timestamps else text
    return _PARALLEL_POSITION.sub(r"\1*", text)


def find_timestamps(spec: str) -> list[int]:
    """Return the timestamps in a file name, to sort the recordings of one rank."""
    return [int(digits) for match in _TIMESTAMP.findall(spec.rpartition("/")[2]) for digits in match.split(".")]


_URL = compile_later(r"[A-Za-z][A-Za-z0-9+.-]*(://|::)")
_HOST_PATH = compile_later(
    r"(?P<host>(?:[^/:@\[\]]+@)?(?:\[[0-9A-Za-z:.%_-]+\]|[^/:@\[\]\s]+)):(?P<path>.*)", re.DOTALL
)
_WINDOWS_DRIVE = compile_later(r"[A-Za-z]:[\\/]")
_HOME = compile_later(r"~([A-Za-z0-9_.-]*)(?:/|$)")
_GLOB_MAGIC = compile_later(r"[*?\[]")
_URL_GLOB_MAGIC = compile_later(r"[*\[]")


TRACE_SUFFIXES = (
    *(".json", ".json.gz", ".json.xz", ".json.zst"),
    *(".pftrace", ".pftrace.gz", ".pftrace.xz", ".pftrace.zst"),
    *(".trace", ".trace.gz"),
)
"""What the names of traces end with: the files of a folder that are listed, local, over ssh or behind a URL."""


def list_local_suffixes() -> tuple[str, ...]:
    """List the same on this machine, where the files of extensions open as well."""
    sources = list_sources()[0].values()
    return (*TRACE_SUFFIXES, *(suffix for source in sources for suffix in source.suffixes))


_KEY_AVERAGES = compile_later(r"\.key_averages\.json(\.\w+)?$")


def is_key_averages_file(name: str) -> bool:
    """Tell whether a file with a trace's suffix is a table of `key_averages`, which is often saved beside the trace."""
    return _KEY_AVERAGES.search(name) is not None


@record
class ListedTrace:
    """Trace in a listing of its folder.

    `spec`: name that opens it. `size`: bytes, None if unknown. `modified`: seconds since the epoch, 0 if unknown.
    `identity`: as in `Source`. `recorded_rank`: the rank in the file or beside it, None if unknown.
    """

    spec: str
    size: int | None
    modified: float
    identity: str | None = None
    recorded_rank: int | None = None

    @property
    def rank(self) -> int | None:
        """The recorded rank, else the one in the name, None if there is none."""
        return rank_in_name(self.spec) if self.recorded_rank is None else self.recorded_rank


@record
class SshPath:
    """File or folder on an ssh host.

    `host`: the argument for ssh, with `user@` if given. `port`: None for the one in the user's configuration. `path`:
    on the host, relative to the home folder unless it begins with a slash; `~` and `~name` are home folders. `spec`:
    the name that the user typed.
    """

    spec: str
    host: str
    port: int | None
    path: str

    @property
    def host_name(self) -> str:
        """The host without `user@`."""
        return self.host.rpartition("@")[2]

    def child_spec(self, relative_path: str) -> str:
        """Return the spec of a file below this folder."""
        relative_path = relative_path.replace("%", "%25") if self._is_url else relative_path
        return f"{self.spec}{'' if self.spec.endswith((':', '/')) else '/'}{relative_path}"

    def spec_for_path(self, path: str) -> str:
        """Return the spec of another path on this host: absolute, or relative to the home folder like `./runs`."""
        path = path.replace("//", "/")
        while path.startswith("./"):
            path = path[2:]
        if self._is_url:
            host = self.spec[len("ssh://") :].partition("/")[0]
            inside = path if path.startswith("/") else f"/~/{path}"
            return f"ssh://{host}{inside.replace('%', '%25')}"
        # Without `./`, a leading tilde would mean a home folder.
        return f"{self.spec[: len(self.spec) - len(self.path)]}{'./' if path.startswith('~') else ''}{path}"

    @property
    def _is_url(self) -> bool:
        return self.spec.lower().startswith("ssh://")

    def quote_path(self) -> str:
        """Quote the path as one word for any POSIX shell on the host."""
        path = self.path or "."
        home = _HOME.match(path)
        if home and home[1]:
            # Only the host's shell can expand the home folder of another user, and only if unquoted.
            rest = path[home.end() :]
            return f"~{home[1]}/{_quote_shell(rest)}" if rest else f"~{home[1]}"
        if home:
            path = path[home.end() :].lstrip("/") or "."  # the session begins in the home folder
        return _quote_shell(path if path.startswith("/") else f"./{path}")


def parse_ssh_path(spec: str) -> SshPath | None:
    """Parse `host:path` or `ssh://…`; returns None for any other name.

    An existing local file of that name, or a slash before the first colon, means a local file. Raises TraceError for an
    ssh:// address that is not valid.
    """
    if spec.lower().startswith("ssh://"):
        return _parse_ssh_url(spec)
    if _URL.match(spec) or _WINDOWS_DRIVE.match(spec) or "\0" in spec:
        return None
    match = _HOST_PATH.fullmatch(spec)
    if match is None or match["host"].startswith("-") or os.path.lexists(spec):
        return None
    host = match["host"].replace("[", "").replace("]", "")
    return SshPath(spec, host, None, match["path"])


def is_url(spec: str) -> bool:
    """Tell whether fsspec opens this name: `https://…`, `s3://…`, or a chain such as `zip://a.json::https://…`."""
    return _URL.match(spec) is not None and not spec.lower().startswith("ssh://") and not os.path.lexists(spec)


def is_remote(spec: str) -> bool:
    """Tell whether the name is a URL or a path on an ssh host."""
    return is_url(spec) or parse_ssh_path(spec) is not None


def host_of(spec: str) -> str | None:
    """Return the ssh host with its port, or the host of a URL; None for a local file."""
    if is_url(spec):
        return spec.partition("://")[2].partition("/")[0]
    path = parse_ssh_path(spec)
    return None if path is None else f"{path.host}:{path.port or ''}"


def is_pattern(spec: str) -> bool:
    """Tell whether a remote name may be a glob pattern, such as `host:runs/*.json`. In a URL, `?` starts the query."""
    if is_url(spec):
        return _URL_GLOB_MAGIC.search(spec.partition("?")[0]) is not None
    path = parse_ssh_path(spec)
    return path is not None and _GLOB_MAGIC.search(path.path) is not None


def _parse_ssh_url(spec: str) -> SshPath:
    try:
        parts = urlsplit(spec)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise TraceError(f"{spec}: not a valid address ({error})") from error
    user = unquote(parts.username or "")
    if not host or host.startswith("-") or user.startswith("-"):
        raise TraceError(f"{spec}: has no host; write ssh://user@host:port/path")
    if not (user + host).isprintable() or " " in user + host:
        raise TraceError(f"{spec}: not a valid address (a space or a control character in the user or host)")
    # urlsplit lowers the host's case, but aliases in the user's ssh configuration are case-sensitive.
    begin = parts.netloc.lower().rindex(host.lower())  # it leaves what comes after a `%` as it is
    host = parts.netloc[begin : begin + len(host)]
    path = unquote(spec.split("://", 1)[1].partition("/")[2])
    return SshPath(spec, f"{user}@{host}" if user else host, port, path if path.startswith("~") else f"/{path}")


def _quote_shell(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"
