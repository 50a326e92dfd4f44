"""Explain failures of the OpenSSH client to the user."""

from __future__ import annotations

import re

from torchprof_tui.trace.specs.address import SshPath


def describe_connection_failure(path: SshPath, stderr: str, could_prompt: bool) -> str:
    """Return one line on why ssh could not connect. `could_prompt`: it could ask for a password on a terminal."""
    name = path.host_name
    by_hand = f"ssh {f'-p {path.port} ' if path.port else ''}{path.host}"
    unknown = re.search(r"Could not resolve hostname (\S+?):", stderr)
    if unknown:
        if unknown[1].lower() == name.lower():
            return f"there is no host {name}, nor a file of that name here"
        target = _replace_unprintable(unknown[1])
        return f"{name} cannot be reached: your ssh configuration leads to {target}, which is no host"
    if "by UNKNOWN port" in stderr:  # ssh's message when its proxy command has ended
        return f"{name} cannot be reached: what your ssh configuration connects through (ProxyJump, ProxyCommand) ended"
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in stderr:
        return f"the host key of {name} is not the one that ssh knows; {by_hand} tells more"
    if "Host key verification failed" in stderr:
        return f"the host key of {name} is not known yet; {by_hand} in a terminal asks about it"
    if "Permission denied" in stderr or "Too many authentication failures" in stderr:
        denied = re.search(r"Permission denied \(([^)]*)\)", stderr)
        methods = f" (it takes: {denied[1].replace(',', ', ')})" if denied else ""
        if could_prompt:
            return f"{name} let nobody in{methods}"
        return (
            f"{name} let nobody in{methods}, and nothing could be asked, which takes a terminal and one trace on the "
            f"command line: put the key into ssh-agent, or share a connection (ControlMaster)"
        )
    for words, meaning in (
        ("Connection refused", "refused the connection: no ssh server listens there"),
        ("No route to host", "cannot be reached: no route to it"),
        ("Network is unreachable", "cannot be reached: no network"),
        ("timed out", "does not answer: the connection timed out"),
    ):
        if words in stderr:
            target_port = re.search(r"connect to (?:host|address) \S+ port (\d+)", stderr)
            port = f" (port {target_port[1]})" if target_port else ""
            return f"{name}{port} {meaning}"
    return f"ssh could not connect to {name}: {last_line(stderr) or 'it did not say why'}"


def last_line(output: str) -> str:
    """Return the last line that is not blank, without control characters, cut at 200 characters."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if not lines:
        return ""
    return _replace_unprintable(lines[-1]).strip()[:200]


def _replace_unprintable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
