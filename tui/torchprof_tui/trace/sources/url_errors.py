"""Explain failures of fsspec's file systems to the user by their causes: many are reported as "file not found"."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

_MAX_REASON = 100
"""Characters of a server's or library's own words that are shown."""

_NEXT_STEPS = {
    401: "; put a login into ~/.netrc",
    407: "; set a login with http_proxy=http://user:password@proxy",
    429: "; try again later",
}


def describe_url_error(error: BaseException, spec: str) -> str:
    """Describe an error of opening or reading a URL in a few words, with the next step where there is one."""
    chain = list(_cause_chain(error))
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


def _cause_chain(error: BaseException) -> Iterator[BaseException]:
    """Iterate over an error and its causes, the first cause first."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    # The connection that a proxy refused has a general cause: the error that names the proxy comes first.
    chain.sort(key=lambda cause: type(cause).__name__ == "ClientProxyConnectionError")
    return reversed(chain)


def _host(spec: str) -> str:
    try:
        return urlsplit(spec.rpartition("::")[2]).hostname or ""
    except ValueError:
        return ""


def _one_line(text: str) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _MAX_REASON else f"{line[:_MAX_REASON]}…"
