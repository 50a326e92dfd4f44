"""Test where the columns of a trace come from, in this process and from an event loop: the same answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.helpers.paths import list_cache
from tests.helpers.remote_traces import same
from torchprof_samples import find
from torchprof_tui.trace.loading.decode_and_store import decode_and_store
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.loading.open_or_build import (
    BuildResult,
    OpenedTrace,
    OpeningState,
    open_or_build,
    open_or_build_async,
)
from torchprof_tui.trace.loading.progress import ignore_progress
from torchprof_tui.trace.storage.disk_cache import (
    CacheEntry,
    cache_usage,
    find_by_identity,
    is_in_cache_folder,
)

SAMPLE = str(find("attention_naive").path)
REMOTE = "box:runs/trace.json"
IDENTITY = "ssh box runs/trace.json 1"

Build = Callable[[CacheEntry], BuildResult]
Open = Callable[[OpeningState, Build], OpenedTrace]


def open_async(state: OpeningState, build: Build) -> OpenedTrace:
    async def build_async(entry: CacheEntry) -> BuildResult:
        return build(entry)

    async def run() -> OpenedTrace:
        return await open_or_build_async(state, build_async)

    return asyncio.run(run())


@pytest.fixture(params=[open_or_build, open_async], ids=["here", "event loop"])
def open_trace(request: pytest.FixtureRequest) -> Open:
    function: Open = request.param
    return function


pytestmark = pytest.mark.usefixtures("cache_home")


def build_sample(entry: CacheEntry) -> BuildResult:
    """Build the sample, whatever the entry's spec is."""
    return decode_and_store(SAMPLE, entry.folder, ignore_progress)


def build_remote(entry: CacheEntry) -> BuildResult:
    """Build the sample as if it were a remote trace."""
    build_sample(entry)
    return BuildResult(IDENTITY)


def fail_to_build(entry: CacheEntry) -> BuildResult:
    raise AssertionError("it is in the cache")


def damage(entry: CacheEntry) -> None:
    (entry.folder / "meta.json").write_text("damaged")


def test_build_then_map(open_trace: Open) -> None:
    first = open_trace(OpeningState(SAMPLE, "label"), build_sample)
    again = open_trace(OpeningState(SAMPLE), fail_to_build)
    assert (first.cached, again.cached) == (False, True)
    assert (first.trace.label, again.trace.label) == ("label", SAMPLE)
    same(first.trace, again.trace)


def test_damaged_columns_are_built_again_and_stored(open_trace: Open) -> None:
    first = open_trace(OpeningState(SAMPLE), build_sample)
    assert first.cache_entry is not None
    damage(first.cache_entry)
    state = OpeningState(SAMPLE)
    assert state.cached
    assert not open_trace(state, build_sample).cached
    assert open_trace(OpeningState(SAMPLE), fail_to_build).cached


def test_damaged_columns_that_cannot_be_removed(open_trace: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_trace(OpeningState(SAMPLE), build_sample)
    assert first.cache_entry is not None
    damage(first.cache_entry)
    monkeypatch.setattr(CacheEntry, "discard", CacheEntry.close)  # as in a cache folder that is read-only
    opened = open_trace(OpeningState(SAMPLE), build_sample)
    assert not opened.cached
    assert opened.cache_entry is not None
    assert not is_in_cache_folder(opened.cache_entry.folder)


def test_a_known_identity_is_mapped(open_trace: Open) -> None:
    open_trace(OpeningState(REMOTE), build_remote)
    opened = open_trace(OpeningState(REMOTE, identity=IDENTITY), fail_to_build)
    assert opened.cached
    same(opened.trace, load_trace(SAMPLE, cache=False))
    assert not open_trace(OpeningState(REMOTE, cache=False, identity=IDENTITY), build_sample).cached


def test_a_source_that_turns_out_to_be_cached_is_mapped(open_trace: Open, cache_home: Path) -> None:
    open_trace(OpeningState(REMOTE), build_remote)
    opened = open_trace(OpeningState(REMOTE), lambda entry: BuildResult(IDENTITY, already_cached=True))
    assert opened.cached
    assert len(list_cache(cache_home)) == 1


def test_a_cached_source_that_is_damaged_is_built_without_the_cache(open_trace: Open) -> None:
    first = open_trace(OpeningState(REMOTE), build_remote)
    assert first.cache_entry is not None
    damage(first.cache_entry)
    folders: list[Path] = []

    def build(entry: CacheEntry) -> BuildResult:
        folders.append(entry.folder)
        return BuildResult(IDENTITY, already_cached=True) if is_in_cache_folder(entry.folder) else build_remote(entry)

    opened = open_trace(OpeningState(REMOTE), build)
    assert not opened.cached
    assert len(folders) == 2
    assert find_by_identity(REMOTE, IDENTITY) is None
    same(opened.trace, load_trace(SAMPLE, cache=False))


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["error", "ctrl+c"])
def test_a_failed_build_leaves_nothing(open_trace: Open, cache_home: Path, error: BaseException) -> None:
    def build(entry: CacheEntry) -> BuildResult:
        (entry.folder / "half").write_text("columns")
        raise error

    with pytest.raises(type(error)):
        open_trace(OpeningState(SAMPLE), build)
    assert list_cache(cache_home) == []


async def test_a_cancelled_build_leaves_nothing(cache_home: Path) -> None:
    began = asyncio.Event()

    async def build(entry: CacheEntry) -> BuildResult:
        began.set()
        await asyncio.sleep(60)
        raise AssertionError

    waiting: Awaitable[OpenedTrace] = open_or_build_async(OpeningState(SAMPLE), build)
    task = asyncio.ensure_future(waiting)
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list_cache(cache_home) == []
    assert cache_usage() == (0, 0)
