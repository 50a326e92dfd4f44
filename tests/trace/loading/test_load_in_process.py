"""Test loading one trace: in this process, in a worker and from the cache; failures are one line and leave no files."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.paths import list_cache
from tests.helpers.remote_traces import opened, same
from torchprof_samples import find
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.load_in_process import load_opened_trace, load_trace
from torchprof_tui.trace.loading.opener import SingleTraceOpener
from torchprof_tui.trace.loading.progress import LoadError
from torchprof_tui.trace.loading.worker_process import Task, WorkerProcess
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.storage import disk_cache

pytestmark = pytest.mark.usefixtures("cache_home")

SAMPLE = str(find("attention_naive").path)


def test_the_second_load_maps_the_same_trace() -> None:
    first = load_opened_trace(SAMPLE)
    again = load_opened_trace(SAMPLE)
    assert (first.cached, again.cached) == (False, True)
    same(first.trace, again.trace)
    assert first.trace.label == SAMPLE


def test_without_the_cache_nothing_is_stored(cache_home: Path) -> None:
    loaded = load_opened_trace(SAMPLE, cache=False)
    assert not loaded.cached
    assert loaded.trace.event(0).read_args() is not None  # the text is still on disk
    assert not cache_home.exists()
    loaded.cache_entry.close()
    assert not loaded.cache_entry.folder.exists()


def test_args_that_are_no_object(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    all_args: list[Any] = [[1, 2], "text", 5, None, [], {"a": 1}]
    entries = [
        {"ph": "X", "name": "x", "ts": k, "dur": 1, "pid": 1, "tid": 1, "args": args} for k, args in enumerate(all_args)
    ]
    path.write_text(json.dumps(entries), encoding="utf-8")
    trace = load_trace(str(path), cache=False)
    found = [trace.event(event).read_args() for event in range(len(trace))]
    assert found == [{"args": [1, 2]}, {"args": "text"}, {"args": 5}, {}, {}, {"a": 1}]


def test_a_damaged_cache_entry_is_built_again() -> None:
    first = load_opened_trace(SAMPLE)
    for file in first.cache_entry.folder.iterdir():
        if file.name != "lock":
            file.write_bytes(b"not what was written")
    again = load_opened_trace(SAMPLE)
    assert not again.cached
    same(load_opened_trace(SAMPLE).trace, load_trace(SAMPLE, cache=False))


async def test_a_damaged_cache_entry_is_built_again_by_a_worker() -> None:
    first = load_opened_trace(SAMPLE)
    (first.cache_entry.folder / "meta.json").unlink()
    opener = SingleTraceOpener(SAMPLE)
    opener.start()
    assert opener.cached
    trace = await opener.load_trace(lambda _: None)
    same(trace, load_trace(SAMPLE, cache=False))
    opener.close()


async def test_a_worker_loads_the_same_trace_and_reports_progress() -> None:
    trace, reports = await opened(SingleTraceOpener(SAMPLE, "a label"))
    same(trace, load_trace(SAMPLE, cache=False))
    assert trace.label == "a label"
    assert [progress.phase for progress in reports if progress.phase != "reading"] == ["arranging", "storing"]
    size = os.stat(SAMPLE).st_size
    last = reports[-1]
    assert (last.bytes, last.total, last.events) == (size, size, trace.counts.events)
    again, reports = await opened(SingleTraceOpener(SAMPLE))
    assert reports == []
    same(trace, again)


async def test_a_decoded_trace_is_not_cached_until_it_is_opened_again() -> None:
    opener = SingleTraceOpener(SAMPLE)
    opener.start()
    assert not opener.cached
    await opener.load_trace(lambda _: None)
    assert not opener.cached
    opener.close()
    again = SingleTraceOpener(SAMPLE)
    again.start()
    assert again.cached
    await again.load_trace(lambda _: None)
    assert again.cached
    again.close()


async def test_a_damaged_cache_entry_does_not_count_as_cached() -> None:
    (load_opened_trace(SAMPLE).cache_entry.folder / "meta.json").unlink()
    opener = SingleTraceOpener(SAMPLE)
    opener.start()
    assert opener.cached  # as far as it is known
    await opener.load_trace(lambda _: None)
    assert not opener.cached
    opener.close()


async def test_a_pipe_is_passed_to_the_worker() -> None:
    read, write = os.pipe()
    feeder = subprocess.Popen(["cat", SAMPLE], stdout=write)
    os.close(write)
    opener = SingleTraceOpener("-", stdin=read)
    trace, _ = await opened(opener)
    os.close(read)
    assert feeder.wait() == 0
    same(trace, load_trace(SAMPLE))
    assert trace.event(0).read_args() is not None
    opener.close()
    assert disk_cache.cache_usage()[0] == 1  # that of `load_trace`


async def test_a_named_pipe_is_read_once_and_whole(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    feeder = subprocess.Popen(["sh", "-c", 'exec cat "$0" > "$1"', SAMPLE, str(pipe)])
    trace, _ = await opened(SingleTraceOpener(str(pipe)))
    assert feeder.wait() == 0
    same(trace, load_trace(SAMPLE))


@pytest.mark.parametrize(
    "data", [b"hello, world\n", b'{"a": 1}', b"\x1f\x8bnot gzip at all"], ids=["text", "json", "gzip"]
)
async def test_what_is_no_trace_gives_one_line_and_leaves_no_files(
    tmp_path: Path, cache_home: Path, data: bytes
) -> None:
    path = tmp_path / "notes.json"
    path.write_bytes(data)
    with pytest.raises(TraceError) as in_process:
        load_trace(str(path))
    with pytest.raises(LoadError) as in_worker:
        await opened(SingleTraceOpener(str(path)))
    assert "\n" not in str(in_worker.value)
    assert str(in_worker.value) == " ".join(str(in_process.value).split())
    assert list_cache(cache_home) == []


async def open_endless_pipe() -> tuple[SingleTraceOpener, asyncio.Task[Any], int]:
    """Start a worker that waits for the rest of a pipe, and return the pipe's other end, which sends nothing more."""
    read, write = os.pipe()
    os.write(write, gzip.decompress(Path(SAMPLE).read_bytes())[:30_000])
    opener = SingleTraceOpener("-", stdin=read)
    opener.start()
    os.close(read)
    task = asyncio.create_task(opener.load_trace(lambda _: None))
    await asyncio.sleep(0.2)
    assert not task.done()
    return opener, task, write


async def test_cancelling_leaves_neither_process_nor_files(cache_home: Path) -> None:
    opener, task, write = await open_endless_pipe()
    assert opener._worker is not None
    assert opener._worker._process is not None
    worker = opener._worker._process.pid
    assert len(list_cache(cache_home)) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
    assert list_cache(cache_home) == []
    os.close(write)


@pytest.mark.parametrize(
    ("number", "explanation"),
    [(signal.SIGKILL, "memory"), (signal.SIGBUS, "disk is full"), (signal.SIGSEGV, "SIGSEGV")],
)
async def test_a_killed_worker_is_explained(cache_home: Path, number: signal.Signals, explanation: str) -> None:
    opener, task, write = await open_endless_pipe()
    assert opener._worker is not None
    assert opener._worker._process is not None
    opener._worker._process.send_signal(number)
    with pytest.raises(LoadError, match=explanation):
        await task
    assert list_cache(cache_home) == []
    os.close(write)


async def test_what_a_worker_printed_before_it_died_is_the_detail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "torchprof_tui.trace.loading.worker_process._START_CODE", "import sys; sys.exit('the library said so')"
    )
    worker = WorkerProcess(Task.DECODE, SAMPLE, str(tmp_path))
    worker.start()
    with pytest.raises(LoadError, match="the library said so") as error:
        await worker.read_result(lambda _: None)
    assert "the library said so" in error.value.detail
    worker.detach()
    worker.cancel()


def test_a_worker_that_cannot_be_started_leaves_no_descriptor_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    worker = WorkerProcess(Task.DECODE, SAMPLE, str(tmp_path))
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        worker.start()
    worker.cancel()
    assert worker._stderr_file is not None
    worker._stderr_file.close()
    assert set(os.listdir("/proc/self/fd")) == before


def test_the_worker_program_writes_json_lines(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "torchprof_tui.trace.loading.worker_main", "decode", SAMPLE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert lines[-1] == {"done": True, "identity": None, "already_cached": False}
    assert {line["phase"] for line in lines[:-1]} >= {"arranging", "storing"}
    assert run.returncode == 0
    assert (tmp_path / "meta.json").exists()


def test_the_users_folder_is_not_imported_by_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("random.py", "json.py", "numpy.py", "trace.py"):
        (tmp_path / name).write_text("raise SystemExit('imported from the user's folder')")
    monkeypatch.chdir(tmp_path)

    async def go() -> Trace:
        return (await opened(SingleTraceOpener(SAMPLE)))[0]

    assert len(asyncio.run(go())) > 0


def test_the_worker_imports_no_screen_library() -> None:
    code = (
        "import sys; from torchprof_tui.trace.loading import decode_and_store, load_in_process, worker_main; "
        "print([name for name in ('textual', 'rich', 'asyncio', 'torch') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
