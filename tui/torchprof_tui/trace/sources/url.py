"""Read traces from URLs through fsspec: `https://`, `s3://`, `gs://`, `hf://` and any other installed backend.

fsspec is an optional dependency, imported when a URL is opened. The user configures its credentials and proxies.

The page comes from an untrusted server: its size, the number of links and pages, and the time are limited, and only
links to files and folders directly below the page count.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from html import unescape
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from torchprof_tui.trace.core.errors import ConnectionLostError, TraceError
from torchprof_tui.trace.sources.listing import (
    MAX_LISTED,
    MAX_LISTING_SECONDS,
    MAX_NAME_BYTES,
    SLOW_ANSWER,
    RemoteEntry,
    read_entry,
    run_limited,
    select_newest,
)
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.specs.address import TRACE_SUFFIXES, ListedTrace, is_key_averages_file, is_pattern
from torchprof_tui.trace.specs.runs_by_name import FolderError

_MAX_REASON = 100  # characters of a server's or library's own words that are shown

_NEXT_STEPS = {
    401: "; put a login into ~/.netrc",
    407: "; set a login with http_proxy=http://user:password@proxy",
    429: "; try again later",
}


def describe_url_error(error: BaseException, spec: str) -> str:
    """Describe an error of opening or reading a URL in a few words, with the next step where there is one."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.insert(0, link)  # the first cause first
        link = link.__cause__ or link.__context__
    # The connection that a proxy refused has a general cause: the error that names the proxy comes first.
    chain.sort(key=lambda cause: type(cause).__name__ != "ClientProxyConnectionError")
    for cause in chain:
        described = _describe_http(cause, spec) or _describe_connection(cause, spec)
        if described is not None:
            return described
    if any(type(cause).__name__ == "gaierror" for cause in chain):
        return "there is no host of that name"
    if isinstance(error, FileNotFoundError):
        return "no such file there"
    if isinstance(error, PermissionError):
        return "no permission to read it there"
    reason = error.strerror if isinstance(error, OSError) else None  # without "[Errno …]"
    return _one_line(reason or str(error)) or type(error).__name__


def _describe_http(cause: BaseException, spec: str) -> str | None:
    """Describe what an HTTP client reports about an answer, None for anything else."""
    kind = type(cause).__name__
    if kind in ("ContentLengthError", "TransferEncodingError"):
        return "the server closed the connection"
    if type(cause).__module__ == "aiohttp.http_exceptions":
        return "the server's answer is not HTTP"
    if kind == "TooManyRedirects":
        return "the server redirects endlessly"
    if kind.startswith(("InvalidURL", "InvalidUrl")):
        return "not a valid address; write http://host/path"
    status = getattr(cause, "status", None)
    if status == 404:
        return "no such file there"
    if isinstance(status, int) and status >= 400:
        who = "the proxy" if kind == "ClientHttpProxyError" or status == 407 else "the server"
        message = _one_line(str(getattr(cause, "message", "")))
        return f"{who} answered {status} {message}".rstrip() + _NEXT_STEPS.get(status, "")
    return None


def _describe_connection(cause: BaseException, spec: str) -> str | None:
    """Describe why there is no connection, None for anything else."""
    kind = type(cause).__name__
    if kind in ("ClientConnectorDNSError", "ClientProxyConnectionError") or isinstance(cause, ConnectionRefusedError):
        host = str(getattr(cause, "host", "") or "")
        if kind == "ClientProxyConnectionError" or (host and host != _host(spec)):
            return f"the proxy {host} cannot be reached; check http_proxy, https_proxy and no_proxy in the environment"
        return f"there is no host {host}" if kind == "ClientConnectorDNSError" else "the server refused the connection"
    if isinstance(cause, TimeoutError) or "Timeout" in kind:
        return "the server does not answer"
    if kind == "SSLCertVerificationError":
        reason = _one_line(str(getattr(cause, "verify_message", "")))
        return f"the server's certificate is not trusted ({reason}); SSL_CERT_FILE=FILE adds your own"
    if isinstance(cause, OSError) and type(cause).__module__ == "ssl":
        return f"no secure connection: {_one_line(str(getattr(cause, 'reason', '') or cause))}"
    return None


def _host(spec: str) -> str:
    try:
        return urlsplit(spec.rpartition("::")[2]).hostname or ""
    except ValueError:
        return ""


def _one_line(text: str) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _MAX_REASON else f"{line[:_MAX_REASON]}…"


MAX_PAGE_BYTES = 8 << 20  # bytes of an index page: about 50,000 links
MAX_PAGES = 200  # index pages that are read for one pattern, whose folders may be patterns too

_LINK = re.compile(r"""<a\s[^<>]{0,200}?href\s*=\s*(?:"([^"<>]{1,4096})"|'([^'<>]{1,4096})')""", re.IGNORECASE)

_GLOB_MAGIC = re.compile(r"[*\[]")


def list_links(file_system: Any, page: str, deadline: float | None = None) -> list[str]:
    """Return the addresses directly below a page that it links to, sorted; folders end in `/`. Raises TraceError."""
    deadline = time.monotonic() + MAX_LISTING_SECONDS if deadline is None else deadline
    page = page if page.endswith("/") else f"{page}/"
    text = _read_page(file_system, page, deadline).decode("utf-8", errors="replace")
    links = {link for match in _LINK.finditer(text) if (link := _resolve_link(page, match[1] or match[2]))}
    return sorted(links)


def match_links(file_system: Any, pattern: str) -> list[str]:
    """Return the addresses of the files that match a pattern, sorted. `*` and `[` match within a name."""
    deadline = time.monotonic() + MAX_LISTING_SECONDS
    begin = pattern.index("://") + 3
    scheme, (host, *names) = pattern[:begin], pattern[begin:].split("/")
    folders = [f"{scheme}{host}/"]
    pages = 0
    for index, name in enumerate(names):
        is_last = index == len(names) - 1
        if not _GLOB_MAGIC.search(name):
            folders = [f"{folder}{name}{'' if is_last else '/'}" for folder in folders]
            continue
        found = []
        for folder in folders:
            pages += 1
            if pages > MAX_PAGES:
                raise TraceError(f"{pattern}: matches more than {MAX_PAGES} folders; use a narrower pattern")
            found += [
                link
                for link in list_links(file_system, folder, deadline)
                if link.endswith("/") is not is_last
                and fnmatchcase(unquote(link.removesuffix("/").rpartition("/")[2]), unquote(name))
            ]
        folders = found
    return folders


def _read_page(file_system: Any, page: str, deadline: float) -> bytes:
    text = bytearray()
    with file_system.open(page, "rb", block_size=0) as stream:
        while part := stream.read(1 << 16):
            text += part
            if len(text) > MAX_PAGE_BYTES:
                raise TraceError(f"{page}: the page is longer than {MAX_PAGE_BYTES >> 20} MB; name a trace")
            if time.monotonic() > deadline:
                raise TraceError(f"{page}: the list takes longer than {MAX_LISTING_SECONDS} s; name a trace")
    return bytes(text)


def _resolve_link(page: str, link: str) -> str | None:
    """Return the address of a link, None if it is not directly below the page."""
    link = unescape(link)
    try:
        address = urljoin(page, link)
        parts = urlsplit(address)
    except ValueError:
        return None
    name = address[len(page) :].removesuffix("/")
    decoded = unquote(name)
    if (
        not address.startswith(page)
        or parts.query
        or parts.fragment
        or not decoded.isprintable()
        or "/" in decoded
        or decoded in ("", ".", "..")
        or len(address) > MAX_NAME_BYTES
    ):
        return None
    return address


def entries_of(links: list[str]) -> Iterator[dict[str, Any]]:
    """Format addresses as a file system's entries of unknown size."""
    return ({"name": link, "type": "directory" if link.endswith("/") else "file", "size": None} for link in links)


INSTALL_HINT = "pip install 'torchprof-tui[remote]'"

_REQUEST_BYTES = 8 << 20  # bytes per request to an object store: large, as the file is read sequentially

_CONNECT_TIMEOUT_SECONDS, _READ_TIMEOUT_SECONDS = 30, 60
"""Timeouts for connecting, and for each read. fsspec's default limits the whole download instead, which is too short
for a large trace over a slow line."""

_PARTIAL_CONTENT = 206
_VALIDATORS = ("ETag", "Last-Modified")  # headers that tell whether a file is the same as before

_BACKENDS = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "hf": "huggingface_hub",
    "az": "adlfs",
    "abfs": "adlfs",
    "http": "aiohttp",
    "https": "aiohttp",
    "sftp": "paramiko",
    "oss": "ossfs",
    "oci": "ocifs",
}

_EXTRAS = {
    **dict.fromkeys(("s3", "s3a"), "'torchprof-tui[s3]'"),
    **dict.fromkeys(("gs", "gcs"), "'torchprof-tui[gcs]'"),
    **dict.fromkeys(("http", "https"), "'torchprof-tui[remote]'"),
}
"""Protocol → the extra that brings its backend."""


def require_fsspec(spec: str) -> None:
    """Raise TraceError if fsspec is not installed."""
    if importlib.util.find_spec("fsspec") is None:
        raise TraceError(f"{spec}: a URL needs fsspec: {INSTALL_HINT}")


def open_url(spec: str) -> Source:
    """Open a file behind a URL. Raises TraceError (one line); FolderError if it is a folder."""
    require_fsspec(spec)
    try:
        file_system, path = _resolve_file_system(spec)
        entry = _read_info(spec, file_system, path)
        folder = _build_folder_error(spec, file_system, entry)
        if folder is not None:
            raise folder
        options: dict[str, Any] = {"block_size": _REQUEST_BYTES, "cache_type": "readahead"}
        if _is_http(spec) or spec.lower().startswith("hf://"):
            options = {"block_size": 0}  # one request for the whole file
        stream = run_limited(spec, lambda: file_system.open(path, "rb", **options), SLOW_ANSWER)
    except TraceError:
        raise
    except Exception as error:  # each file system has exceptions of its own
        raise TraceError(f"{spec}: {describe_url_error(error, spec)}") from error
    if entry.size == 0:
        stream.close()
        raise TraceError(f"{spec}: the file is empty")
    reader = _UrlStream(spec, stream, file_system, path)
    host = spec.rpartition("://")[2].partition("/")[0].rpartition("@")[2]
    return Source(
        spec, reader, entry.size, identity=entry.identity(spec), stop=reader.close, host=host, resume=reader.resume
    )


def list_url(spec: str) -> list[ListedTrace] | str:
    """Return the traces of a pattern or a folder, sorted by name, or one line on why there are none.

    A name that exists literally is not used as a pattern.
    """
    try:
        require_fsspec(spec)
        if "**" in spec and _is_http(spec):
            raise TraceError(f"{spec}: ** would follow every link of that server; name a folder instead")
        file_system, path = _resolve_file_system(spec)
        try:
            entry = _read_info(spec, file_system, path)
        except FileNotFoundError:
            if not is_pattern(spec):
                raise
            if _is_http(spec):
                found = list(entries_of(run_limited(spec, lambda: match_links(file_system, path))))
            else:
                found = list(run_limited(spec, lambda: file_system.glob(path, detail=True)).values())
            traces = _list_files(file_system, found)
            return sorted(traces, key=lambda trace: trace.spec) or f"{spec}: no match there"
        folder = _build_folder_error(spec, file_system, entry)
        if folder is not None:
            return sorted(folder.traces, key=lambda trace: trace.spec) or str(folder)
        return [entry.to_listed_trace(spec)]
    except TraceError as error:
        return str(error)
    except Exception as error:  # each file system has exceptions of its own
        return f"{spec}: {describe_url_error(error, spec)}"


def _list_files(file_system: Any, found: list[Any]) -> list[ListedTrace]:
    entries = [entry for entry in map(read_entry, found) if entry is not None and not entry.is_folder]
    return [entry.to_listed_trace(file_system.unstrip_protocol(entry.name)) for entry in entries]


def _is_http(spec: str) -> bool:
    return spec.lower().startswith(("http://", "https://"))


def _check_address(spec: str) -> None:
    """Raise TraceError where a web address has no host, or no valid port."""
    if not _is_http(spec):
        return
    try:
        parts = urlsplit(spec)
        if parts.hostname and (parts.port is None or parts.port > 0):
            return
    except ValueError:
        pass
    raise TraceError(f"{spec}: not a valid address; write http://host/path")


def _read_info(spec: str, file_system: Any, path: str) -> RemoteEntry:
    """Read what the file system reports about a path. Raises what the file system raises."""
    info = run_limited(spec, lambda: file_system.info(path), SLOW_ANSWER)
    entry = read_entry({**info, "name": path} if isinstance(info, dict) else None)
    if entry is None:
        raise TraceError(f"{spec}: unexpected answer from the server")
    return entry


def _resolve_file_system(spec: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path on it. Raises TraceError if a backend is missing."""
    import fsspec  # an optional dependency

    _check_address(spec)
    protocol = re.split(r"::|://", spec, maxsplit=1)[0].lower()
    options: dict[str, Any] = {}
    if protocol in ("http", "https") and importlib.util.find_spec("aiohttp") is not None:
        import aiohttp

        configured = fsspec.config.conf.get(protocol, {}).get("client_kwargs", {})
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_TIMEOUT_SECONDS, sock_read=_READ_TIMEOUT_SECONDS
        )
        # trust_env: use the proxy in the environment
        options["client_kwargs"] = {"timeout": timeout, "trust_env": True, **configured}
    try:
        return fsspec.core.url_to_fs(spec, **options)  # type: ignore[no-any-return]
    except ImportError as error:
        backend = _BACKENDS.get(protocol)
        message = " ".join(str(error).split()) or str(error.__cause__)
        package = _EXTRAS.get(protocol, backend)
        hint = f"needs {backend}: pip install {package}" if backend else f"its fsspec backend is missing ({message})"
        raise TraceError(f"{spec}: {protocol}:// {hint}") from error
    except ValueError as error:
        if "Protocol not known" in str(error):
            raise TraceError(f"{spec}: fsspec does not support {protocol}://, and no file has that name") from error
        raise


def _build_folder_error(spec: str, file_system: Any, entry: RemoteEntry) -> FolderError | None:
    """List a folder, None if it is none. On an HTTP server, a page that ends in `/` and links to traces is a folder."""
    is_page = _is_http(spec) and entry.name.endswith("/")
    if not entry.is_folder and not is_page:
        return None
    if is_page:
        found = list(entries_of(run_limited(spec, lambda: list_links(file_system, entry.name))))
    else:
        found = list(run_limited(spec, lambda: file_system.ls(entry.name, detail=True)))
    traces = [
        trace
        for trace in _list_files(file_system, found)
        if trace.spec.endswith(TRACE_SUFFIXES) and not is_key_averages_file(trace.spec)
    ]
    if is_page and not traces:
        return None
    return FolderError(spec, select_newest(traces), omitted=max(len(traces) - MAX_LISTED, 0))


class _UrlStream:
    """File of fsspec whose read failures raise ConnectionLostError, so that the data read before is kept.

    Holds the file system too, because some close their files when they are garbage-collected.
    """

    def __init__(self, spec: str, file: Any, file_system: Any, path: str) -> None:
        self._spec = spec
        self._file = file
        self._file_system = file_system
        self._path = path

    def read(self, size: int, /) -> bytes:
        try:
            return bytes(self._file.read(size))
        except Exception as error:
            raise ConnectionLostError(f"the download ended early: {describe_url_error(error, self._spec)}") from error

    def resume(self, offset: int) -> None:
        """Go on at this byte of the file, over another connection. Raises ConnectionLostError, also for a changed file.

        A server that knows no ranges sends the file again, whose first bytes are skipped.
        """
        before = getattr(self._file, "r", None)  # the answer to the one request for a whole file over HTTP
        if before is None:
            return  # each read is a request of its own
        try:
            configured = self._file_system.kwargs.get("headers", {})
            headers = {**configured, "Range": f"bytes={offset}-", "Accept-Encoding": "identity"}
            self.close()
            self._file = run_limited(
                self._spec,
                # with a size, fsspec asks for nothing else
                lambda: self._file_system.open(self._path, "rb", block_size=0, size=offset + 1, headers=headers),
                SLOW_ANSWER,
            )
            self._skip_to(offset, before.headers)
        except ConnectionLostError:
            raise
        except Exception as error:
            raise ConnectionLostError(f"and not resumed: {describe_url_error(error, self._spec)}") from error

    def _skip_to(self, offset: int, before: Any) -> None:
        """Skip what was received, after the new answer was found to be about the same file as the one before."""
        answer = self._file.r
        known = [name for name in _VALIDATORS if before.get(name)]
        if not known or any(answer.headers.get(name) != before[name] for name in known):
            reason = "it has changed since" if known else "the server does not tell whether it is still the same"
            raise ConnectionLostError(f"the rest of the file was not taken: {reason}")
        if before.get("Content-Encoding") or answer.headers.get("Content-Encoding"):
            raise ConnectionLostError("the server packs the file, so that the rest cannot be requested")
        if answer.status == _PARTIAL_CONTENT:
            if not answer.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
                raise ConnectionLostError("the server sent another range than the requested one")
            return
        while offset:
            skipped = len(self._file.read(min(offset, _REQUEST_BYTES)))
            if not skipped:
                raise ConnectionLostError("the download ended early again")
            offset -= skipped

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._file.close()
