"""What OpenSSH's client says when it fails, in words that say what to do."""

from __future__ import annotations

import re

from torchprof_tui.trace.specs.address import Remote


def connection_failure(remote: Remote, said: str, asked: bool) -> str:
    """Why there is no connection, one line. `said`: ssh's stderr. `asked`: it could ask on a terminal."""
    name = remote.name
    by_hand = f"ssh {f'-p {remote.port} ' if remote.port else ''}{remote.host}"
    unknown = re.search(r"Could not resolve hostname (\S+?):", said)
    if unknown:
        if unknown[1].lower() == name.lower():
            return f"there is no host {name}, nor a file of that name here"
        return f"{name} cannot be reached: your ssh configuration leads to {_printable(unknown[1])}, which is no host"
    if "by UNKNOWN port" in said:  # what ssh calls the end of a command that it talks through
        return f"{name} cannot be reached: what your ssh configuration connects through (ProxyJump, ProxyCommand) ended"
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in said:
        return f"the host key of {name} is not the one that ssh knows; {by_hand} tells more"
    if "Host key verification failed" in said:
        return f"the host key of {name} is not known yet; {by_hand} in a terminal asks about it"
    if "Permission denied" in said or "Too many authentication failures" in said:
        found = re.search(r"Permission denied \(([^)]*)\)", said)
        ways = f" (it takes: {found[1].replace(',', ', ')})" if found else ""
        if asked:
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
        if words in said:
            where = re.search(r"connect to (?:host|address) (\S+) port (\d+)", said)
            port = f" (port {where[2]})" if where else ""
            return f"{name}{port} {meaning}"
    return f"ssh could not connect to {name}: {last_words(said) or 'it did not say why'}"


def last_words(said: str) -> str:
    """The last line with something on it, without control characters, cut at 200."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if not lines:
        return ""
    return _printable(lines[-1]).strip()[:200]


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
