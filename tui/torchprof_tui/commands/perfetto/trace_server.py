"""Serve one file once, on the loopback address, to Perfetto's UI in a browser on the same machine.

Other web pages must not read it, nor other users of the machine: the path holds a random token, the answer allows
ui.perfetto.dev alone to read it (CORS), and requests with another `Host` are refused (DNS rebinding).
"""

from __future__ import annotations

import re
import secrets
import shutil
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PERFETTO_ORIGIN = "https://ui.perfetto.dev"
LOOPBACK = "127.0.0.1"
METHODS = "GET, HEAD, OPTIONS"
CLIENT_TIMEOUT_SECONDS = 60.0
"""After which a connection that sends or takes nothing is closed; the next one is served."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class TraceServer(ThreadingHTTPServer):
    """A server of `file` under a path of its own. `fetched` is set once a client has taken all of it."""

    daemon_threads = True

    def __init__(self, file: Path, port: int, public_port: int) -> None:
        """Bind `port`; `public_port`: the port in the link, which may be forwarded to `port`. Raises OSError."""
        self.file = file
        self.path = f"/{secrets.token_urlsafe(12)}/{make_url_name(file.name)}"
        self.fetched = threading.Event()
        super().__init__((LOOPBACK, port), TraceHandler)
        ports = {public_port, self.server_address[1]}
        self.hosts = frozenset(f"{name}:{number}" for name in (LOOPBACK, "localhost") for number in ports)
        self.link = f"{PERFETTO_ORIGIN}/#!/?url=http://{LOOPBACK}:{public_port}{self.path}"

    def serve_until_fetched(self) -> None:
        """Answer requests until the file was fetched."""
        self.serve_forever(poll_interval=0.1)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that go away; the next one is served."""

    def mark_fetched(self) -> None:
        """End `serve_until_fetched`."""
        self.fetched.set()
        threading.Thread(target=self.shutdown, daemon=True).start()


class TraceHandler(BaseHTTPRequestHandler):
    """Answer GET, HEAD and OPTIONS of the server's path, and refuse everything else."""

    server: TraceServer
    timeout = CLIENT_TIMEOUT_SECONDS
    server_version, sys_version = "torchprof-tui", ""
    protocol_version = "HTTP/1.0"  # the end of the connection is the end of the file

    def do_GET(self) -> None:
        if not self._is_allowed() or self.server.fetched.is_set():
            return
        with self.server.file.open("rb") as file:
            self._send_file_headers()
            shutil.copyfileobj(file, self.wfile, 1 << 20)
        self.wfile.flush()
        self.server.mark_fetched()

    def do_HEAD(self) -> None:
        if self._is_allowed():
            self._send_file_headers()

    def do_OPTIONS(self) -> None:
        """Answer a browser that asks whether it may fetch, also whether a public page may fetch from this machine."""
        if self._is_allowed():
            self.send_response(HTTPStatus.NO_CONTENT)
            self.send_header("Access-Control-Allow-Methods", METHODS)
            self.send_header("Access-Control-Allow-Private-Network", "true")
            self._end_headers()

    def _refuse_method(self) -> None:
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED)

    do_POST = do_PUT = do_DELETE = do_PATCH = _refuse_method  # noqa: N815  (names that http.server looks for)

    def _is_allowed(self) -> bool:
        """Return whether the request is for the file, from where it may come; answer it otherwise."""
        hosts = self.headers.get_all("Host") or []
        origin = self.headers.get("Origin")
        is_known_host = len(hosts) == 1 and hosts[0].strip().lower() in self.server.hosts
        if not is_known_host or origin not in (None, PERFETTO_ORIGIN):
            self._refuse(HTTPStatus.FORBIDDEN)
        elif not secrets.compare_digest(self.path.encode(), self.server.path.encode()):
            self._refuse(HTTPStatus.NOT_FOUND)
        else:
            return True
        return False

    def _refuse(self, status: HTTPStatus) -> None:
        self.send_response(status)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", METHODS)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_file_headers(self) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(self.server.file.stat().st_size))
        self._end_headers()

    def _end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", PERFETTO_ORIGIN)
        self.send_header("Vary", "Origin")
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing for a request."""


def make_url_name(name: str) -> str:
    """Replace what a URL would have to escape in the name of a file."""
    return _UNSAFE.sub("_", name)[-120:] or "trace.json.gz"
