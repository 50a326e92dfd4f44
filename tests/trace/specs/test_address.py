"""Tests of remote names: ssh paths, URLs, patterns, quoting, and the explanation of ssh failures."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.helpers.json_schemas import check_answer
from torchprof_tui.cli import main
from torchprof_tui.commands.info.main import print_folder
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.resolve import check_readable, resolve_path, resolve_specs
from torchprof_tui.trace.sources.source import open_source
from torchprof_tui.trace.sources.ssh_command import create_connection_error
from torchprof_tui.trace.specs.address import (
    ListedTrace,
    SshPath,
    is_pattern,
    is_remote,
    is_url,
    parse_ssh_path,
)
from torchprof_tui.trace.specs.runs_by_name import FolderError
from torchprof_tui.ui.start.recent_traces import add_recent_trace, list_recent_traces


@pytest.mark.parametrize(
    ("spec", "host", "port", "path"),
    [
        ("gpu-box:runs/trace.json.gz", "gpu-box", None, "runs/trace.json.gz"),
        ("me@gpu-box:/data/a:b.json", "me@gpu-box", None, "/data/a:b.json"),
        ("box:", "box", None, ""),
        ("[2001:db8::1]:t.json", "2001:db8::1", None, "t.json"),
        ("me@[fe80::1%eth0]:t.json", "me@fe80::1%eth0", None, "t.json"),
        ("10.0.0.7:~/runs/t.json", "10.0.0.7", None, "~/runs/t.json"),
        ("ssh://box/data/t.json", "box", None, "/data/t.json"),
        ("ssh://me@GPU-Box:2222/data/a%20b.json", "me@GPU-Box", 2222, "/data/a b.json"),
        ("ssh://box/~/t.json", "box", None, "~/t.json"),
        ("ssh://me@[::1]:22/t.json", "me@::1", 22, "/t.json"),
        ("SSH://box/t.json", "box", None, "/t.json"),
    ],
)
def test_ssh_paths(spec: str, host: str, port: int | None, path: str) -> None:
    assert parse_ssh_path(spec) == SshPath(spec, host, port, path)
    assert is_remote(spec)
    assert not is_url(spec)


@pytest.mark.parametrize(
    "spec",
    [
        *("trace.json", "./a:b.json", "/data/a:b.json", "runs/a:b.json", r"C:\runs\t.json", "C:/runs/t.json"),
        *("-", "~/a:b", "-oProxyCommand=touch x:y", ":t.json", "a\0b:c"),
    ],
)
def test_local_names(spec: str) -> None:
    assert parse_ssh_path(spec) is None
    assert not is_remote(spec)


@pytest.mark.parametrize(
    "spec", ["https://x.org/t.json", "s3://bucket/t.json.gz", "hf://datasets/a/b.json", "zip://a.json::https://x/y.zip"]
)
def test_urls(spec: str) -> None:
    assert is_url(spec)
    assert is_remote(spec)
    assert parse_ssh_path(spec) is None


def test_existing_local_file_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_ssh_path("rank0:trace.json") is not None
    Path("rank0:trace.json").write_bytes(b'[{"ph": "X"}]')
    assert parse_ssh_path("rank0:trace.json") is None
    source = open_source("rank0:trace.json")
    assert source.plain_path == tmp_path / "rank0:trace.json"
    source.close()


@pytest.mark.parametrize("spec", ["ssh://", "ssh:///t.json", "ssh://box:port/t.json", "ssh://-oProxyCommand=x/t.json"])
def test_invalid_address_raises(spec: str) -> None:
    for open_or_check in (check_readable, open_source):
        with pytest.raises(TraceError, match=r"no host|not a valid address"):
            open_or_check(spec)


def test_file_url_is_a_local_path() -> None:
    assert resolve_path("file:///data/a%20b.json") == "/data/a b.json"


def test_child_spec() -> None:
    for spec, below in (
        ("box:", "box:a/t.json"),
        ("box:runs", "box:runs/a/t.json"),
        ("box:runs/", "box:runs/a/t.json"),
    ):
        ssh_path = parse_ssh_path(spec)
        assert ssh_path is not None
        assert ssh_path.child_spec("a/t.json") == below


@pytest.mark.parametrize(
    ("spec", "path", "named"),
    [
        ("box:runs/*.json", "./runs/a b.json", "box:runs/a b.json"),
        ("me@box:*", "./~odd.json", "me@box:./~odd.json"),  # without ./ a home folder
        ("box:~/runs/*", "./runs/t.json", "box:runs/t.json"),
        ("box:./runs/", "././runs//t.json", "box:runs/t.json"),
        ("box:/data/*", "/data/t.json", "box:/data/t.json"),
        ("[::1]:*.json", "./t.json", "[::1]:t.json"),
        ("ssh://me@box:2222/data/*", "/data/50%.json", "ssh://me@box:2222/data/50%25.json"),
        ("ssh://box/~/runs/*", "./runs/t.json", "ssh://box/~/runs/t.json"),
    ],
)
def test_spec_for_path(spec: str, path: str, named: str) -> None:
    ssh_path = parse_ssh_path(spec)
    assert ssh_path is not None
    assert ssh_path.spec_for_path(path) == named
    again = parse_ssh_path(named)
    assert again is not None
    assert (again.host, again.port) == (ssh_path.host, ssh_path.port)
    home = again.path.removeprefix("~/")
    assert os.path.normpath(home) == os.path.normpath(path)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        *(("box:*.json", True), ("box:rank[0-3].json", True), ("box:rank?.json", True), ("ssh://box/a/*", True)),
        *(("box:a.json", False), ("[::1]:a.json", False), ("ssh://[::1]:22/a.json", False), ("*.json", False)),
        *(("s3://b/*.json.gz", True), ("https://x.org/a.json?sign=*", False), ("https://x.org/*.json?sign=1", True)),
    ],
)
def test_is_pattern(spec: str, expected: bool) -> None:
    assert is_pattern(spec) is expected


@pytest.mark.parametrize("spec", ["ssh://box:99999/x", "ssh://", "ssh://box:port/*"])
def test_invalid_address_is_reported_in_one_line(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([spec], ["box:a.json", spec]):
        assert main(["info", *words]) == 2
        line = capsys.readouterr().err
        assert line.startswith(f"torchprof-tui: {spec}: ")
        assert line.count("\n") == 1


@pytest.mark.parametrize(
    ("names", "label"),
    [
        (["box:a/r0.json", "box:a/r1.json"], "box:a"),
        (["box:r0.json", "box:r1.json"], "box:"),
        (["ssh://box/r0.json", "ssh://box/r1.json"], "ssh://box"),
        (["s3://b/run/r0.json", "s3://b/run/r1.json"], "s3://b/run"),
        (["ssh://box/r0.json", "ssh://other/r1.json"], "ssh://box/r0.json"),
        (["box:a/r*.json"], "box:a/r*.json"),
    ],
)
def test_label_of_several_names(names: list[str], label: str) -> None:
    resolved = resolve_specs(names)
    assert (resolved.label, resolved.remote_names) == (label, tuple(names))


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("a b.json", "./a b.json"),
        ('it\'s $(touch x) `y` "z".json', './it\'s $(touch x) `y` "z".json'),
        ("-n", "./-n"),
        ("*", "./*"),
        ("a\nb", "./a\nb"),
        ("/abs/t.json", "/abs/t.json"),
        ("~/runs/t.json", "./runs/t.json"),
        ("~", "./."),
        ("", "./."),
        ("~root/x y", os.path.expanduser("~root/x y")),
        ("~$(x)/y", "./~$(x)/y"),
    ],
)
def test_quoted_path_is_one_shell_word(shell: str, path: str, meant: str) -> None:
    word = SshPath("", "box", None, path).quote_path()
    got = subprocess.run([shell, "-c", f'printf "%s\\0" {word}'], capture_output=True, check=True).stdout
    assert got == f"{meant}\0".encode()


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        (
            "ssh: Could not resolve hostname box: Name or service not known\r\n",
            "neither a host nor a local file named box",
        ),
        (
            "ssh: Could not resolve hostname jump\x1b: x",
            "box cannot be reached: your ssh configuration leads to the unknown host jump",
        ),
        (
            "Connection closed by UNKNOWN port 65535\r\n",
            "the jump host or proxy command of your ssh configuration ended",
        ),
        ("ssh: connect to host box port 22: Connection refused\r\n", "box (port 22) refused the connection"),
        ("ssh: connect to host box port 22: No route to host\r\n", "no route to it"),
        ("ssh: connect to host box port 22: Network is unreachable\r\n", "no network"),
        ("ssh: connect to host box port 22: Connection timed out\r\n", "timed out"),
        ("ssh: connect to host box port 22: Operation timed out\r\n", "timed out"),
        ("me@box: Permission denied (publickey,hostbased).\r\n", "refused the login (publickey or hostbased only)"),
        ("kex_exchange_identification: read: Connection reset by peer\r\n", "Connection reset by peer"),
        ("", "no reason given"),
        ("\x1b[31mbad\x07\n", "[31mbad"),
    ],
)
def test_connection_failures_are_explained(said: str, meaning: str) -> None:
    line = str(create_connection_error(SshPath("box:t", "me@box", None, "t"), said))
    assert meaning in line
    assert line.isprintable()


def test_urls_with_secrets_are_not_stored_as_recent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    kept = ["box:t.json", "https://x.org/t.json"]
    for spec in [*kept, "https://x.org/t.json?X-Amz-Signature=1", "https://me:secret@x.org/t.json"]:
        add_recent_trace(spec)
    assert [entry.spec for entry in list_recent_traces()] == kept[::-1]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("box:runs/rank3.json.gz", 3),
        ("box:runs/host_1.worker-12.pt.trace.json", 12),
        ("s3://b/rank7/trace_r0.json", 0),
        ("box:rank5/trace.json", None),
        ("box:runs/frank3.json", None),
        ("box:runs/rank12345678.json", None),
    ],
)
def test_rank_of_a_listed_trace(name: str, rank: int | None) -> None:
    assert ListedTrace(name, 1, 0.0).rank == rank


def test_printed_listing_has_a_rank_column_if_needed(capsys: pytest.CaptureFixture[str]) -> None:
    ranked = [ListedTrace("box:a/rank1.json", 2048, 0.0), ListedTrace("box:a/other.json", 10, 0.0)]
    print_folder(FolderError("box:a/", ranked), as_json=False)
    first, second = capsys.readouterr().out.splitlines()
    assert "rank 1    box:a/rank1.json" in first
    assert first.index("box:") == second.index("box:")
    print_folder(FolderError("box:a/", ranked[1:]), as_json=False)
    assert "rank" not in capsys.readouterr().out
    print_folder(FolderError("box:a/", ranked), as_json=True)
    answer = json.loads(capsys.readouterr().out)
    check_answer(answer, "info", "FolderListing")
    assert [each["rank"] for each in answer["traces"]] == [1, None]
