"""Every command refuses names that are no address with one line: no crash, nothing run, no control characters."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.helpers.command_line import call_main
from tests.helpers.long_run import keep_some
from torchprof_tui.commands.common.parsers import build_parser, list_commands

WORDS_OF_NAMES = """
ssh:// ssh://h:99999/x ssh://h:port/x ssh://[x/y ssh://]/x ssh://-oProxyCommand=touch/x ssh://@/x SSH:// ssh://h
ssh://a%20-oX/y ssh://A%2fb/y ssh://u%0a-oX@h/x ssh://u%20v@h/x ssh://fe80::1%25Eth0/x
host: host:~ host:[ -oX:y @:x [::1]:x [::1 :x :: a::b zip://x:: zip:: :// a:// http:// http://h:99999/x gs:/// hf://x
file:// file://%00 file://[ sample: sample:none sample:../x ~nobody/x . [ **/ *.nothing
"""
NAMES = [*WORDS_OF_NAMES.split(), "", " ", "a\0b", "\udcff", "\x1b]52;c;x\x07", "x" * 5000, "x/" * 3000]

SLOW_NAMES = ["http://[x", "http://\x1b[31m/", "https://127.0.0.1:1/a", "s3://"]
"""Names that a process of its own refuses: tried with `info` alone."""

WORDS = {
    "chain": ("--event", "x"),
    "slice": ("--range", "0:1", "-o", "OUT"),
    "export": ("-o", "OUT.csv"),
    "snapshot": ("-o", "OUT"),
    "what-if": ("--set", "sync=0"),
}
"""What a command needs besides a trace."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, which is the current one, with an `ssh` that notes its arguments and fails."""
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {tmp_path}/asked\necho "no route to host" >&2\nexit 255\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setenv("TERM", "xterm-256color")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def list_calls(command: str) -> list[list[str]]:
    """List the names of each call: one, twice for `diff`; `fleet` starts processes for files, so it has all at once."""
    if command == "fleet":
        early = [name for name in NAMES if name.lower().startswith(("ssh:", "host:", "sample:"))]
        return [*([name] for name in early), [name for name in NAMES if name not in early]]
    names = [*NAMES, *SLOW_NAMES] if command == "info" else NAMES
    return [[name] * (2 if command == "diff" else 1) for name in names]


TRACE_COMMANDS = [name for name in ("open", *list_commands()) if "--unpack-all" in build_parser(name).format_help()]


@pytest.mark.parametrize("command", keep_some(TRACE_COMMANDS, 3))
def test_every_command_refuses_it_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    for names in list_calls(command):
        words = [*([] if command == "open" else [command]), *WORDS.get(command, ()), "--", *names]
        status, out, err = call_main(capsys, *words)
        assert (status, out) == (2, ""), names
        assert err.startswith("torchprof-tui: "), names
        assert err.count("\n") == 1, names
        assert err.rstrip("\n").isprintable(), names
        assert "crashed" not in err, (names, err)
        assert "substring not found" not in err
    assert [path.name for path in (folder / "here").iterdir()] == []
    asked = folder / "asked"
    assert not asked.exists() or not re.search("^-o(X|ProxyCommand=touch)", asked.read_text(), re.MULTILINE)
