"""Fixtures of the tests of `attach`: private folders, and programs that ask as Kineto's client does."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.paths import SAMPLES
from torchprof_attach.session import Job, Session

FAKE = Path(__file__).parents[1] / "helpers" / "fake_kineto.py"

StartJob = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def folder() -> Iterator[str]:
    """A private folder with a short name: a socket's path may have 107 bytes."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="tt") as name:
        yield name


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace that Kineto wrote, unpacked."""
    path = tmp_path_factory.mktemp("trace") / "kineto.json"
    path.write_bytes(gzip.decompress((SAMPLES / "train_gpt_2ranks" / "rank0.pt.trace.json.gz").read_bytes()))
    return path


@pytest.fixture
def start_job(folder: str, trace: Path) -> Iterator[StartJob]:
    """Start programs that ask in `folder`, and write a copy of `recorded`; see `fake_kineto`."""
    started = []

    def start(mode: str = "", recorded: Path = trace, **environment: str) -> subprocess.Popen[str]:
        with open(f"{folder}/said", "w") as said:  # not a pipe, which would fill
            process = subprocess.Popen(
                [sys.executable, "-S", str(FAKE), folder, str(recorded), mode],
                env={**os.environ, "KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": folder, **environment},
                stdout=said,
                text=True,
            )
        started.append(process)
        wait_for(lambda: read_said(folder)[:1] == ["ready"])
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def session() -> Iterator[Session]:
    """A session on this host."""
    with Session() as each:
        each.connect()
        yield each


def read_said(folder: str) -> list[str]:
    """Read what a started program has printed: `ready`, then each configuration that it got on a line."""
    return Path(folder, "said").read_text().splitlines()


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something is so. Raises AssertionError after 30 s."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def find_job(session: Session, process: subprocess.Popen[str]) -> Job:
    """Find a started program in the list."""
    return next(job for job in session.list_jobs() if job.pid == process.pid)
