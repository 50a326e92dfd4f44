"""Tests of the connections that a session holds: a real sshd, a key with a passphrase, and the user's configuration."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers import sshd
from tests.helpers.long_run import keep_some
from tests.helpers.paths import ROOT
from tests.helpers.remote_traces import read
from tests.helpers.terminal import Terminal
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.sources.source import open_source
from torchprof_tui.trace.sources.ssh_command import SOCKET_FOLDER, LoginNeededError, shared_socket
from torchprof_tui.trace.sources.ssh_connections import SshConnections
from torchprof_tui.trace.specs.address import SshPath, parse_ssh_path

pytestmark = pytest.mark.skipif(not (sshd.SSHD and sshd.SSH), reason="needs OpenSSH's server and client")

HOLD = """
import sys, time
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.sources.ssh_command import shared_socket
from torchprof_tui.trace.sources.ssh_connections import SshConnections
from torchprof_tui.trace.specs.address import parse_ssh_path
path = parse_ssh_path(sys.argv[1])
connections = SshConnections()
try:
    connections.connect(path, allow_prompt=True)
except TraceError as error:
    sys.exit(str(error))
print("held", shared_socket(path), flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Sshd]:
    with sshd.running(tmp_path_factory.mktemp("sshd")) as server:
        (server.home / "a.json").write_bytes(b"a trace")
        yield server


@pytest.fixture
def connections() -> Iterator[SshConnections]:
    with SshConnections() as connections:
        yield connections
    assert SOCKET_FOLDER not in os.environ


def path_on(server: sshd.Sshd, host: str) -> SshPath:
    path = parse_ssh_path(f"{host}:{server.home}/a.json")
    assert path is not None
    return path


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_one_connection_serves_all_files_until_it_is_closed(server: sshd.Sshd, connections: SshConnections) -> None:
    path = path_on(server, "box")
    logins = server.logins
    connections.connect(path, allow_prompt=False)
    connections.connect(path, allow_prompt=False)
    socket = Path(shared_socket(path) or "")
    assert socket.is_socket()
    assert socket.parent.stat().st_mode & 0o777 == 0o700
    sources = [open_source(path.spec) for _ in range(4)]
    assert [read(source) for source in sources] == [b"a trace"] * 4
    assert server.logins - logins == 1
    assert len(server.clients("box")) == 1
    connections.close()
    assert not socket.parent.exists()
    assert server.clients("box") == []
    with pytest.raises(TraceError, match="cancelled"):
        connections.connect(path, allow_prompt=False)


@pytest.mark.parametrize("name", ["a b", "100%h", "x" * 80])
def test_any_folder_of_temporary_files(
    server: sshd.Sshd, connections: SshConnections, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ssh splits and expands the path of a socket, which must also be short."""
    folder = tmp_path / name
    folder.mkdir()
    path = path_on(server, "box")
    connections.connect(path, allow_prompt=False)
    first = Path(shared_socket(path) or "").parent
    connections.close()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(folder))
    with SshConnections() as others:
        others.connect(path, allow_prompt=False)
        socket = Path(shared_socket(path) or "")
        assert socket.is_socket()
        assert socket.parent.parent == first.parent
        assert read(open_source(path.spec)) == b"a trace"
    assert not socket.parent.exists()


def test_a_lost_connection_is_made_again(server: sshd.Sshd, connections: SshConnections) -> None:
    path = path_on(server, "box")
    connections.connect(path, allow_prompt=False)
    os.kill(server.clients("box")[0], signal.SIGKILL)
    wait_until(lambda: server.clients("box") == [])
    assert read(open_source(path.spec)) == b"a trace"  # by a connection of its own, as the socket is dead
    connections.connect(path, allow_prompt=False)
    logins = server.logins
    assert read(open_source(path.spec)) == b"a trace"
    assert server.logins == logins


@pytest.mark.parametrize(
    ("host", "kind", "line"),
    [
        ("locked", LoginNeededError, "ssh needs a passphrase: load the key into ssh-agent"),
        (
            "unknown",
            LoginNeededError,
            "the host key of unknown is not known yet; run ssh unknown in a terminal to accept it",
        ),
        ("behind_locked", LoginNeededError, "behind_locked cannot be reached: a jump host refused the login"),
        ("nokey", TraceError, "nokey refused the login (publickey only)"),
        ("silent", TraceError, "silent does not answer: the connection timed out"),
    ],
)
def test_failures_say_whether_asking_may_help(
    server: sshd.Sshd, connections: SshConnections, host: str, kind: type[TraceError], line: str
) -> None:
    path = path_on(server, host)
    with pytest.raises(TraceError) as caught:
        connections.connect(path, allow_prompt=False)
    assert (type(caught.value), str(caught.value)) == (kind, f"{path.spec}: {line}")
    assert SOCKET_FOLDER not in os.environ  # its folder is removed at once: no watcher is left to do it
    assert server.clients(host) == []


def test_one_of_several_hosts_may_fail(server: sshd.Sshd, connections: SshConnections) -> None:
    connections.connect_all([path_on(server, "nokey"), path_on(server, "box")], allow_prompt=False)
    assert shared_socket(path_on(server, "box"))
    with pytest.raises(TraceError, match="refused the login"):
        connections.connect_all([path_on(server, "nokey")], allow_prompt=False)
    with pytest.raises(LoginNeededError, match="passphrase"):
        connections.connect_all([path_on(server, "locked"), path_on(server, "home")], allow_prompt=False)
    assert shared_socket(path_on(server, "home"))


def test_the_users_own_shared_connection_is_used(server: sshd.Sshd, connections: SshConnections) -> None:
    """One that ssh keeps by configuration, and one that the user opened by hand; both outlive the session."""
    path = path_on(server, "shared")
    logins = server.logins
    connections.connect(path, allow_prompt=False)
    assert read(open_source(path.spec)) == b"a trace"
    assert shared_socket(path) is None
    assert server.logins - logins == 1
    by_hand = path_on(server, "by_hand")
    options = ["-o", f"IdentityFile={server.folder / 'box.key'}", "-o", "ControlMaster=yes", "-N"]
    master = subprocess.Popen(["ssh", *options, "by_hand"], stdin=subprocess.DEVNULL)
    try:
        check = ["ssh", "-q", "-O", "check", "by_hand"]
        wait_until(lambda: subprocess.run(check, check=False, capture_output=True).returncode == 0)
        connections.connect(by_hand, allow_prompt=False)  # its key alone would need a passphrase
        assert read(open_source(by_hand.spec)) == b"a trace"
        connections.close()
        assert subprocess.run(["ssh", "-q", "-O", "check", "shared"], check=False, capture_output=True).returncode == 0
        assert master.poll() is None
    finally:
        master.terminate()
        master.wait()


def test_connecting_can_be_stopped(server: sshd.Sshd, connections: SshConnections) -> None:
    (server.folder / "ssh_config").write_text(
        (server.folder / "ssh_config").read_text().replace("ConnectTimeout 1\n", "ConnectTimeout 60\n")
    )
    errors: list[TraceError] = []

    def connect() -> None:
        try:
            connections.connect(path_on(server, "silent"), allow_prompt=False)
        except TraceError as error:
            errors.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    wait_until(lambda: len(server.clients("silent")) > 0)
    connections.close()
    thread.join(60)
    assert len(errors) == 1
    assert server.clients("silent") == []


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_an_ended_program_leaves_nothing_behind(server: sshd.Sshd, end: signal.Signals) -> None:
    """Also on a host that sends nothing more."""
    program = subprocess.Popen(
        [sys.executable, "-c", HOLD, f"stuck:{server.home}/a.json"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    held, socket = program.stdout.readline().split()
    assert held == "held"
    assert len(server.clients("stuck")) == 1
    program.send_signal(end)
    program.wait()
    program.stdout.close()
    wait_until(lambda: server.clients("stuck") == [] and not Path(socket).parent.exists())


@pytest.mark.parametrize("host", keep_some(["locked", "persisting", "unknown", "behind_locked"], 1))
def test_ssh_asks_on_the_terminal(server: sshd.Sshd, host: str) -> None:
    with Terminal([sys.executable, "-c", HOLD, f"{host}:{server.home}/a.json"], columns=400, folder=ROOT) as terminal:
        if host == "unknown":
            terminal.wait_for("Are you sure you want to continue connecting")
            terminal.send("yes\r")
        else:
            terminal.wait_for("Enter passphrase for key")
            terminal.send("open sesame\r")
        terminal.wait_for("held None" if host == "persisting" else "held /")
    wait_until(lambda: server.clients(host) == [] or host == "persisting")


@pytest.mark.long
def test_a_refused_login_is_one_line(server: sshd.Sshd) -> None:
    with Terminal([sys.executable, "-c", HOLD, f"locked:{server.home}/a.json"], columns=400, folder=ROOT) as terminal:
        for _ in range(3):
            terminal.wait_for("Enter passphrase for key")
            terminal.send("wrong\r")
            terminal.screen.reset()
        assert terminal.wait_for_end() == 1
        assert f"locked:{server.home}/a.json: locked refused the login (publickey only)" in terminal.text
