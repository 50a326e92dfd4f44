"""The shell that looks around over there, under every shell that is here, with and without `stat`.

ssh is a script that runs what it is asked to here; what a real one does is in `test_remote_ranks.py`.
"""

from __future__ import annotations

import os
import random
import shutil
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.sources.ssh_listing import list_host_paths
from torchprof_tui.trace.specs.address import parse_ssh_path

TOOLS = ("sh", "cat", "ls", "find", "sed", "printf", "stat")
SHELLS = [shell for shell in ("dash", "bash", "busybox", "ksh", "mksh", "zsh") if shutil.which(shell)]


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """This shell is `sh` on the host `box`, and bash reads what ssh sends there."""
    name: str = request.param
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in TOOLS[1:]:
        found = shutil.which(tool)
        if found:
            (tools / tool).symlink_to(found)
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


def found(*names: str) -> list[list[str] | str]:
    there = [parse_ssh_path(name) for name in names]
    answers = list_host_paths([each for each in there if each is not None], allow_prompt=False).answers
    return [each if isinstance(each, str) else [one.spec for one in each] for each in answers]


def test_patterns_match_what_python_says_they_do(shell: str, tmp_path: Path) -> None:
    """Names with all that a shell might read otherwise; fnmatch is the oracle, with a file of the very name first."""
    chance = random.Random(5)
    folder = tmp_path / "data"
    folder.mkdir()
    letters = "ab*?[]' \"$`;&|<>(){}#~=%ü"
    names = {"".join(chance.choices(letters, k=chance.randrange(1, 4))) for _ in range(60)}
    for name in names:
        (folder / name).write_text("x")
    (folder / "a\nb").write_text("x")
    patterns = {"*", "?", "a*", "[ab]*", "*[*]*", "??", "[[]*", "*'*", "*$*", "* *", "*ü*", "z*"}
    for pattern in patterns | names:
        (answer,) = found(f"box:{folder}/{pattern}")
        if pattern in names:
            assert answer == [f"box:{folder}/{pattern}"]
            continue
        meant = sorted(f"box:{folder}/{name}" for name in names if fnmatchcase(_bytes(name), _bytes(pattern)))
        assert answer == (meant or f"box:{folder}/{pattern}: nothing there matches"), pattern


def _bytes(text: str) -> str:
    """A letter a byte: the shell over there counts so, for its language is C."""
    return text.encode().decode("latin-1")


def test_without_stat_there_are_names_alone(shell: str, tmp_path: Path) -> None:
    """Then nothing is known before it is opened, and nothing is taken from a cache unasked."""
    (tmp_path / "tools" / "stat").unlink()
    data = tmp_path / "data"
    data.mkdir()
    for name in ("rank0.json", "rank1.json", "notes.txt"):
        (data / name).write_text("x")
    there = parse_ssh_path(f"box:{data}/*.json")
    assert there is not None
    (answer,) = list_host_paths([there], allow_prompt=False).answers
    assert not isinstance(answer, str)
    assert [(each.spec, each.size, each.identity) for each in answer] == [
        (f"box:{data}/rank{k}.json", None, None) for k in range(2)
    ]
    assert found(f"box:{data}", f"box:{data}/notes.txt", f"box:{data}/none") == [
        [f"box:{data}/rank{k}.json" for k in range(2)],
        [f"box:{data}/notes.txt"],
        f"box:{data}/none: no such file there",
    ]


def test_an_answer_that_stops_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = tmp_path / "ssh"
    client.write_text('#!/bin/sh\nprintf "\\n\\036torchprof-tui file\\n1 2 3"\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(TraceError, match="box stopped in the middle of its answer"):
        found("box:a.json")
    client.write_text('#!/bin/sh\nprintf "\\n\\036torchprof-tui file\\n\\n\\036torchprof-tui end\\n"\n')
    with pytest.raises(TraceError, match="an answer that makes no sense"):
        found("box:a.json", "box:b.json")
