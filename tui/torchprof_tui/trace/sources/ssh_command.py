"""Command lines of the OpenSSH client: options for every session, the user's configuration, shared connections.

A connection that `ssh_connections` holds open has a control socket in a private folder. The folder's name is in the
environment, so that worker processes find it.
"""

from __future__ import annotations

import importlib
import os
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from torchprof_tui.trace.specs.address import SshPath

SOCKET_FOLDER = "TORCHPROF_TUI_SSH_SOCKETS"
"""Environment variable: the folder with the control sockets of this session."""

_KEEPALIVE_SECONDS = 15
"""ServerAliveInterval: a lost host is detected after three times this; ssh alone may wait for hours or for ever."""

_CONNECT_SECONDS = 120
"""ConnectTimeout for hosts that accept the connection and never answer, unless the user's configuration sets one. Long
enough to type a password for a jump host."""

_CONFIG_SECONDS = 5.0
"""Limit for `ssh -G` and `ssh -O check`, which do not connect but run the commands in the user's configuration
(`Match exec`)."""

_SESSION_OPTIONS = (
    "RemoteCommand=none",
    "RequestTTY=no",
    "PermitLocalCommand=no",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    f"ServerAliveInterval={_KEEPALIVE_SECONDS}",
)
"""Disable what the user configured for sessions (commands, forwards), as scp does."""


@dataclass(frozen=True, slots=True)
class SshConfig:
    """The user's configuration for a host.

    `shares_connection`: later sessions use an open connection (ControlMaster). `persists_connection`: it stays open
    after its first session (ControlPersist). `has_control_path`: sessions look for a connection that the user opened.
    `has_connect_timeout`: ConnectTimeout is set. `identity_files`: the private keys, which need not exist.
    """

    shares_connection: bool = False
    persists_connection: bool = False
    has_control_path: bool = False
    has_connect_timeout: bool = False
    identity_files: tuple[str, ...] = ()


def read_ssh_config(path: SshPath) -> SshConfig:
    """Read the configuration for a host with `ssh -G`, without connecting."""
    command = ["ssh", *port_options(path), "-G", "--", path.host]
    try:
        output = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_CONFIG_SECONDS, check=False
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return SshConfig()
    pairs = [line.partition(" ")[::2] for line in output.splitlines()]
    options = dict(pairs)
    has_control_path = options.get("controlpath", "none") != "none"
    shares = has_control_path and options.get("controlmaster", "false") not in ("false", "no")
    return SshConfig(
        shares,
        shares and options.get("controlpersist", "no") not in ("no", "false"),
        has_control_path,
        options.get("connecttimeout", "none") != "none",
        tuple(value for key, value in pairs if key == "identityfile"),
    )


def has_open_connection(path: SshPath) -> bool:
    """Tell whether a connection that the user's configuration shares is open, without connecting."""
    command = ["ssh", *port_options(path), "-O", "check", "--", path.host]
    try:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_CONFIG_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.returncode == 0


def shared_socket(path: SshPath) -> str | None:
    """Return the control socket of the connection that this session holds to a host, None without one."""
    folder = os.environ.get(SOCKET_FOLDER)
    socket = f"{folder}/{socket_name(path)}"
    try:
        return socket if folder and stat.S_ISSOCK(os.stat(socket).st_mode) else None
    except OSError:
        return None


def socket_name(path: SshPath) -> str:
    """Name the control socket of a host: short, because a socket's path may have about 100 bytes."""
    hashlib = importlib.import_module("hashlib")  # loads all of OpenSSL, and most traces are local
    name: str = hashlib.sha256(f"{path.host}\0{path.port or ''}".encode(errors="surrogateescape")).hexdigest()[:8]
    return name


def build_ssh_command(script: str, targets: Sequence[SshPath], keep_open: bool = False) -> list[str]:
    """Build the command line that runs a script with paths as its arguments, over the shared connection if any."""
    remote = targets[0]
    options = [*_SESSION_OPTIONS, "BatchMode=yes"]
    socket = shared_socket(remote)
    if socket is not None:
        options += [f"ControlPath={socket}", "ControlMaster=no"]
    else:
        config = read_ssh_config(remote)
        options += _connect_timeout(config)
        if not keep_open and config.shares_connection and not config.persists_connection:
            # Use an open master connection but do not become one: later sessions would keep our ssh from exiting.
            options.append("ControlMaster=no")
    script_line = " ".join(script.split("\n")).strip()
    paths = " ".join(target.quote_path() for target in targets)
    return [*_with_options(options, remote), f"exec sh -c '{script_line}' sh {paths}"]


def build_master_command(path: SshPath, socket: str, config: SshConfig, allow_prompt: bool) -> list[str]:
    """Build the command line that holds a connection for others, with its control socket at `socket`."""
    master = ("ControlMaster=yes", f"ControlPath={socket}", "ControlPersist=no")
    batch = () if allow_prompt else ("BatchMode=yes",)
    command = _with_options([*_SESSION_OPTIONS, *master, *batch, *_connect_timeout(config)], path)
    command.insert(1, "-N")
    return command


def build_login_command(path: SshPath, config: SshConfig, allow_prompt: bool) -> list[str]:
    """Build the command line that opens a connection by the user's own configuration, which keeps it open."""
    batch = () if allow_prompt else ("BatchMode=yes",)
    return [*_with_options([*_SESSION_OPTIONS, *batch, *_connect_timeout(config)], path), "exit"]


def port_options(remote: SshPath) -> list[str]:
    """Return the options that set the port, if the name has one."""
    return [] if remote.port is None else ["-p", str(remote.port)]


def _connect_timeout(config: SshConfig) -> list[str]:
    return [] if config.has_connect_timeout else [f"ConnectTimeout={_CONNECT_SECONDS}"]


def _with_options(options: Sequence[str], remote: SshPath) -> list[str]:
    pairs = [word for option in options for word in ("-o", option)]
    return ["ssh", *pairs, *port_options(remote), "--", remote.host]
