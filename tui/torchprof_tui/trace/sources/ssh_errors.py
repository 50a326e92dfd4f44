"""What OpenSSH's client says when it fails, in words that say what to do."""

from __future__ import annotations

import re

from torchprof_tui.trace.specs.address import SshPath


def describe_connection_failure(path: SshPath, stderr: str, could_prompt: bool) -> str:
    """Why there is no connection, one line. `said`: ssh's stderr. `asked`: it could ask on a terminal."""
    name = path.host_name
    by_hand = f"ssh {f'-p {path.port} ' if path.port else ''}{path.host}"
    unknown = re.search(r"Could not resolve hostname (\S+?):", stderr)
    if unknown:
        if unknown[1].lower() == name.lower():
            return f"there is no host {name}, nor a file of that name here"
        return f"{name} cannot be reached: your ssh configuration leads to {_replace_unprintable(unknown[1])}, which is no host"
    if "by UNKNOWN port" in stderr:  # what ssh calls the end of a command that it talks through
        return f"{name} cannot be reached: what your ssh configuration connects through (ProxyJump, ProxyCommand) ended"
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in stderr:
        return f"the host key of {name} is not the one that ssh knows; {by_hand} tells more"
    if "Host key verification failed" in stderr:
        return f"the host key of {name} is not known yet; {by_hand} in a terminal asks about it"
    if "Permission denied" in stderr or "Too many authentication failures" in stderr:
        found = re.search(r"Permission denied \(([^)]*)\)", stderr)
        ways = f" (it takes: {found[1].replace(',', ', ')})" if found else ""
        if could_prompt:
            return f"{name} let nobody in{ways}"
        return (
            f"{name} let nobody in{ways}, and nothing could be asked, which takes a terminal and one trace on the "
            f"command line: put the key into ssh-agent, or share a connection (ControlMaster)"
        )
    for words, meaning in (
        ("Connection refused", "refused the connection: no ssh server listens there"),
        ("No route to host", "cannot be reached: no route to it"),
        ("Network is unreachable", "cannot be reached: no network"),
        ("timed out", "does not answer: the connection timed out"),
    ):
        if words in stderr:
            where = re.search(r"connect to (?:host|address) (\S+) port (\d+)", stderr)
            port = f" (port {where[2]})" if where else ""
            return f"{name}{port} {meaning}"
    return f"ssh could not connect to {name}: {last_line(stderr) or 'it did not say why'}"


def last_line(output: str) -> str:
    """The last line with something on it, without control characters, cut at 200."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if not lines:
        return ""
    return _replace_unprintable(lines[-1]).strip()[:200]


def _replace_unprintable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
