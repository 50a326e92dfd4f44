"""Tests of the listing script under every installed shell, with and without `stat`.

ssh is replaced by a script that runs the command locally; `loading/test_open_remote.py` uses a real one.
"""

from __future__ import annotations

import os
import random
import shutil
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.sources.ssh_file import list_host_paths
from torchprof_tui.trace.specs.address import parse_ssh_path

TOOLS = ("sh", "cat", "ls", "find", "sed", "printf", "stat")
SHELLS = [shell for shell in ("dash", "bash", "busybox", "ksh", "mksh", "zsh") if shutil.which(shell)]


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make this shell `sh` on the host `box`; bash reads the command that ssh sends."""
    name: str = request.param
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in TOOLS[1:]:
        program = shutil.which(tool)
        if program:
            (tools / tool).symlink_to(program)
    (tools / "sh").symlink_to(shutil.which(name) or name)
    client = tmp_path / "bin" / "ssh"
    client.parent.mkdir()
    client.write_text(
        f'#!{shutil.which("bash")}\nfor last do :; done\n[ "$last" = box ] && exit\nPATH={tools}\neval "$last"\n'
    )
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{client.parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return name


def list_specs(*names: str) -> list[list[str] | str]:
    """List these names: for each, the specs of its traces or the error line."""
    paths = [parse_ssh_path(name) for name in names]
    answers = list_host_paths([path for path in paths if path is not None])[0]
    return [answer if isinstance(answer, str) else [trace.spec for trace in answer] for answer in answers]


def test_patterns_match_like_fnmatch(shell: str, tmp_path: Path) -> None:
    """Names with special characters of shells. fnmatch is the reference, after a file of exactly that name."""
    rng = random.Random(5)
    folder = tmp_path / "data"
    folder.mkdir()
    letters = "ab*?[]' \"$`;&|<>(){}#~=%ü"
    names = {"".join(rng.choices(letters, k=rng.randrange(1, 4))) for _ in range(60)}
    for name in names:
        (folder / name).write_text("x")
    (folder / "a\nb").write_text("x")
    patterns = {"*", "?", "a*", "[ab]*", "*[*]*", "??", "[[]*", "*'*", "*$*", "* *", "*ü*", "z*"}
    for pattern in patterns | names:
        (answer,) = list_specs(f"box:{folder}/{pattern}")
        if pattern in names:
            assert answer == [f"box:{folder}/{pattern}"]
            continue
        expected = sorted(f"box:{folder}/{name}" for name in names if fnmatchcase(_bytes(name), _bytes(pattern)))
        assert answer == (expected or f"box:{folder}/{pattern}: no match there"), pattern


def _bytes(text: str) -> str:
    """Map each byte to one character, as the shell does in the C locale."""
    return text.encode().decode("latin-1")


def test_hosts_without_stat(shell: str, tmp_path: Path) -> None:
    """Then size and identity are unknown, and the cache is not used before the file is opened."""
    (tmp_path / "tools" / "stat").unlink()
    data = tmp_path / "data"
    data.mkdir()
    for name in ("rank0.json", "rank1.json", "notes.txt"):
        (data / name).write_text("x")
    pattern = parse_ssh_path(f"box:{data}/*.json")
    assert pattern is not None
    ((answer,), _) = list_host_paths([pattern])
    assert not isinstance(answer, str)
    assert [(each.spec, each.size, each.identity) for each in answer] == [
        (f"box:{data}/rank{k}.json", None, None) for k in range(2)
    ]
    assert list_specs(f"box:{data}", f"box:{data}/notes.txt", f"box:{data}/none") == [
        [f"box:{data}/rank{k}.json" for k in range(2)],
        [f"box:{data}/notes.txt"],
        f"box:{data}/none: no such file there",
    ]


def test_incomplete_answer_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = tmp_path / "ssh"
    client.write_text('#!/bin/sh\nprintf "\\n\\036torchprof-tui file\\n1 2 3"\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(TraceError, match="box sent only a part of its answer"):
        list_specs("box:a.json")
    client.write_text('#!/bin/sh\nprintf "\\n\\036torchprof-tui file\\n\\n\\036torchprof-tui end\\n"\n')
    with pytest.raises(TraceError, match="unexpected answer from box"):
        list_specs("box:a.json", "box:b.json")
