"""Test that dumps are read from ssh hosts and object stores, stacks taken over ssh, and folders answered over MCP."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import desync, sshd
from tests.helpers.later_imports import skip_without
from tests.helpers.long_run import keep_some
from tests.helpers.mcp_sessions import Session
from tests.helpers.paths import FIXTURES
from torchprof_hang.answers import build_hang
from torchprof_hang.command.files import read_evidence
from torchprof_hang.command.live import _ask_host, collect_stacks, split_ranks
from torchprof_hang.command.main import explain_hang
from torchprof_tui.commands.common.errors import UsageError

ARCHIVE = FIXTURES / "hang" / "skip_all_reduce.tar.xz"
SENTENCE = explain_hang([str(ARCHIVE)]).sentence


def unpack(folder: Path) -> Path:
    folder.mkdir(parents=True)
    with tarfile.open(ARCHIVE) as archive:
        for each in archive:
            file = archive.extractfile(each)
            assert file is not None
            (folder / each.name).write_bytes(file.read())
    return folder


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Sshd]:
    if not (sshd.SSHD and sshd.SSH):
        pytest.skip("needs OpenSSH's server and client")
    with sshd.running(tmp_path_factory.mktemp("sshd")) as server:
        unpack(server.home / "run" / "hang")
        yield server


@pytest.mark.parametrize("name", keep_some(["run", "run/hang", "run/hang/", "run/hang/*rank_*"], 1))
def test_a_folder_on_a_host(host: sshd.Sshd, name: str) -> None:
    assert explain_hang([f"box:{host.home}/{name}"]).sentence == SENTENCE


def test_a_missing_folder_on_a_host_is_one_line(host: sshd.Sshd) -> None:
    with pytest.raises(UsageError, match="no such file there") as raised:
        read_evidence([f"box:{host.home}/none"])
    assert "\n" not in str(raised.value)


def test_live_over_ssh_finds_only_ranks(host: sshd.Sshd) -> None:
    """This process has no RANK; those of tests that run beside it may have."""
    names = [name for name, _ in split_ranks("box", _ask_host("box"))]
    assert not [name for name in names if name.startswith(f"box:pid{os.getpid()}_")]


def test_a_host_without_ranks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchprof_hang.command.live._ask_host", lambda host: "")
    with pytest.raises(UsageError, match=r"^box: no process there has RANK"):
        collect_stacks(["box"])


RANKS = """
import mmap, os, subprocess, sys, time
if sys.argv[1] == "torch":
    with open(sys.argv[2] + "/libtorch_cpu.so", "wb+") as file:
        file.write(b"0" * 4096)
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
if sys.argv[3] == "fork" and not os.fork():
    time.sleep(600)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "variables", "count"),
    keep_some(
        [
            (["-c", RANKS, "no", ".", "no"], {"RANK": "71"}, 1),
            (["-c", RANKS, "no", ".", "fork"], {"RANK": "71", "LOCAL_RANK": "0"}, 1),  # a worker of a loader
            (["-c", RANKS, "torch", ".", "no"], {"SLURM_PROCID": "71"}, 1),
            (["-c", RANKS, "no", ".", "no"], {"SLURM_PROCID": "71"}, 0),  # any helper of a batch script
            (["torchrun", "train.py"], {"RANK": "71"}, 0),
        ],
        1,
    ),
)
def test_live_lists_ranks_and_not_what_they_start(
    tmp_path: Path, words: list[str], variables: dict[str, str], count: int
) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK", "SLURM_PROCID")}
    (tmp_path / "torchrun").write_text("print('ready', flush=True)\nimport time\ntime.sleep(600)\n")
    process = subprocess.Popen(
        [sys.executable, *words],
        env={**kept, **variables},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            assert process.stdout.readline() == "ready\n"
            found = [
                name for name, _ in split_ranks("localhost", _ask_host("localhost")) if name.endswith("rank71.txt")
            ]
            assert found == [f"localhost:pid{process.pid}_rank71.txt"] * count
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


PY_SPY = shutil.which("py-spy", path=os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"])))


@pytest.mark.long
@pytest.mark.slow
def test_live_over_ssh_takes_stacks_with_py_spy(host: sshd.Sshd, tmp_path: Path) -> None:
    """The ranks have no recorder: without py-spy there is nothing, and the reason is told."""
    skip_without("torch")
    if PY_SPY is None:
        pytest.skip("needs py-spy")
    (tmp_path / "bin").mkdir()
    broken = tmp_path / "bin" / "py-spy"
    with desync.running(tmp_path, PATH=f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}") as ranks:
        desync.hang(tmp_path)
        broken.write_text("#!/bin/sh\necho nothing; echo Permission denied >&2; exit 1\n")
        broken.chmod(0o755)
        with pytest.raises(UsageError, match="no stack: py-spy: Permission denied; run --watch-hang did not start it"):
            collect_stacks(["home"])
        broken.unlink()
        broken.symlink_to(PY_SPY)
        if subprocess.run([PY_SPY, "dump", "--pid", str(ranks[0].pid)], capture_output=True).returncode:
            pytest.skip("py-spy may not read processes here")
        hang = build_hang(collect_stacks(["home"]), 12)
        assert hang.ranks == [1]
        assert hang.sentence.startswith(
            f"rank 1: in barrier at desync.py:{desync.find_line('called instead')}, "
            f"rank 0 waits in all_reduce at desync.py:{desync.find_line('skipped')}"
        )
        assert [process.poll() for process in ranks] == [None, None]


@pytest.mark.long  # each push: folders on a host, and object stores in tests/trace/sources/test_s3.py
def test_a_folder_of_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    s3fs = pytest.importorskip("s3fs")
    pytest.importorskip("flask")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    address, port = server.get_host_and_port()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{address}:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        files = s3fs.S3FileSystem()
        files.makedirs("dumps", exist_ok=True)
        with tarfile.open(ARCHIVE) as archive:
            for each in archive:
                files.pipe(f"dumps/job/{each.name}", archive.extractfile(each).read())  # type: ignore[union-attr]
        assert explain_hang(["s3://dumps/job/"]).sentence == SENTENCE
        assert explain_hang(["s3://dumps/job/*rank_*"]).sentence == SENTENCE
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.stop()


@pytest.mark.long
async def test_mcp(tmp_path: Path) -> None:
    run = unpack(tmp_path / "run" / "hang").parent
    answer: dict[str, Any] = await Session([tmp_path]).ask("hang", trace="run")
    assert answer["sentence"] == SENTENCE
    assert answer["command"].startswith("torchprof-tui hang ")
    (tmp_path.parent / "outside.json").write_text(json.dumps({"secret": 1}))
    os.symlink(tmp_path.parent / "outside.json", run / "hang" / "rank_7.json")
    text, _ = await Session([tmp_path]).call("hang", trace="run")
    assert "leads outside of the folders" in text
