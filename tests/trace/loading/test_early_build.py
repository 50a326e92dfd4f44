"""Test the process that builds the beginning of a trace: what it announces, and that it leaves nothing behind."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.trace.decode.test_early_decoder import make_sections, write_kineto
from torchprof_tui.trace.loading import decode_and_store
from torchprof_tui.trace.loading.decode_and_store import FIRST_BYTES, build_early_parts, choose_early_sizes
from torchprof_tui.trace.loading.opener import map_early
from torchprof_tui.trace.loading.worker_process import Task, WorkerProcess

PROGRAM = """
import json, os, sys
from pathlib import Path
from torchprof_tui.trace.loading.decode_and_store import EarlyBuild
def send(message):
    os.write(1, json.dumps(message).encode() + b"\\n")
early = EarlyBuild(sys.argv[1], Path(sys.argv[2]), send, json.loads(sys.argv[3]))
sys.stdin.readline()
early.stop()
print(json.dumps("stopped"), flush=True)
"""
"""A worker of its own: a process with threads, as the tests' own may be, does not fork."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "trace.json"
    write_kineto(path, make_sections())
    return path


@contextmanager
def worker(path: Path, folder: Path, sizes: list[int]) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir()
    arguments = [sys.executable, "-c", PROGRAM, str(path), str(folder), json.dumps(sizes)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def read_message(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_parts_are_announced_mapped_and_removed(path: Path, tmp_path: Path) -> None:
    folder, size = tmp_path / "draft", path.stat().st_size
    with worker(path, folder, [size // 20, size // 8]) as process:
        parts = [map_early(folder, "the label", read_message(process)) for _ in range(2)]
        assert parts[0] is not None
        assert parts[1] is not None
        assert len(parts[0].trace) < len(parts[1].trace)
        assert parts[0].share < parts[1].share < 0.3
        assert parts[1].trace.label == "the label"
        assert parts[1].trace.part.startswith("first ")
        assert max(parts[1].trace.start + parts[1].trace.duration) <= parts[1].end
        assert list(folder.iterdir()) == []  # mapped, and removed at once
        process.communicate(b"\n")


@pytest.mark.long
def test_stopping_removes_what_was_not_mapped(path: Path, tmp_path: Path) -> None:
    folder, size = tmp_path / "draft", path.stat().st_size
    with worker(path, folder, [size // 8]) as process:
        message = read_message(process)
        assert process.communicate(b"\n")[0] == b'"stopped"\n'
        assert list(folder.iterdir()) == []
        assert map_early(folder, "", message) is None  # too late


def test_it_ends_with_its_parent(path: Path, tmp_path: Path) -> None:
    size = path.stat().st_size
    with worker(path, tmp_path / "draft", [size // 8] * 1000) as process:
        read_message(process)
        process.send_signal(signal.SIGKILL)
        assert process.stdout is not None
        process.stdout.read()  # ends when no process has the pipe any more


def test_cancelling_a_worker_waits_for_the_processes_that_it_has_forked(tmp_path: Path) -> None:
    """What a forked process writes after the folder was removed would stay behind."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, time\n"
        "if not os.fork():\n"
        "    time.sleep(0.4)\n"
        "    open(sys.argv[1], 'w').close()\n"
        "    os._exit(0)\n"
        "print(flush=True)\n"
        "time.sleep(60)\n"
    )
    process = WorkerProcess(Task.SPLIT, str(tmp_path / "written"))
    end, inherited = os.pipe()
    process._end_pipe = end
    arguments = [sys.executable, str(script), str(tmp_path / "written")]
    started = process._process = subprocess.Popen(arguments, stdout=subprocess.PIPE, pass_fds=[inherited])
    os.close(inherited)
    assert started.stdout is not None
    started.stdout.readline()
    process.cancel()
    assert (tmp_path / "written").exists()


def test_a_compressed_file_is_not_read_from_the_middle(tmp_path: Path, path: Path) -> None:

    compressed = tmp_path / "trace.json.gz"
    compressed.write_bytes(gzip.compress(path.read_bytes(), 1))
    messages: list[dict[str, object]] = []
    build_early_parts(str(compressed), tmp_path, messages.append, [1000])
    assert messages == []


def test_small_files_pipes_and_remote_names_have_no_early_part(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for spec in (str(path), str(tmp_path / "pipe"), "host:/trace.json", "-", "\0"):
        assert choose_early_sizes(spec) == []
    large = tmp_path / "large.json"
    monkeypatch.setattr(decode_and_store, "count_cores", lambda: 2)
    with large.open("wb") as file:
        file.truncate(700 << 20)
    assert choose_early_sizes(str(large)) == []  # the whole trace would be on screen much later
    with large.open("wb") as file:
        file.truncate(2 << 30)
    assert choose_early_sizes(str(large)) == [FIRST_BYTES]
    with large.open("wb") as file:
        file.truncate(16 << 30)
    assert choose_early_sizes(str(large)) == [FIRST_BYTES, 4 * FIRST_BYTES, 16 * FIRST_BYTES]
