"""Test that dumps are read from ssh hosts and object stores, stacks taken over ssh, and folders answered over MCP."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import sshd
from tests.helpers.mcp_sessions import Session
from tests.helpers.paths import FIXTURES, ROOT
from torchprof_hang.command.files import read_evidence
from torchprof_hang.command.live import collect_stacks
from torchprof_hang.command.main import explain_hang
from torchprof_tui.cli import main
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


@pytest.mark.parametrize("name", ["run", "run/hang/*rank_*"])
def test_a_folder_on_a_host(host: sshd.Sshd, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    logins = host.logins
    assert main(["hang", f"box:{host.home}/{name}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sentence"] == SENTENCE
    assert host.logins == logins + 1  # one connection for all files


def test_a_missing_folder_on_a_host_is_one_line(host: sshd.Sshd) -> None:
    with pytest.raises(UsageError, match="no such file there") as raised:
        read_evidence([f"box:{host.home}/none"])
    assert "\n" not in str(raised.value)


RANK = """
import sys, time
sys.path.insert(0, sys.argv[1])
from torchprof_runs.recorder.hang_watch import HangWatch
HangWatch(sys.argv[2], 5, 8, 600, print).start()
def wait_for_data():
    print("started", flush=True)
    time.sleep(600)
wait_for_data()
"""


@pytest.mark.parametrize("name", ["localhost", "box"])
def test_live_stacks_of_a_rank(host: sshd.Sshd, tmp_path: Path, name: str) -> None:
    """A rank that is watched is asked by its signal; one that is not is left alone, and named."""
    assert host.port
    watched = [sys.executable, "-c", RANK, str(ROOT / "profiler_runs"), str(tmp_path)]
    other = [sys.executable, "-c", "import time; print('started', flush=True); time.sleep(600)"]
    processes = [
        subprocess.Popen(command, env={**os.environ, "RANK": rank}, stdout=subprocess.PIPE, text=True)
        for command, rank in ((watched, "5"), (other, "6"))
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
        evidence = collect_stacks([name])
        assert "wait_for_data" in [frame.name for frame in evidence.records[5].stack]
        if shutil.which("py-spy") is None:
            assert any(source.endswith("_rank6.txt") for source, _ in evidence.lost)
        assert [process.poll() for process in processes] == [None, None]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


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


async def test_mcp(tmp_path: Path) -> None:
    run = unpack(tmp_path / "run" / "hang").parent
    answer: dict[str, Any] = await Session([tmp_path]).ask("hang", trace="run")
    assert answer["sentence"] == SENTENCE
    assert answer["command"].startswith("torchprof-tui hang ")
    (tmp_path.parent / "outside.json").write_text(json.dumps({"secret": 1}))
    os.symlink(tmp_path.parent / "outside.json", run / "hang" / "rank_7.json")
    text, _ = await Session([tmp_path]).call("hang", trace="run")
    assert "leads outside of the folders" in text
