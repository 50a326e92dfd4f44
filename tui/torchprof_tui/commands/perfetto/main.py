"""Open a trace in Perfetto's UI: `torchprof-tui perfetto`.

As https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui describes it for a URL, and as Perfetto's own
`open_trace_in_ui` does it for a file of this machine: the file is served once, on the loopback address. Other web pages
must not read it, nor other users of the machine: the path holds a random token, the answer allows ui.perfetto.dev alone
to read it (CORS), and requests with another `Host` are refused (DNS rebinding).
"""

from __future__ import annotations

import contextlib
import errno
import getpass
import os
import re
import secrets
import shutil
import socket
import tempfile
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from torchprof_tui.analysis.export.chrome_file import ChromeFile, write_chrome_file
from torchprof_tui.analysis.slicing.slice_writer import SliceError, SliceResult, write_slice
from torchprof_tui.analysis.table.table_sheet import find_step
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs, report_private_values, select_rank
from torchprof_tui.commands.common.options import parse_time_range
from torchprof_tui.commands.perfetto import PERFETTO_PORT, PerfettoOptions
from torchprof_tui.trace.core.atomic_file import OutputError
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.ui.common.number_format import format_file_size

_SUFFIXES = (".gz", ".xz", ".zst", ".json", ".pftrace")


def run(options: PerfettoOptions) -> int:
    times = None if options.range is None else parse_time_range(options.range)
    trace = load_specs(options.trace, cache=not options.no_cache).trace
    if options.rank is not None or ((times or options.step is not None) and trace.merged_ranks is not None):
        trace, _ = select_rank(trace, options.rank)
    if options.step is not None:
        step = find_step(trace, options.step)
        times = step.start, step.start + max(step.duration, 1)
    stem = Path(trace.label).name  # Perfetto shows it as its title
    while stem.endswith(_SUFFIXES):
        stem = stem[: stem.rindex(".")]
    with tempfile.TemporaryDirectory(prefix="torchprof-tui-") as folder:
        file = Path(folder) / f"{clean(stem)[-80:] or 'trace'}.json.gz"
        try:
            if times is None:
                written: ChromeFile | SliceResult = write_chrome_file(trace, file, options.keep_metadata)
            else:
                written = write_slice(trace, *times, file, keep_private=options.keep_metadata)
        except (SliceError, LookupError, OutputError) as error:
            raise UsageError(f"{trace.label}: {error.args[0] if error.args else error}") from error
        report_private_values(written.private_values, written.kept_keys)
        try:
            server = TraceServer(file, options.port, PERFETTO_PORT)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise UsageError(
                f"port {options.port} is in use, perhaps by another `perfetto` command or trace_processor: end it "
                "first; over ssh --port N takes another one"
            ) from error
        with server:
            size = format_file_size(file.stat().st_size)
            print(f"{size}, served once to a browser on this machine; ctrl+c ends it")
            forwarding = format_forwarding(dict(os.environ), options.port)
            if forwarding:
                print(f"first, on the machine with the browser:\n  {clean(forwarding)}\nthen open there:")
            else:
                print("open:")
            print(f"  {server.link}", flush=True)
            server.serve_forever(poll_interval=0.1)  # until the file was fetched
    print("fetched; nothing is served any more")
    return 0


def format_forwarding(environment: dict[str, str], port: int) -> str:
    """Format the ssh command that makes the link work from another machine; "" where this one has the browser."""
    connection = environment.get("SSH_CONNECTION", "").split()
    if not connection and port == PERFETTO_PORT:
        return ""
    ssh_port = f"-p {connection[3]} " if len(connection) == 4 and connection[3] not in ("22", "") else ""
    user = ""
    with contextlib.suppress(OSError, KeyError):  # a user id without a name, as in containers
        user = f"{getpass.getuser()}@"
    return f"ssh {ssh_port}-N -L {PERFETTO_PORT}:{LOOPBACK}:{port} {user}{socket.gethostname()}"


PERFETTO_ORIGIN = "https://ui.perfetto.dev"
LOOPBACK = "127.0.0.1"
METHODS = "GET, HEAD, OPTIONS"
CLIENT_TIMEOUT_SECONDS = 60.0  # after which a connection that sends or takes nothing is closed; the next one is served
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

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that go away; the next one is served."""


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
        self.server.fetched.set()
        threading.Thread(target=self.server.shutdown, daemon=True).start()

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

    def do_POST(self) -> None:
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED)

    do_PUT = do_DELETE = do_PATCH = do_POST  # noqa: N815  (names that http.server looks for)

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
