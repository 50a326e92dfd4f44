"""Run an sshd on loopback for tests, and an ssh client that reaches it under several host names.

The user's configuration is neither read nor written: the client gets its own through a two-line script called `ssh`
that comes first in PATH. Each host name has its own key, whose `command=` option in authorized_keys sets its behaviour.
"""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

SSHD = shutil.which("sshd", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin")))
SSH = shutil.which("ssh")

TOOLS = ("sh", "cat", "gzip", "stat", "od", "tr", "ls", "find", "head", "wc")

RUN_COMMAND = 'sh -c "$SSH_ORIGINAL_COMMAND"'
"""Runs the command that the client sent."""


class Sshd:
    """A server. `port`: that it listens on. `home`: where sessions of the host `home` start. `folder`: its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self.port = _free_port()
        self.user = getpass.getuser()
        self.has_ipv6 = _has_ipv6()
        self._log = folder / "sshd.log"
        self._silent = socket.create_server(("127.0.0.1", 0))  # accepts connections and never answers
        self._sockets = Path(tempfile.mkdtemp(prefix="tt", dir="/tmp"))  # ssh requires a short socket path
        self._write()

    def start(self) -> None:
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # sshd started by root refuses to run without it
        assert SSHD is not None
        self._process = subprocess.Popen(
            [SSHD, "-D", "-E", str(self._log), "-f", str(self.folder / "sshd_config")], stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 20
        while self._process.poll() is None and time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise RuntimeError(f"sshd did not start: {self.log}")

    def stop(self) -> None:
        for host in ("shared", "persisting"):
            subprocess.run([self.folder / "bin" / "ssh", "-q", "-O", "exit", host], check=False, capture_output=True)
        self._process.terminate()
        self._process.wait()
        self._silent.close()
        shutil.rmtree(self._sockets)

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    @property
    def logins(self) -> int:
        return self.log.count("Accepted publickey")

    def clients(self, host: str = "") -> list[int]:
        """Return the process ids of the running ssh clients of this server, or of those to one of its hosts."""
        pids = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                arguments = entry.read_bytes().split(b"\0")
            except OSError:
                continue
            if os.fsencode(self.folder / "ssh_config") in arguments and (not host or host.encode() in arguments):
                pids.append(int(entry.parent.name))
        return pids

    def wait_for_no_clients(self, but: Collection[int]) -> None:
        """Wait until no client but these has run for half a second: closing a connection starts a short one itself.

        Raises AssertionError after 30 s.
        """
        until, quiet = time.monotonic() + 30, 0
        while quiet < 10:
            quiet = 0 if set(self.clients()) - set(but) else quiet + 1
            assert time.monotonic() < until, self.clients()
            time.sleep(0.05)

    def _write(self) -> None:
        """Write keys, authorized_keys, known_hosts and both configurations."""
        folder = self.folder
        for name in ("host_key", "other_host_key", "stranger"):
            _key(folder / name)
        tools = {}
        for name, programs in (("no_zstd", TOOLS), ("no_packer", [tool for tool in TOOLS if tool != "gzip"])):
            tools[name] = folder / name
            tools[name].mkdir()
            for tool in programs:
                program = shutil.which(tool)
                assert program is not None
                (tools[name] / tool).symlink_to(program)
        as_nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups " if os.geteuid() == 0 else ""
        commands = {
            "box": "",
            "home": f"cd {shlex.quote(str(self.home))}; echo welcome to this host; {RUN_COMMAND}",
            # Kill the server process of the session, as when the network fails.
            "cut": f"{RUN_COMMAND} | (head -c 100000; sleep 0.2; kill -9 $PPID)",
            # The same, and no connection sends the rest.
            "cut_off": f'case "$SSH_ORIGINAL_COMMAND" in *tail*+*) exit 1; esac; '
            f"{RUN_COMMAND} | (head -c 100000; sleep 0.2; kill -9 $PPID)",
            # Only the header before the file is sent.
            "nothing": f"{RUN_COMMAND} | (head -n 2; sleep 0.2; kill -9 $PPID)",
            "stuck": f"{RUN_COMMAND} | (head -c 400000; exec tail -f --pid=$PPID /dev/null)",
            "drip": f"{RUN_COMMAND} | (head -c 40000; exec tail -f --pid=$PPID /dev/null)",
            "nobody": f"{as_nobody}{RUN_COMMAND}",
            "sftponly": "echo This service allows sftp connections only.; exit 1",
            "no_zstd": f"export PATH={tools['no_zstd']}; {RUN_COMMAND}",
            "no_packer": f"export PATH={tools['no_packer']}; {RUN_COMMAND}",
        }
        authorized, config = [], []
        for name, command in commands.items():
            public = _key(folder / name)
            quoted = command.replace('"', '\\"')
            authorized.append(f'command="{quoted}" {public}' if command else public)
            config.append(self._host(name))
        key = folder / "box.key"
        config += [
            self._host("shared", key, self._sharing("s", "60")),
            self._host("locked", self._locked()),
            self._host("behind_locked", key, "ProxyJump locked"),
            self._host("persisting", folder / "locked.key", self._sharing("p", "60")),
            self._host("by_hand", folder / "locked.key", f"ControlPath {self._sockets / 'h'}"),
            self._host("locked_once", folder / "locked.key", f"ControlMaster auto\n ControlPath {self._sockets / 'o'}"),
            self._host("session", key, f"ControlMaster auto\n ControlPath {self._sockets / 'e'}"),
            self._host("behind", key, "ProxyJump box"),
            self._host("nokey", folder / "stranger.key"),
            self._host("unknown", key, "UserKnownHostsFile /dev/null"),
            self._host("changed", key, f"UserKnownHostsFile {folder / 'other_known'}"),
            self._host("silent", key, f"Port {self._silent.getsockname()[1]}\n ConnectTimeout 1"),
            self._host("behind_nowhere", key, "ProxyJump nowhere.invalid"),
            self._host("behind_nothing", key, "ProxyCommand false"),
            self._host("::1", key, "HostName ::1"),
            self._host("refusing", key, f"Port {_free_port()}"),
            self._host("otherport", key, "Port 1"),
            self._host("configured", key, "RemoteCommand echo mine\n LocalForward 1 localhost:1\n RequestTTY force"),
        ]
        (folder / "authorized").write_text("\n".join(authorized) + "\n")
        (folder / "ssh_config").write_text("\n".join(config))
        for known, key_name in (("known", "host_key"), ("other_known", "other_host_key")):
            public = " ".join((folder / f"{key_name}.key.pub").read_text().split()[:2])
            (folder / known).write_text(f"[127.0.0.1]:{self.port},[::1]:{self.port} {public}\n")
        ipv6 = "ListenAddress ::1\n" if self.has_ipv6 else ""
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\n{ipv6}HostKey {folder}/host_key.key\n"
            f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\nPidFile none\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nMaxStartups 100\n"
            # What takes longer than most tests: the usual exchange of keys, and the user's .bashrc, which shells of
            # sshd read, and which on many machines runs programs.
            f"KexAlgorithms curve25519-sha256\nSetEnv HOME={self.home}\n"
        )
        (folder / "bin").mkdir()
        client = folder / "bin" / "ssh"
        client.write_text(f'#!/bin/sh\nexec {SSH} -F {folder}/ssh_config "$@"\n')
        client.chmod(0o755)

    def _sharing(self, name: str, persist: str) -> str:
        return f"ControlMaster auto\n ControlPath {self._sockets / name}\n ControlPersist {persist}"

    def _locked(self) -> Path:
        """Copy the key of `box` and protect it with a passphrase."""
        key = self.folder / "locked.key"
        shutil.copy(self.folder / "box.key", key)
        change = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-a", "1", "-f", str(key)]
        subprocess.run(change, check=True, stdout=subprocess.DEVNULL)
        return key

    def _host(self, name: str, key: Path | None = None, options: str = "") -> str:
        """Format the configuration of a host. ssh uses the first of several values, so `options` come first."""
        return (
            f"Host {name}\n {options}\n HostName 127.0.0.1\n Port {self.port}\n User {self.user}\n"
            f" IdentityFile {key or self.folder / f'{name}.key'}\n IdentitiesOnly yes\n IdentityAgent none\n"
            f" UserKnownHostsFile {self.folder}/known\n GlobalKnownHostsFile /dev/null\n"
        )


@contextmanager
def running(folder: Path) -> Iterator[Sshd]:
    """Run a server, with its ssh client first in PATH."""
    server = Sshd(folder)
    server.start()
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{folder / 'bin'}{os.pathsep}{path}"
    try:
        yield server
    finally:
        os.environ["PATH"] = path
        server.stop()


def _key(path: Path) -> str:
    """Create a key in PATH.key; returns the public key."""
    file = path.with_name(f"{path.name}.key")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(file)], check=True)
    return file.with_suffix(".key.pub").read_text().strip()


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
