"""Read traces from URLs through fsspec: `https://`, `s3://`, `gs://`, `hf://` and any other installed backend.

fsspec is an optional dependency, imported when a URL is opened. The user configures its credentials and proxies.
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
"""Bytes per request to an object store: large, as the file is read sequentially."""

_CONNECT_TIMEOUT_SECONDS, _READ_TIMEOUT_SECONDS = 30, 60
"""Timeouts for connecting, and for each read. fsspec's default limits the whole download instead, which is too short
for a large trace over a slow line."""

_MAX_LISTED = 2000

_VERSION_KEYS = (
    *("ETag", "Last-Modified", "Content-MD5", "etag", "LastModified", "last_modified", "mtime", "updated"),
    *("generation", "md5Hash", "blob_id", "sha"),
)
"""Keys of fsspec's file info that identify the version of a file, as the servers name them."""

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
    """Raise TraceError if fsspec is not installed."""
    if importlib.util.find_spec("fsspec") is None:
        raise TraceError(f"{spec}: a URL needs fsspec: {INSTALL_HINT}")


def open_url(spec: str) -> Source:
    """Open a file behind a URL. Raises TraceError (one line); FolderError if it is a folder."""
    require_fsspec(spec)
    try:
        file_system, path = _resolve_file_system(spec)
        info = file_system.info(path)
        folder = _build_folder_error(spec, file_system, path, info)
        if folder is not None:
            raise folder
        stream = _open_stream(spec, file_system, path)
    except TraceError:
        raise
    except Exception as error:  # each file system has exceptions of its own
        raise TraceError(f"{spec}: {_describe_error(error)}") from error
    size = info.get("size")
    if size == 0:
        stream.close()
        raise TraceError(f"{spec}: the file is empty")
    reader = _UrlStream(stream, file_system)
    return Source(
        spec, reader, size if isinstance(size, int) else None, identity=_identity(spec, info), stop=reader.close
    )


def list_url(spec: str) -> list[ListedTrace] | str:
    """Return the traces of a pattern or a folder, sorted by name, or one line on why there are none.

    A name that exists literally is not used as a pattern.
    """
    try:
        require_fsspec(spec)
        if "**" in spec and spec.lower().startswith(("http://", "https://")):
            raise TraceError(f"{spec}: ** would follow every link of that server; name the folder")
        file_system, path = _resolve_file_system(spec)
        try:
            info = file_system.info(path)
        except FileNotFoundError:
            if not is_pattern(spec):
                raise
            traces = [_to_listed_trace(file_system, entry) for entry in _glob_files(file_system, path)]
            return sorted(traces, key=lambda trace: trace.spec) or f"{spec}: nothing there matches"
        folder = _build_folder_error(spec, file_system, path, info)
        if folder is not None:
            return sorted(folder.traces, key=lambda trace: trace.spec) or str(folder)
        return [ListedTrace(spec, info.get("size"), _modified_time(info), _identity(spec, info))]
    except TraceError as error:
        return str(error)
    except Exception as error:  # each file system has exceptions of its own
        return f"{spec}: {_describe_error(error)}"


def _glob_files(file_system: Any, path: str) -> list[dict[str, Any]]:
    """Return the files (not folders) that match; on an HTTP server, those that its pages link to."""
    return [entry for entry in file_system.glob(path, detail=True).values() if entry.get("type") != "directory"]


def _to_listed_trace(file_system: Any, entry: dict[str, Any]) -> ListedTrace:
    spec = file_system.unstrip_protocol(str(entry["name"]))
    return ListedTrace(spec, entry.get("size"), _modified_time(entry), _identity(spec, entry))


def _identity(spec: str, info: dict[str, Any]) -> str | None:
    """Identify the content of a file by its size and version, None if the server does not report both."""
    size = info.get("size")
    versions = [f"{key}={info[key]}" for key in _VERSION_KEYS if info.get(key)]
    return "\0".join(("url", spec, str(size), *versions)) if size and versions else None


def _resolve_file_system(spec: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path on it. Raises TraceError if a backend is missing."""
    import fsspec  # an optional dependency

    protocol = re.split(r"::|://", spec, maxsplit=1)[0].lower()
    options: dict[str, Any] = {}
    if protocol in ("http", "https") and importlib.util.find_spec("aiohttp") is not None:
        import aiohttp

        configured = fsspec.config.conf.get(protocol, {}).get("client_kwargs", {})
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_TIMEOUT_SECONDS, sock_read=_READ_TIMEOUT_SECONDS
        )
        options["client_kwargs"] = {
            "timeout": timeout,
            "trust_env": True,
            **configured,
        }  # trust_env: use the proxy in the environment
    try:
        return fsspec.core.url_to_fs(spec, **options)  # type: ignore[no-any-return]
    except ImportError as error:
        backend = _BACKENDS.get(protocol)
        message = " ".join(str(error).split()) or str(error.__cause__)
        hint = f"needs {backend}: pip install {backend}" if backend else f"its fsspec backend is missing ({message})"
        raise TraceError(f"{spec}: {protocol}:// {hint}") from error
    except ValueError as error:
        if "Protocol not known" in str(error):
            raise TraceError(f"{spec}: fsspec knows no {protocol}://, and there is no file of that name") from error
        raise


def _open_stream(spec: str, file_system: Any, path: str) -> Any:
    if spec.lower().startswith(("http://", "https://", "hf://")):
        return file_system.open(path, "rb", block_size=0)  # one request for the whole file
    return file_system.open(path, "rb", block_size=_REQUEST_BYTES, cache_type="readahead")


def _build_folder_error(spec: str, file_system: Any, path: str, info: dict[str, Any]) -> FolderError | None:
    """List a folder, None if it is none. On an HTTP server, a page that ends in `/` and links to traces is a folder."""
    is_page = path.endswith("/") and spec.lower().startswith(("http://", "https://"))
    if info.get("type") != "directory" and not is_page:
        return None
    traces = []
    for entry in file_system.ls(path, detail=True):
        name = str(entry.get("name", ""))
        if entry.get("type") != "directory" and name.endswith(TRACE_SUFFIXES) and not is_key_averages_file(name):
            traces.append(_to_listed_trace(file_system, entry))
    traces.sort(key=lambda trace: (-trace.modified, trace.spec))
    return FolderError(spec, traces[:_MAX_LISTED]) if traces or not is_page else None


def _modified_time(entry: dict[str, Any]) -> float:
    """Return seconds since the epoch, 0 if the file system does not report them in a known form."""
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
    """File of fsspec whose read failures raise ConnectionLostError, so that the data read before is kept.

    Holds the file system too, because some close their files when they are garbage-collected.
    """

    def __init__(self, file: Any, file_system: Any) -> None:
        self._file = file
        self._file_system = file_system

    def read(self, size: int, /) -> bytes:
        try:
            return bytes(self._file.read(size))
        except Exception as error:
            raise ConnectionLostError(f"the download ended early: {_describe_error(error)}") from error

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._file.close()


def _cause_chain(error: BaseException) -> Iterator[BaseException]:
    """Iterate over an error and its causes, the first cause first."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    return reversed(chain)


def _describe_error(error: Exception) -> str:
    """Describe an error in a few words by its causes: fsspec reports refusals and missing hosts as "file not found"."""
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
        if type(cause).__name__ == "SSLCertVerificationError":
            return f"the server's certificate is not trusted ({getattr(cause, 'verify_message', '')})"
        if isinstance(cause, OSError) and type(cause).__module__ == "ssl":
            return f"no secure connection: {getattr(cause, 'reason', '') or cause}"
    if any(type(cause).__name__ == "gaierror" for cause in _cause_chain(error)):
        return "there is no host of that name"
    if isinstance(error, FileNotFoundError):
        return "no such file there"
    if isinstance(error, PermissionError):
        return "no permission to read it there"
    reason = error.strerror if isinstance(error, OSError) else None  # without "[Errno …]"
    message = " ".join((reason or str(error)).split())[:200]
    return message or type(error).__name__
