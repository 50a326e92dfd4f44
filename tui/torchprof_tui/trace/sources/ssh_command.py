"""Command lines of the OpenSSH client (options, the user's configuration, shared connections) and its failures.

A connection that `ssh_connections` holds open has a control socket in a private folder. The folder's name is in the
environment, so that worker processes find it.
"""

from __future__ import annotations

import base64
import importlib
import os
import re
import stat
import subprocess
from collections.abc import Sequence

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.specs.address import SshPath

SOCKET_FOLDER = "TORCHPROF_TUI_SSH_SOCKETS"  # environment variable: the folder with the control sockets of this session
_KEEPALIVE_SECONDS = 15
"""ServerAliveInterval: a lost host is detected after three times this; ssh alone may wait for hours or for ever."""

_CONNECT_SECONDS = 120
"""ConnectTimeout for hosts that accept the connection and never answer, unless the user's configuration sets one. Long
enough to type a password for a jump host."""

TERMINATE_SECONDS = 2.0  # time for ssh to exit before it is killed

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


@record
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
    answer = _ask_ssh(path, "-G")
    if answer is None:
        return SshConfig()
    pairs = [line.partition(" ")[::2] for line in answer.stdout.decode(errors="replace").splitlines()]
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
    answer = _ask_ssh(path, "-O", "check")
    return answer is not None and answer.returncode == 0


def _ask_ssh(path: SshPath, *options: str) -> subprocess.CompletedProcess[bytes] | None:
    """Ask ssh something for which it does not connect; None where it cannot be run, or takes too long."""
    command = ["ssh", *port_options(path), *options, "--", path.host]
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_CONFIG_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


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


def end_ssh(process: subprocess.Popen[bytes], seconds: float = TERMINATE_SECONDS) -> None:
    """Send SIGTERM first, SIGKILL after some seconds: ssh may have to restore the terminal's echo."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def port_options(remote: SshPath) -> list[str]:
    """Return the options that set the port, if the name has one."""
    return [] if remote.port is None else ["-p", str(remote.port)]


def _connect_timeout(config: SshConfig) -> list[str]:
    return [] if config.has_connect_timeout else [f"ConnectTimeout={_CONNECT_SECONDS}"]


def _with_options(options: Sequence[str], remote: SshPath) -> list[str]:
    pairs = [word for option in options for word in ("-o", option)]
    return ["ssh", *pairs, *port_options(remote), "--", remote.host]


NO_CLIENT = "needs the ssh command (OpenSSH client), which is not installed"

_MAX_KEY_BYTES = 1 << 14

_KEY_MAGIC = b"openssh-key-v1\0"

_PROMPTED_METHODS = frozenset({"password", "keyboard-interactive"})

_NETWORK_FAILURES = (
    ("Connection refused", "refused the connection: no ssh server listens there"),
    ("No route to host", "cannot be reached: no route to it"),
    ("Network is unreachable", "cannot be reached: no network"),
    ("timed out", "does not answer: the connection timed out"),
)


class LoginNeededError(TraceError):
    """ssh could not ask for something (a passphrase, a password, whether to trust a new host) that may let it in."""


def create_connection_error(path: SshPath, stderr: str) -> TraceError:
    """Create the error for a connection that failed without asking anything, from what ssh printed.

    Returns LoginNeededError where ssh may connect once it can ask.
    """
    line, may_succeed = _explain(path, stderr)
    return (LoginNeededError if may_succeed else TraceError)(f"{path.spec}: {line}")


def describe_refusal(path: SshPath, stderr: str) -> str:
    """Describe a refused login with the methods that the host takes."""
    methods = " or ".join(_login_methods(stderr))
    return f"{path.host_name} refused the login" + (f" ({methods} only)" if methods else "")


def _explain(path: SshPath, stderr: str) -> tuple[str, bool]:
    """Return one line on why ssh could not connect without asking, and whether asking may help."""
    name = path.host_name
    by_hand = f"ssh {f'-p {path.port} ' if path.port else ''}{path.host}"
    unknown = re.search(r"Could not resolve hostname (\S+?):", stderr)
    if unknown:
        if unknown[1].lower() == name.lower():
            return f"there is neither a host nor a local file named {name}", False
        target = _replace_unprintable(unknown[1])
        return f"{name} cannot be reached: your ssh configuration leads to the unknown host {target}", False
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in stderr:
        return f"the host key of {name} has changed: it may be another machine; run {by_hand} for details", False
    if "Host key verification failed" in stderr:
        return f"the host key of {name} is not known yet; run {by_hand} in a terminal to accept it", True
    is_refused = "Permission denied" in stderr or "Too many authentication failures" in stderr
    if "by UNKNOWN port" in stderr:  # ssh's message when its proxy command has ended
        ended = "the jump host or proxy command of your ssh configuration ended (ProxyJump, ProxyCommand)"
        return f"{name} cannot be reached: {'a jump host refused the login' if is_refused else ended}", is_refused
    if is_refused:
        if any(map(_has_passphrase, read_ssh_config(path).identity_files)):
            return "ssh needs a passphrase: load the key into ssh-agent", True
        if _PROMPTED_METHODS & set(_login_methods(stderr)):
            return f"ssh needs a password for {name}: open it in a terminal, or load a key into ssh-agent", True
        return describe_refusal(path, stderr), False
    for words, meaning in _NETWORK_FAILURES:
        if words in stderr:
            target_port = re.search(r"connect to (?:host|address) \S+ port (\d+)", stderr)
            port = f" (port {target_port[1]})" if target_port else ""
            return f"{name}{port} {meaning}", False
    return f"ssh could not connect to {name}: {last_line(stderr) or 'no reason given'}", False


def _login_methods(stderr: str) -> Sequence[str]:
    denied = re.search(r"Permission denied \(([a-z0-9,-]{1,100})\)", stderr)
    return denied[1].split(",") if denied else []


def _has_passphrase(identity_file: str) -> bool:
    """Tell whether a private key is encrypted: its header names the cipher, "none" for a key without passphrase."""
    try:
        with open(os.path.expanduser(identity_file), "rb") as file:
            key = file.read(_MAX_KEY_BYTES)
    except (OSError, ValueError):
        return False
    if b"ENCRYPTED" in key:
        return True
    begin = key.partition(b"BEGIN OPENSSH PRIVATE KEY-----")[2].split()
    try:
        header = base64.b64decode(begin[0][:64]) if begin else b""
    except ValueError:
        return False
    cipher = header.removeprefix(_KEY_MAGIC)[4:8]
    return header.startswith(_KEY_MAGIC) and cipher != b"none"


def last_line(output: str) -> str:
    """Return the last line that is not blank, without control characters, cut at 200 characters."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if not lines:
        return ""
    return _replace_unprintable(lines[-1]).strip()[:200]


def _replace_unprintable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
