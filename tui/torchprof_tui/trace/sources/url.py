"""A trace behind a URL, through fsspec: `https://`, `s3://`, `gs://`, `hf://` and whatever else is installed for it.

fsspec is an extra, imported when a URL is opened; what it knows of credentials and proxies is the user's to configure.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from torchprof_tui.trace.core.errors import ConnectionLostError, TraceError
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.specs.address import TRACE_SUFFIXES, ListedTrace, is_key_averages_file, is_pattern
from torchprof_tui.trace.specs.folder_error import FolderError

INSTALL_HINT = "pip install 'torchprof-tui[remote]'"

_REQUEST_BYTES = 8 << 20
"""Bytes a request to an object store: a stream needs few of them."""

_CONNECT_TIMEOUT_SECONDS, _READ_TIMEOUT_SECONDS = 30, 60
"""A server that does not answer, or falls silent, for so long is given up. fsspec's own limit is on the whole
download, which a large trace over a slow line would not meet."""

_MAX_LISTED = 2000

_VERSION_KEYS = (
    *("ETag", "Last-Modified", "Content-MD5", "etag", "LastModified", "last_modified", "mtime", "updated"),
    *("generation", "md5Hash", "blob_id", "sha"),
)
"""Where fsspec's file systems say which version of a file this is; the names are the servers' own."""

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


def require_fsspec(spec: str) -> None:
    """Raise TraceError where fsspec is missing."""
    if importlib.util.find_spec("fsspec") is None:
        raise TraceError(f"{spec}: a URL needs fsspec: {INSTALL_HINT}")


def open_url(spec: str) -> Source:
    """What lies there, on its way. Raises TraceError, one line; FolderError where it is a folder."""
    require_fsspec(spec)
    try:
        files, path = _resolve_file_system(spec)
        facts = files.info(path)
        folder = _build_folder_error(spec, files, path, facts)
        if folder is not None:
            raise folder
        stream = _open_stream(spec, files, path)
    except TraceError:
        raise
    except Exception as error:  # each file system has exceptions of its own
        raise TraceError(f"{spec}: {_describe_error(error)}") from error
    size = facts.get("size")
    if size == 0:
        stream.close()
        raise TraceError(f"{spec}: the file is empty")
    reader = _UrlStream(stream, files)
    return Source(
        spec, reader, size if isinstance(size, int) else None, identity=_identity(spec, facts), stop=reader.close
    )


def list_url(spec: str) -> list[ListedTrace] | str:
    """The traces that a pattern or a folder means, by name, or the line that says why there are none.

    A name that is there as it is written is no pattern.
    """
    try:
        require_fsspec(spec)
        if "**" in spec and spec.lower().startswith(("http://", "https://")):
            raise TraceError(f"{spec}: ** would follow every link of that server; name the folder")
        files, path = _resolve_file_system(spec)
        try:
            facts = files.info(path)
        except FileNotFoundError:
            if not is_pattern(spec):
                raise
            found = [_to_listed_trace(files, entry) for entry in _glob_files(files, path)]
            return sorted(found, key=lambda each: each.spec) or f"{spec}: nothing there matches"
        folder = _build_folder_error(spec, files, path, facts)
        if folder is not None:
            return sorted(folder.traces, key=lambda each: each.spec) or str(folder)
        return [ListedTrace(spec, facts.get("size"), _modified_time(facts), _identity(spec, facts))]
    except TraceError as error:
        return str(error)
    except Exception as error:  # each file system has exceptions of its own
        return f"{spec}: {_describe_error(error)}"


def _glob_files(files: Any, path: str) -> list[dict[str, Any]]:
    """The files, not the folders, that match; of an HTTP server those that its pages link to."""
    return [entry for entry in files.glob(path, detail=True).values() if entry.get("type") != "directory"]


def _to_listed_trace(files: Any, entry: dict[str, Any]) -> ListedTrace:
    spec = files.unstrip_protocol(str(entry["name"]))
    return ListedTrace(spec, entry.get("size"), _modified_time(entry), _identity(spec, entry))


def _identity(spec: str, facts: dict[str, Any]) -> str | None:
    """What tells this content from any other, where the server says enough."""
    size = facts.get("size")
    marks = [f"{mark}={facts[mark]}" for mark in _VERSION_KEYS if facts.get(mark)]
    return "\0".join(("url", spec, str(size), *marks)) if size and marks else None


def _resolve_file_system(spec: str) -> tuple[Any, str]:
    import fsspec

    protocol = re.split(r"::|://", spec, maxsplit=1)[0].lower()
    options: dict[str, Any] = {}
    if protocol in ("http", "https") and importlib.util.find_spec("aiohttp") is not None:
        import aiohttp

        own = fsspec.config.conf.get(protocol, {}).get("client_kwargs", {})
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_TIMEOUT_SECONDS, sock_read=_READ_TIMEOUT_SECONDS
        )
        options["client_kwargs"] = {"timeout": limits, "trust_env": True, **own}  # trust_env: the user's proxy
    try:
        return fsspec.core.url_to_fs(spec, **options)  # type: ignore[no-any-return]
    except ImportError as error:
        backend = _BACKENDS.get(protocol)
        said = " ".join(str(error).split()) or str(error.__cause__)
        needs = f"needs {backend}: pip install {backend}" if backend else f"its fsspec backend is missing ({said})"
        raise TraceError(f"{spec}: {protocol}:// {needs}") from error
    except ValueError as error:
        if "Protocol not known" in str(error):
            raise TraceError(f"{spec}: fsspec knows no {protocol}://, and there is no file of that name") from error
        raise


def _open_stream(spec: str, files: Any, path: str) -> Any:
    if spec.lower().startswith(("http://", "https://", "hf://")):
        return files.open(path, "rb", block_size=0)  # one request, read to its end
    return files.open(path, "rb", block_size=_REQUEST_BYTES, cache_type="readahead")


def _build_folder_error(spec: str, files: Any, path: str, facts: dict[str, Any]) -> FolderError | None:
    """What lies in it, where it is a folder: of an HTTP server a page below a `/` that links to traces."""
    page = path.endswith("/") and spec.lower().startswith(("http://", "https://"))
    if facts.get("type") != "directory" and not page:
        return None
    found = []
    for entry in files.ls(path, detail=True):
        name = str(entry.get("name", ""))
        if entry.get("type") != "directory" and name.endswith(TRACE_SUFFIXES) and not is_key_averages_file(name):
            found.append(_to_listed_trace(files, entry))
    found.sort(key=lambda each: (-each.modified, each.spec))
    return FolderError(spec, found[:_MAX_LISTED]) if found or not page else None


def _modified_time(entry: dict[str, Any]) -> float:
    """Seconds since the epoch; 0 where the file system does not say, or says it in a form of its own."""
    for key in ("LastModified", "last_modified", "mtime", "updated", "created"):
        value = entry.get(key)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, (int, float)):
            return float(value)
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
    return 0.0


class _UrlStream:
    """A file of fsspec's, whose failures in mid-stream leave what has come.

    `files`: where it lies, held because some file systems close their files when nobody has them any more.
    """

    def __init__(self, file: Any, files: Any) -> None:
        self._file = file
        self._files = files

    def read(self, size: int, /) -> bytes:
        try:
            return bytes(self._file.read(size))
        except Exception as error:
            raise ConnectionLostError(f"the download ended early: {_describe_error(error)}") from error

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._file.close()


def _cause_chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what led to it, the first cause first."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    return reversed(chain)


def _describe_error(error: Exception) -> str:
    """What went wrong, in a few words: fsspec hides refusals and missing hosts behind "file not found"."""
    for cause in _cause_chain(error):
        status = getattr(cause, "status", None)
        if status == 404:
            return "no such file there"
        if isinstance(status, int) and status >= 400:
            return f"the server answered {status} {getattr(cause, 'message', '')}".rstrip()
        if type(cause).__name__ == "ClientConnectorDNSError":
            return f"there is no host {getattr(cause, 'host', '')}"
        if isinstance(cause, ConnectionRefusedError):
            return "the server refused the connection"
        if isinstance(cause, TimeoutError) or "Timeout" in type(cause).__name__:
            return "the server does not answer"
    if isinstance(error, FileNotFoundError):
        return "no such file there"
    if isinstance(error, PermissionError):
        return "no permission to read it there"
    said = " ".join(str(error).split())[:200]
    return said or type(error).__name__
