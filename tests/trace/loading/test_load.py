"""Loading: in this process, in a child, from the cache; what goes wrong is one line and leaves nothing behind."""

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

from tests.helpers.remote_traces import opened, same
from torchprof_samples import find
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.errors import LoadError
from torchprof_tui.trace.loading.load import load_opened_trace, load_trace
from torchprof_tui.trace.loading.open_trace import SingleTraceOpener
from torchprof_tui.trace.loading.worker_process import LoaderProcess
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.storage import disk_cache

pytestmark = pytest.mark.usefixtures("cache_home")

SAMPLE = str(find("attention_naive").path)


def test_loaded_again_it_is_mapped_and_the_same() -> None:
    first = load_opened_trace(SAMPLE)
    again = load_opened_trace(SAMPLE)
    assert (first.cached, again.cached) == (False, True)
    same(first.trace, again.trace)
    assert first.trace.label == SAMPLE


def test_without_the_cache_nothing_is_kept(cache_home: Path) -> None:
    loaded = load_opened_trace(SAMPLE, cache=False)
    assert not loaded.cached
    assert loaded.trace.event(0).read_args() is not None  # its text still lies somewhere
    assert not cache_home.exists()
    loaded.cache_entry.close()
    assert not loaded.cache_entry.folder.exists()


def test_args_that_are_no_object_are_shown_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    given: list[Any] = [[1, 2], "text", 5, None, [], {"a": 1}]
    entries = [
        {"ph": "X", "name": "x", "ts": k, "dur": 1, "pid": 1, "tid": 1, "args": args} for k, args in enumerate(given)
    ]
    path.write_text(json.dumps(entries), encoding="utf-8")
    trace = load_trace(str(path), cache=False)
    found = [trace.event(event).read_args() for event in range(len(trace))]
    assert found == [{"args": [1, 2]}, {"args": "text"}, {"args": 5}, {}, {}, {"a": 1}]


def test_a_damaged_cache_is_built_again() -> None:
    first = load_opened_trace(SAMPLE)
    for file in first.cache_entry.folder.iterdir():
        if file.name != "lock":
            file.write_bytes(b"not what was written")
    again = load_opened_trace(SAMPLE)
    assert not again.cached
    same(load_opened_trace(SAMPLE).trace, load_trace(SAMPLE, cache=False))


async def test_a_damaged_cache_is_built_again_by_a_child() -> None:
    first = load_opened_trace(SAMPLE)
    (first.cache_entry.folder / "meta.json").unlink()
    opening = SingleTraceOpener(SAMPLE)
    opening.start()
    assert opening.cached
    trace = await opening.load_trace(lambda _: None)
    same(trace, load_trace(SAMPLE, cache=False))
    opening.close()


async def test_a_child_brings_the_same_trace_and_tells_how_far_it_is() -> None:
    trace, told = await opened(SingleTraceOpener(SAMPLE, "a name of my own"))
    same(trace, load_trace(SAMPLE, cache=False))
    assert trace.label == "a name of my own"
    assert [progress.phase for progress in told if progress.phase != "reading"] == ["arranging", "storing"]
    size = os.stat(SAMPLE).st_size
    last = told[-1]
    assert (last.bytes, last.total, last.events) == (size, size, trace.counts.events)
    again, told = await opened(SingleTraceOpener(SAMPLE))
    assert told == []
    same(trace, again)


async def test_a_pipe_goes_to_the_child() -> None:
    read, write = os.pipe()
    feeder = subprocess.Popen(["cat", SAMPLE], stdout=write)
    os.close(write)
    opening = SingleTraceOpener("-", stdin=read)
    trace, _ = await opened(opening)
    os.close(read)
    assert feeder.wait() == 0
    same(trace, load_trace(SAMPLE))
    assert trace.event(0).read_args() is not None
    opening.close()
    assert disk_cache.cache_usage()[0] == 1  # that of `load`


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
async def test_what_is_no_trace_is_one_line_and_leaves_nothing(tmp_path: Path, cache_home: Path, data: bytes) -> None:
    path = tmp_path / "notes.json"
    path.write_bytes(data)
    with pytest.raises(TraceError) as here:
        load_trace(str(path))
    with pytest.raises(LoadError) as there:
        await opened(SingleTraceOpener(str(path)))
    assert "\n" not in str(there.value)
    assert str(there.value) == " ".join(str(here.value).split())
    assert list(cache_home.iterdir()) == []


async def endless() -> tuple[SingleTraceOpener, asyncio.Task[Any], int]:
    """A child that waits for the rest of a pipe which never comes, and the pipe's other end."""
    read, write = os.pipe()
    os.write(write, gzip.decompress(Path(SAMPLE).read_bytes())[:30_000])
    opening = SingleTraceOpener("-", stdin=read)
    opening.start()
    os.close(read)
    task = asyncio.create_task(opening.load_trace(lambda _: None))
    await asyncio.sleep(0.2)
    assert not task.done()
    return opening, task, write


async def test_cancelled_it_leaves_neither_process_nor_files(cache_home: Path) -> None:
    opening, task, write = await endless()
    assert opening._loader is not None
    assert opening._loader._process is not None
    child = opening._loader._process.pid
    assert len(list(cache_home.iterdir())) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert list(cache_home.iterdir()) == []
    os.close(write)


@pytest.mark.parametrize(("sign", "said"), [(signal.SIGKILL, "memory"), (signal.SIGSEGV, "SIGSEGV")])
async def test_a_child_that_is_killed_is_told(cache_home: Path, sign: signal.Signals, said: str) -> None:
    opening, task, write = await endless()
    assert opening._loader is not None
    assert opening._loader._process is not None
    opening._loader._process.send_signal(sign)
    with pytest.raises(LoadError, match=said):
        await task
    assert list(cache_home.iterdir()) == []
    os.close(write)


async def test_what_a_dying_child_printed_is_kept_for_debug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "torchprof_tui.trace.loading.worker_process._START_CODE", "import sys; sys.exit('the library said so')"
    )
    child = LoaderProcess(SAMPLE, tmp_path)
    child.start()
    with pytest.raises(LoadError, match="the library said so") as error:
        async for _ in child.read_progress():
            pass
    assert "the library said so" in error.value.detail
    child.cancel()


def test_as_a_program_it_speaks_json_lines(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "torchprof_tui.trace.loading.load", SAMPLE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert lines[-1] == {"done": True, "identity": None, "kept": False}
    assert {line["phase"] for line in lines[:-1]} >= {"arranging", "storing"}
    assert run.returncode == 0
    assert (tmp_path / "meta.json").exists()


def test_the_users_folder_cannot_get_into_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("random.py", "json.py", "numpy.py", "trace.py"):
        (tmp_path / name).write_text("raise SystemExit('imported from the folder of the user')")
    monkeypatch.chdir(tmp_path)

    async def go() -> Trace:
        return (await opened(SingleTraceOpener(SAMPLE)))[0]

    assert len(asyncio.run(go())) > 0


def test_the_child_is_light() -> None:
    code = (
        "import sys; from torchprof_tui.trace.loading import load; from torchprof_tui.trace.build import build_trace; "
        "from torchprof_tui.trace.decode import decoder; from torchprof_tui.trace.sources import source; "
        "from torchprof_tui.trace.storage import trace_store; "
        "print([name for name in ('textual', 'rich', 'asyncio', 'torch') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
