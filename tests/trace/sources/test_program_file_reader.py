"""Files of the program read over ssh: a real sshd and ssh client."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import sshd
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.sources.program_file import MAX_FILE_BYTES, ProgramFileReader

pytestmark = pytest.mark.skipif(not (sshd.SSHD and sshd.SSH), reason="needs OpenSSH's server and client")

SOURCE = "import torch\n\ndef forward(x):\n    return x\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Sshd]:
    with sshd.running(tmp_path_factory.mktemp("sshd")) as server:
        (server.home / "runs").mkdir()
        (server.home / "train.py").write_text(SOURCE)
        yield server


def refusal(file: str, trace: str, cwd: Path) -> str:
    with pytest.raises(TraceError) as caught:
        ProgramFileReader(file, trace, cwd).read()
    return str(caught.value)


def test_a_file_is_read_on_the_host_of_the_trace(server: sshd.Sshd, tmp_path: Path) -> None:
    file = f"{server.home}/it's $(touch x) `y`.py"
    Path(file).write_text(SOURCE)
    read = ProgramFileReader(file, f"shared:{server.home}/runs/t.json", tmp_path).read()
    assert (read.place, "\n".join(read.lines) + "\n") == (f"shared:{file}", SOURCE)


@pytest.mark.parametrize("trace", ["shared:HOME/runs/t.json", "home:runs/t.json", "ssh://shared/HOME/t.json"])
def test_a_relative_file_is_found_above_the_trace(server: sshd.Sshd, tmp_path: Path, trace: str) -> None:
    read = ProgramFileReader("train.py", trace.replace("HOME", str(server.home)), tmp_path).read()
    assert read.lines[2] == "def forward(x):"
    assert read.place.endswith("train.py")


def test_what_the_host_refuses(server: sshd.Sshd, tmp_path: Path) -> None:
    os.mkfifo(server.home / "fifo.py")
    (server.home / "large.py").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (server.home / "binary.py").write_bytes(b"\0")
    refusals = {
        f"{server.home}/gone.py": "no such file on shared",
        f"{server.home}/fifo.py": "not a regular file on shared",
        "/dev/zero": "not a regular file on shared",
        f"{server.home}/large.py": "larger than 2 MB",
        f"{server.home}/binary.py": "a binary file",
    }
    for file, reason in refusals.items():
        assert reason in refusal(file, f"shared:{server.home}/t.json", tmp_path), file
    assert "nokey refused the login (publickey only)" in refusal("/x/train.py", "nokey:t.json", tmp_path)


def test_a_copy_here_is_read_where_the_host_has_none(server: sshd.Sshd, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.py").write_text(SOURCE)
    read = ProgramFileReader("/gone/mine/model.py", f"shared:{server.home}/t.json", tmp_path).read()
    assert read.place == str(tmp_path / "mine" / "model.py")


def test_a_read_that_hangs_is_cancelled(server: sshd.Sshd, tmp_path: Path) -> None:
    reader = ProgramFileReader("train.py", "silent:t.json", tmp_path)
    errors: list[TraceError] = []

    def run() -> None:
        try:
            reader.read()
        except TraceError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    reader.cancel()
    thread.join(60)
    assert not thread.is_alive()
    assert errors
