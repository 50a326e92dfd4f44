"""Test opening several ranks with a pool of workers: stored, mapped again, failing in one line, leaving no files."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.rank_traces import late_rank
from torchprof_tui.analysis.doctor.read_problems import summarize_losses
from torchprof_tui.trace.core.errors import format_error
from torchprof_tui.trace.loading import open_ranks
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.loading.open_ranks import RanksOpener, WorkerPool
from torchprof_tui.trace.loading.progress import FAILED_SHARE, LoadError, Progress, RanksProgress
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.specs.rank_files import RankFile
from torchprof_tui.trace.storage.disk_cache import cache_folder, cache_usage, create_draft


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path / "cache"))


def create_opener(*specs: object, cache: bool = True) -> RanksOpener:
    opener = resolve_specs([str(spec) for spec in specs]).create_opener(cache)
    assert isinstance(opener, RanksOpener)
    return opener


async def opened(opener: RanksOpener) -> tuple[Trace, list[Progress]]:
    reports: list[Progress] = []
    opener.start()
    return await opener.load_trace(reports.append), reports


def drafts() -> list[str]:
    return [name for name in os.listdir(cache_folder()) if name.startswith(".draft")]


async def test_ranks_are_decoded_then_mapped(tmp_path: Path) -> None:
    paths = late_rank(5).write(tmp_path, packed=True)
    opener = create_opener(tmp_path)
    trace, reports = await opened(opener)
    assert not opener.cached
    assert trace.merged_ranks is not None
    assert [rank.number for rank in trace.merged_ranks.all] == [0, 1, 2, 3, 4]
    assert trace.label == str(tmp_path)
    assert reports[-1].phase == "merging"
    assert reports[-1].events == len(trace)
    assert cache_usage()[0] == 5
    for rank, path in zip(trace.merged_ranks.all, paths, strict=True):
        alone = load_trace(str(path))
        assert np.array_equal(trace.start[rank.first : rank.last], alone.start + rank.clock.shift)
    opener.close()

    again = create_opener(*paths)
    mapped, reports = await opened(again)
    assert again.cached
    assert [each.phase for each in reports] == ["merging"]
    assert np.array_equal(mapped.start, trace.start)
    assert mapped.merged_ranks is not None
    assert np.array_equal(mapped.merged_ranks.matched_collectives.events, trace.merged_ranks.matched_collectives.events)
    again.close()
    assert not drafts()


async def test_ranks_that_were_opened_alone_before(tmp_path: Path) -> None:
    """The columns are in the cache, the collectives are not: they are read from the text and stored then."""
    paths = late_rank(2).write(tmp_path)
    for path in paths:
        load_trace(str(path))
    for _ in range(2):
        opener = create_opener(tmp_path)
        trace, _ = await opened(opener)
        assert opener.cached
        assert trace.merged_ranks is not None
        assert len(trace.merged_ranks.matched_collectives) == 6
        opener.close()
    stored = [
        folder for folder in os.listdir(cache_folder()) if (cache_folder() / folder / "collectives.json").exists()
    ]
    assert len(stored) == 2


async def test_without_the_cache_nothing_is_stored(tmp_path: Path) -> None:
    late_rank(2).write(tmp_path)
    opener = create_opener(tmp_path, cache=False)
    trace, _ = await opened(opener)
    assert trace.event(0).read_args() is not None
    opener.close()
    assert not cache_folder().exists() or not os.listdir(cache_folder())


async def test_a_rank_that_is_no_trace_is_left_out_and_reported(tmp_path: Path) -> None:
    paths = late_rank(3).write(tmp_path)
    paths[1].write_text('{"traceEvents": "nothing", "distributedInfo": {"rank": 1}}')
    opener = RanksOpener([RankFile(str(path), k) for k, path in enumerate(paths)], "run", "")
    trace, reports = await opened(opener)
    assert trace.merged_ranks is not None
    assert [rank.number for rank in trace.merged_ranks.all] == [0, 2]
    (lost,) = trace.merged_ranks.lost
    assert (lost.number, lost.file) == (1, str(paths[1]))
    assert lost.reason.startswith(f"{paths[1]}: not a trace")
    assert "\n" not in lost.reason
    assert [(problem.kind, problem.count, problem.example) for problem in trace.problems] == [
        ("rank not opened", 1, f"rank 1: {lost.reason}")
    ]
    assert summarize_losses(trace).startswith("not all of this run could be read: rank not opened")
    last = reports[-1]
    assert isinstance(last, RanksProgress)
    assert last.shares == (1.0, FAILED_SHARE, 1.0)
    opener.close()
    assert not drafts()


async def test_where_all_ranks_are_lost_the_error_is_one_line(tmp_path: Path) -> None:
    paths = late_rank(3).write(tmp_path)
    for path in paths:
        path.write_text("prose")
    opener = RanksOpener([RankFile(str(path), k) for k, path in enumerate(paths)], "run", "")
    with pytest.raises(LoadError, match=r"rank0\.json: not a trace.* \(and 2 more that could not be opened\)$"):
        await opened(opener)
    assert not drafts()


async def test_files_of_which_one_does_not_say_its_rank(tmp_path: Path) -> None:
    """As remote files are, whose text is not read before they are opened."""
    named_by_file, nameless = late_rank(2).write(tmp_path)
    opener = RanksOpener([RankFile(str(named_by_file), None), RankFile(str(nameless), None)], "run", "")
    trace, _ = await opened(opener)
    assert trace.merged_ranks is not None
    assert [rank.number for rank in trace.merged_ranks.all] == [0, 1]
    opener.close()
    plain = tmp_path / "plain.json"
    plain.write_text('{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]}')
    opener = RanksOpener([RankFile(str(named_by_file), None), RankFile(str(plain), None)], "run", "")
    with pytest.raises(LoadError, match=r"plain\.json has no rank number"):
        await opened(opener)
    other = late_rank(4).write(tmp_path, "other{}.json")[3]
    opener = RanksOpener([RankFile(str(named_by_file), None), RankFile(str(other), None)], "run", "")
    with pytest.raises(LoadError, match=r"rank0\.json is of 2 ranks, .*other3\.json of 4"):
        await opened(opener)


async def test_two_files_of_one_rank(tmp_path: Path) -> None:
    paths = late_rank(2).write(tmp_path)
    paths[1].write_bytes(paths[0].read_bytes())
    opener = RanksOpener([RankFile(str(path), k) for k, path in enumerate(paths)], "run", "")
    with pytest.raises(LoadError, match="both of rank 0"):
        await opened(opener)


async def test_cancelling_leaves_neither_processes_nor_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As esc does during the load."""
    late_rank(6, steps=200).write(tmp_path)
    pools: list[WorkerPool] = []

    class RecordedPool(WorkerPool):
        def __init__(self, size: int) -> None:
            super().__init__(size)
            pools.append(self)

    monkeypatch.setattr(open_ranks, "WorkerPool", RecordedPool)
    opener = create_opener(tmp_path)
    opener.start()
    began = asyncio.Event()
    task = asyncio.ensure_future(opener.load_trace(lambda _: began.set()))
    await began.wait()
    processes = [worker._process for worker in pools[0]._workers]
    assert processes
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(process is not None and process.poll() is not None for process in processes)
    assert not drafts()


async def test_a_cancelled_job_ends_its_worker(tmp_path: Path) -> None:
    """It would fill a folder that is removed next."""
    endless = tmp_path / "pipe"
    os.mkfifo(endless)
    pool = WorkerPool(1)
    job = asyncio.ensure_future(pool.decode_trace(str(endless), tmp_path, lambda _: None))
    await asyncio.sleep(0.2)
    process = pool._workers[0]._process
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert process is not None
    assert process.poll() is not None
    pool.close()


@pytest.mark.parametrize(
    ("number", "explanation"), [(signal.SIGKILL, "the machine ran out of memory"), (signal.SIGBUS, "the disk is full")]
)
async def test_a_killed_worker_is_explained(tmp_path: Path, number: signal.Signals, explanation: str) -> None:
    path = late_rank(2).write(tmp_path)[0]
    pool = WorkerPool(1)
    folder = tmp_path / "columns"
    folder.mkdir()
    await pool.decode_trace(str(path), folder, lambda _: None)
    process = pool._workers[0]._process
    assert process is not None
    process.send_signal(number)
    process.wait()
    with pytest.raises(LoadError, match=f"^{path}: the loading process was .*, most likely because {explanation}$"):
        await pool.decode_trace(str(path), folder, lambda _: None)
    pool.detach()
    pool.close()


async def test_a_worker_is_used_again_after_an_error(tmp_path: Path) -> None:
    good, bad = late_rank(2).write(tmp_path)
    bad.write_text("prose")
    pool = WorkerPool(1)
    for number, path in enumerate((bad, good, bad)):
        folder = tmp_path / f"columns{number}"
        folder.mkdir()
        if path == bad:
            with pytest.raises(LoadError, match="not a trace"):
                await pool.decode_trace(str(path), folder, lambda _: None)
        else:
            await pool.decode_trace(str(path), folder, lambda _: None)
    assert len(pool._workers) == 1
    pool.detach()
    pool.close()


async def test_a_pool_starts_no_more_workers_than_its_size(tmp_path: Path) -> None:
    paths = late_rank(5).write(tmp_path)
    pool = WorkerPool(2)
    folders = [tmp_path / f"columns{k}" for k in range(5)]
    for folder in folders:
        folder.mkdir()
    jobs = zip(paths, folders, strict=True)
    await asyncio.gather(*(pool.decode_trace(str(path), folder, lambda _: None) for path, folder in jobs))
    assert len(pool._workers) == 2
    assert all((folder / "meta.json").exists() and (folder / "collectives.json").exists() for folder in folders)
    pool.detach()
    pool.close()


def test_the_limit_of_open_files_is_raised_for_many_ranks() -> None:
    """More than 500 ranks did not open with the usual soft limit of 1,024."""
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = min(512, soft) if soft != resource.RLIM_INFINITY else 512
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
        open_ranks.raise_descriptor_limit(520)
        raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert raised > min(2 * 520, hard - 1 if hard > 0 else 1 << 20)
        open_ranks.raise_descriptor_limit(2)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == raised
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_without_descriptors_the_line_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    """It said that there is no usable temporary directory."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        with pytest.raises(OSError, match="Too many open files") as raised:
            create_draft("t.json", cache=False)
    assert format_error(raised.value).startswith("too many open files; raise the limit")
