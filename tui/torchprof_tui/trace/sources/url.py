"""Read traces from URLs through fsspec: `https://`, `s3://`, `gs://`, `hf://` and any other installed backend.

fsspec is an optional dependency, imported when a URL is opened. The user configures its credentials and proxies.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from typing import Any
from urllib.parse import urlsplit

from torchprof_tui.trace.core.errors import ConnectionLostError, TraceError
from torchprof_tui.trace.sources.http_index import entries_of, list_links, match_links
from torchprof_tui.trace.sources.listing_limits import (
    MAX_LISTED,
    SLOW_ANSWER,
    RemoteEntry,
    read_entry,
    run_limited,
    select_newest,
)
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.sources.url_errors import describe_url_error
from torchprof_tui.trace.specs.address import TRACE_SUFFIXES, ListedTrace, is_key_averages_file, is_pattern
from torchprof_tui.trace.specs.runs_by_name import FolderError

INSTALL_HINT = "pip install 'torchprof-tui[remote]'"

_REQUEST_BYTES = 8 << 20
"""Bytes per request to an object store: large, as the file is read sequentially."""

_CONNECT_TIMEOUT_SECONDS, _READ_TIMEOUT_SECONDS = 30, 60
"""Timeouts for connecting, and for each read. fsspec's default limits the whole download instead, which is too short
for a large trace over a slow line."""

_PARTIAL_CONTENT = 206
_VALIDATORS = ("ETag", "Last-Modified")
"""Headers that tell whether a file is the same as before."""

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
        stream = run_limited(spec, lambda: _open_stream(spec, file_system, path), SLOW_ANSWER)
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
            traces = _match_pattern(spec, file_system, path)
            return sorted(traces, key=lambda trace: trace.spec) or f"{spec}: no match there"
        folder = _build_folder_error(spec, file_system, entry)
        if folder is not None:
            return sorted(folder.traces, key=lambda trace: trace.spec) or str(folder)
        return [entry.to_listed_trace(spec)]
    except TraceError as error:
        return str(error)
    except Exception as error:  # each file system has exceptions of its own
        return f"{spec}: {describe_url_error(error, spec)}"


def _match_pattern(spec: str, file_system: Any, path: str) -> list[ListedTrace]:
    """Return the files (not folders) that match; on an HTTP server, those that its pages link to."""
    if _is_http(spec):
        found = list(entries_of(run_limited(spec, lambda: match_links(file_system, path))))
    else:
        found = list(run_limited(spec, lambda: file_system.glob(path, detail=True)).values())
    entries = (read_entry(entry) for entry in found)
    return [_to_listed_trace(file_system, entry) for entry in entries if entry is not None and not entry.is_folder]


def _to_listed_trace(file_system: Any, entry: RemoteEntry) -> ListedTrace:
    return entry.to_listed_trace(file_system.unstrip_protocol(entry.name))


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
        package = _EXTRAS.get(protocol, backend)
        hint = f"needs {backend}: pip install {package}" if backend else f"its fsspec backend is missing ({message})"
        raise TraceError(f"{spec}: {protocol}:// {hint}") from error
    except ValueError as error:
        if "Protocol not known" in str(error):
            raise TraceError(f"{spec}: fsspec does not support {protocol}://, and no file has that name") from error
        raise


def _open_stream(spec: str, file_system: Any, path: str) -> Any:
    if _is_http(spec) or spec.lower().startswith("hf://"):
        return file_system.open(path, "rb", block_size=0)  # one request for the whole file
    return file_system.open(path, "rb", block_size=_REQUEST_BYTES, cache_type="readahead")


def _build_folder_error(spec: str, file_system: Any, entry: RemoteEntry) -> FolderError | None:
    """List a folder, None if it is none. On an HTTP server, a page that ends in `/` and links to traces is a folder."""
    is_page = _is_http(spec) and entry.name.endswith("/")
    if not entry.is_folder and not is_page:
        return None
    if is_page:
        found = list(entries_of(run_limited(spec, lambda: list_links(file_system, entry.name))))
    else:
        found = list(run_limited(spec, lambda: file_system.ls(entry.name, detail=True)))
    listed = [each for each in map(read_entry, found) if each is not None and not each.is_folder]
    traces = [
        _to_listed_trace(file_system, each)
        for each in listed
        if each.name.endswith(TRACE_SUFFIXES) and not is_key_averages_file(each.name)
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
            self._file = self._request_rest(offset)
            self._skip_to(offset, before.headers)
        except ConnectionLostError:
            raise
        except Exception as error:
            raise ConnectionLostError(f"and not resumed: {describe_url_error(error, self._spec)}") from error

    def _request_rest(self, offset: int) -> Any:
        configured = self._file_system.kwargs.get("headers", {})
        headers = {**configured, "Range": f"bytes={offset}-", "Accept-Encoding": "identity"}
        self.close()
        return run_limited(
            self._spec,
            # with a size, fsspec asks for nothing else
            lambda: self._file_system.open(self._path, "rb", block_size=0, size=offset + 1, headers=headers),
            SLOW_ANSWER,
        )

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
