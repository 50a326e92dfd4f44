"""`torchprof-tui perfetto`: the server by a real HTTP client, and the command as a process."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from tests.helpers.paths import ROOT
from torchprof_tui.cli import main
from torchprof_tui.commands.perfetto.main import (
    PERFETTO_ORIGIN,
    TraceServer,
    format_forwarding,
    make_url_name,
)

CONTENT = b"a trace" * 100_000
SAMPLE = "sample:train_gpt_stack_memory"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TraceServer]:
    file = tmp_path / "my trace.json.gz"
    file.write_bytes(CONTENT)
    with TraceServer(file, 0, 9001) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.1,))
        thread.start()
        yield running
        if not running.fetched.is_set():
            running.shutdown()
        thread.join(timeout=30)
        assert not thread.is_alive()


def ask(server: TraceServer, method: str, path: str | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    connection.request(method, server.path if path is None else path, headers=headers)
    response = connection.getresponse()
    answer = response.status, {key.lower(): value for key, value in response.getheaders()}, response.read()
    connection.close()
    return answer


def test_the_link_follows_perfettos_documentation(server: TraceServer) -> None:
    page, _, target = server.link.partition("/#!/?url=")
    assert page == PERFETTO_ORIGIN
    parts = urlsplit(target)
    assert (parts.scheme, parts.netloc, parts.path) == ("http", "127.0.0.1:9001", server.path)
    assert re.fullmatch(r"/[\w-]{16}/my_trace\.json\.gz", server.path)


def test_the_file_is_served_once_to_perfettos_page(server: TraceServer) -> None:
    status, headers, body = ask(server, "HEAD", Origin=PERFETTO_ORIGIN)
    assert (status, body, headers["content-length"]) == (200, b"", str(len(CONTENT)))
    status, headers, body = ask(server, "GET", Origin=PERFETTO_ORIGIN, Host="127.0.0.1:9001")  # as forwarded by ssh
    assert (status, body) == (200, CONTENT)
    assert headers["access-control-allow-origin"] == PERFETTO_ORIGIN
    assert headers["cache-control"] == "no-store"
    assert server.fetched.wait(30)


def test_a_browser_may_ask_first(server: TraceServer) -> None:
    status, headers, _ = ask(server, "OPTIONS", Origin=PERFETTO_ORIGIN)
    assert status == 204
    assert headers["access-control-allow-origin"] == PERFETTO_ORIGIN
    assert headers["access-control-allow-private-network"] == "true"
    assert headers["access-control-allow-methods"] == "GET, HEAD, OPTIONS"


def test_everything_else_is_refused(server: TraceServer) -> None:
    name = server.path.rpartition("/")[2]
    for path in ("/", "/my_trace.json.gz", f"/x/{name}", f"{server.path}/", f"{server.path}?x", "/../../etc/passwd"):
        assert ask(server, "GET", path)[0] == 404
    for host in ("evil.example", "evil.example:9001", "127.0.0.1", "127.0.0.1:80", ""):
        assert ask(server, "GET", Host=host)[0] == 403  # DNS rebinding
    for origin in ("https://evil.example", "http://ui.perfetto.dev", "null"):
        status, headers, body = ask(server, "GET", Origin=origin)
        assert (status, body) == (403, b"")
        assert "access-control-allow-origin" not in headers
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert ask(server, method)[0] == 405
    assert ask(server, "TRACE")[0] == 501
    assert not server.fetched.is_set()


def test_a_client_that_goes_away_has_not_fetched(server: TraceServer) -> None:
    server.file.write_bytes(b"x" * 50_000_000)  # more than sockets hold
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    connection.request("GET", server.path)
    connection.getresponse().read(10)
    connection.close()
    assert not server.fetched.wait(0.2)
    assert len(ask(server, "GET")[2]) == 50_000_000


def start_command(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torchprof_tui", "perfetto", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def read_link(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if PERFETTO_ORIGIN in line:
            return line.strip()
    raise AssertionError(process.stderr and process.stderr.read())


def free_port() -> int:
    with TraceServer(Path("none"), 0, 9001) as server:
        return int(server.server_address[1])


@pytest.mark.long
def test_the_command_serves_a_step_and_ends() -> None:
    port = free_port()
    with start_command(SAMPLE, "--step", "2", "--port", str(port)) as process:
        target = read_link(process).partition("url=")[2].replace(":9001/", f":{port}/")
        with urlopen(target, timeout=30) as response:
            document = json.loads(gzip.decompress(response.read()))
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
    assert "nothing is served any more" in output
    steps = {entry["name"] for entry in document["traceEvents"] if str(entry.get("name")).startswith("ProfilerStep#")}
    assert "ProfilerStep#2" in steps


@pytest.mark.long
def test_ctrl_c_ends_the_command() -> None:
    with start_command("sample:linear_eager", "--port", str(free_port())) as process:
        read_link(process)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in error


def test_a_port_in_use_is_said(server: TraceServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["perfetto", "sample:linear_eager", "--port", str(server.server_address[1])]) == 2
    assert "is in use" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--step", "99"], "no step 99 in this trace (it has 2 to 3)"),
        (["--range", "100s:101s"], "no event in this range"),
        (["--port", "0"], "'0' is not a port"),
    ],
)
def test_says_in_one_line_what_is_wrong(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["perfetto", SAMPLE, *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_names_the_forwarding_over_ssh() -> None:
    assert format_forwarding({}, 9001) == ""
    command = format_forwarding({"SSH_CONNECTION": "10.0.0.1 50000 10.0.0.2 22"}, 9001)
    assert command.startswith("ssh -N -L 9001:127.0.0.1:9001 ")
    other = format_forwarding({"SSH_CONNECTION": "10.0.0.1 50000 10.0.0.2 2222"}, 9555)
    assert other.startswith("ssh -p 2222 -N -L 9001:127.0.0.1:9555 ")
    assert "9001:127.0.0.1:9555" in format_forwarding({}, 9555)


def test_finds_a_name_for_urls() -> None:
    assert make_url_name("a b&c#d.json") == "a_b_c_d.json"
    assert make_url_name("") == "trace.json.gz"
