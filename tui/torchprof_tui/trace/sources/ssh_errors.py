"""Explain failures of the OpenSSH client to the user."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.sources.ssh_command import read_ssh_config
from torchprof_tui.trace.specs.address import SshPath

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
