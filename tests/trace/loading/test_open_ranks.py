"""Several ranks opened by a few processes: kept, mapped again, failing in one line, leaving nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.rank_traces import late_rank
from torchprof_tui.analysis.doctor.read_problems import summarize_losses
from torchprof_tui.trace.loading import open_ranks
from torchprof_tui.trace.loading.errors import LoadError
from torchprof_tui.trace.loading.load import load_trace
from torchprof_tui.trace.loading.open_ranks import RanksOpener
from torchprof_tui.trace.loading.progress import FAILED_SHARE, Progress, RanksProgress
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.loading.worker_pool import WorkerPool
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.specs.rank_files import RankFile
from torchprof_tui.trace.storage.disk_cache import cache_folder, cache_usage


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path / "cache"))


def opening_of(*specs: object, cache: bool = True) -> RanksOpener:
    opening = resolve_specs([str(spec) for spec in specs]).create_opener(cache)
    assert isinstance(opening, RanksOpener)
    return opening


async def opened(opening: RanksOpener) -> tuple[Trace, list[Progress]]:
    told: list[Progress] = []
    opening.start()
    return await opening.load_trace(told.append), told


def drafts() -> list[str]:
    return [name for name in os.listdir(cache_folder()) if name.startswith(".draft")]


async def test_decoded_by_others_then_mapped(tmp_path: Path) -> None:
    paths = late_rank(5).write(tmp_path, packed=True)
    opening = opening_of(tmp_path)
    trace, told = await opened(opening)
    assert not opening.cached
    assert trace.ranks is not None
    assert [rank.number for rank in trace.ranks.all] == [0, 1, 2, 3, 4]
    assert trace.label == str(tmp_path)
    assert told[-1].phase == "merging"
    assert told[-1].events == len(trace)
    assert cache_usage()[0] == 5
    for rank, path in zip(trace.ranks.all, paths, strict=True):
        alone = load_trace(str(path))
        assert np.array_equal(trace.start[rank.first : rank.last], alone.start + rank.clock.shift)
    opening.close()

    again = opening_of(*paths)
    mapped, told = await opened(again)
    assert again.cached
    assert [each.phase for each in told] == ["merging"]
    assert np.array_equal(mapped.start, trace.start)
    assert mapped.ranks is not None
    assert np.array_equal(mapped.ranks.matched_collectives.events, trace.ranks.matched_collectives.events)
    again.close()
    assert not drafts()


async def test_what_was_opened_alone_before(tmp_path: Path) -> None:
    """Its columns are kept, its collectives are not yet: they are read from its text, and kept then."""
    paths = late_rank(2).write(tmp_path)
    for path in paths:
        load_trace(str(path))
    for _ in range(2):
        opening = opening_of(tmp_path)
        trace, _ = await opened(opening)
        assert opening.cached
        assert trace.ranks is not None
        assert len(trace.ranks.matched_collectives) == 6
        opening.close()
    kept = [folder for folder in os.listdir(cache_folder()) if (cache_folder() / folder / "collectives.json").exists()]
    assert len(kept) == 2


async def test_without_a_cache_nothing_is_kept(tmp_path: Path) -> None:
    late_rank(2).write(tmp_path)
    opening = opening_of(tmp_path, cache=False)
    trace, _ = await opened(opening)
    assert trace.event(0).read_args() is not None
    opening.close()
    assert not cache_folder().exists() or not os.listdir(cache_folder())


async def test_one_that_is_no_trace_is_left_out_and_told(tmp_path: Path) -> None:
    paths = late_rank(3).write(tmp_path)
    paths[1].write_text('{"traceEvents": "nothing", "distributedInfo": {"rank": 1}}')
    opening = RanksOpener([RankFile(str(path), k) for k, path in enumerate(paths)], "run", "")
    trace, told = await opened(opening)
    assert trace.ranks is not None
    assert [rank.number for rank in trace.ranks.all] == [0, 2]
    (lost,) = trace.ranks.lost
    assert (lost.number, lost.file) == (1, str(paths[1]))
    assert lost.reason.startswith(f"{paths[1]}: not a trace")
    assert "\n" not in lost.reason
    assert [(one.kind, one.count, one.example) for one in trace.problems] == [
        ("rank not opened", 1, f"rank 1: {lost.reason}")
    ]
    assert summarize_losses(trace).startswith("not all of this run could be read: rank not opened")
    last = told[-1]
    assert isinstance(last, RanksProgress)
    assert last.shares == (1.0, FAILED_SHARE, 1.0)
    opening.close()
    assert not drafts()


async def test_where_all_are_lost_it_is_one_line(tmp_path: Path) -> None:
    paths = late_rank(3).write(tmp_path)
    for path in paths:
        path.write_text("prose")
    opening = RanksOpener([RankFile(str(path), k) for k, path in enumerate(paths)], "run", "")
    with pytest.raises(LoadError, match=r"rank0\.json: not a trace.* \(and 2 more that could not be opened\)$"):
        await opened(opening)
    assert not drafts()


async def test_files_of_which_only_one_says_its_rank(tmp_path: Path) -> None:
    """As of what lies elsewhere, which is not looked into before it is here."""
    named_by_file, nameless = late_rank(2).write(tmp_path)
    opening = RanksOpener([RankFile(str(named_by_file), None), RankFile(str(nameless), None)], "run", "")
    trace, _ = await opened(opening)
    assert trace.ranks is not None
    assert [rank.number for rank in trace.ranks.all] == [0, 1]
    opening.close()
    plain = tmp_path / "plain.json"
    plain.write_text('{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]}')
    opening = RanksOpener([RankFile(str(named_by_file), None), RankFile(str(plain), None)], "run", "")
    with pytest.raises(LoadError, match=r"plain\.json does not say which rank it is"):
        await opened(opening)
    other = late_rank(4).write(tmp_path, "other{}.json")[3]
    opening = RanksOpener([RankFile(str(named_by_file), None), RankFile(str(other), None)], "run", "")
    with pytest.raises(LoadError, match=r"rank0\.json is of 2 ranks, .*other3\.json of 4"):
        await opened(opening)


async def test_ranks_that_turn_out_to_be_one(tmp_path: Path) -> None:
    paths = late_rank(2).write(tmp_path)
    paths[1].write_bytes(paths[0].read_bytes())
    opening = RanksOpener([RankFile(str(path), k) for k, path in enumerate(paths)], "run", "")
    with pytest.raises(LoadError, match="both of rank 0"):
        await opened(opening)


async def test_given_up_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Esc while it loads: the processes have gone, and so have their folders."""
    late_rank(6, steps=200).write(tmp_path)
    crews: list[WorkerPool] = []

    class Seen(WorkerPool):
        def __init__(self, size: int) -> None:
            super().__init__(size)
            crews.append(self)

    monkeypatch.setattr(open_ranks, "WorkerPool", Seen)
    opening = opening_of(tmp_path)
    opening.start()
    begun = asyncio.Event()
    task = asyncio.ensure_future(opening.load_trace(lambda _: begun.set()))
    await begun.wait()
    processes = [worker._process for worker in crews[0]._workers]
    assert processes
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(process is not None and process.poll() is not None for process in processes)
    assert not drafts()


async def test_a_process_that_dies_is_told(tmp_path: Path) -> None:
    path = late_rank(2).write(tmp_path)[0]
    crew = WorkerPool(1)
    folder = tmp_path / "columns"
    folder.mkdir()
    await crew.decode_trace(str(path), folder, lambda _: None)
    process = crew._workers[0]._process
    assert process is not None
    process.send_signal(signal.SIGKILL)
    process.wait()
    with pytest.raises(LoadError, match="was killed, most likely for want of memory"):
        await crew.decode_trace(str(path), folder, lambda _: None)
    crew.detach()
    crew.close()


async def test_a_process_that_met_no_trace_takes_the_next(tmp_path: Path) -> None:
    good, bad = late_rank(2).write(tmp_path)
    bad.write_text("prose")
    crew = WorkerPool(1)
    for number, path in enumerate((bad, good, bad)):
        folder = tmp_path / f"columns{number}"
        folder.mkdir()
        if path == bad:
            with pytest.raises(LoadError, match="not a trace"):
                await crew.decode_trace(str(path), folder, lambda _: None)
        else:
            await crew.decode_trace(str(path), folder, lambda _: None)
    assert len(crew._workers) == 1
    crew.detach()
    crew.close()


async def test_no_more_processes_than_asked_for(tmp_path: Path) -> None:
    paths = late_rank(5).write(tmp_path)
    crew = WorkerPool(2)
    folders = [tmp_path / f"columns{k}" for k in range(5)]
    for folder in folders:
        folder.mkdir()
    both = zip(paths, folders, strict=True)
    await asyncio.gather(*(crew.decode_trace(str(path), folder, lambda _: None) for path, folder in both))
    assert len(crew._workers) == 2
    assert all((folder / "meta.json").exists() and (folder / "collectives.json").exists() for folder in folders)
    crew.detach()
    crew.close()
