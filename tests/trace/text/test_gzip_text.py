"""Tests of gzip text whose split into blocks is deferred: the same entries before and after the split."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.column_equality import assert_alike
from tests.helpers.paths import SHARED_TRACES
from tests.helpers.remote_traces import same
from torchprof_tui.analysis.slicing.document_writer import read_chunks
from torchprof_tui.trace.core.column_file import crc32
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.loading import load_in_process as loader
from torchprof_tui.trace.loading import worker_process
from torchprof_tui.trace.loading.decode_and_store import decode_and_store
from torchprof_tui.trace.loading.opener import SingleTraceOpener
from torchprof_tui.trace.loading.worker_process import WorkerProcess
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries
from torchprof_tui.trace.sources import source
from torchprof_tui.trace.sources.source import open_source
from torchprof_tui.trace.storage.trace_store import open_trace
from torchprof_tui.trace.text import block_text
from torchprof_tui.trace.text.block_text import BlockText, FileText, PlainText
from torchprof_tui.trace.text.gzip_text import GzipFileVersion, GzipText

COUNT = 3000


def kineto_text(count: int) -> bytes:
    """The text of a trace of `count` operators, in Kineto's own layout."""
    entries = (
        f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": {k}.125, "dur": 0.5,\n'
        f'    "args": {{\n      "External id": {k}\n    }}\n  }}'
        for k in range(count)
    )
    return ('{\n  "schemaVersion": 1,\n  "traceEvents": [\n' + ",\n".join(entries) + "\n  ]\n}\n").encode()


def expected_entries() -> list[Any]:
    return list(json.loads(kineto_text(COUNT))["traceEvents"])


@pytest.fixture
def gzip_path(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(kineto_text(COUNT)))
    return path


def build(path: Path, folder: Path, *, defer_blocks: bool) -> Trace:
    """Decode a file in this process, store its columns in a new folder and map them."""
    folder.mkdir()
    decode_and_store(str(path), folder, lambda progress: None, defer_blocks=defer_blocks, process_count=1)
    return open_trace(folder)


def file_text(trace: Trace) -> FileText:
    assert isinstance(trace.text, FileText)
    return trace.text


def deferred_text(trace: Trace) -> GzipText:
    assert isinstance(trace.text, GzipText)
    return trace.text


def build_deferred(path: Path, folder: Path) -> GzipText:
    return deferred_text(build(path, folder, defer_blocks=True))


@pytest.mark.parametrize("process_count", [1, 2, 3])
def test_columns_and_entries_equal_those_of_blocks(tmp_path: Path, gzip_path: Path, process_count: int) -> None:
    expected = expected_entries()
    folders = {defer_blocks: tmp_path / str(defer_blocks) for defer_blocks in (False, True)}
    for folder in folders.values():
        folder.mkdir()
    decoded = {
        defer_blocks: decode_trace(
            open_source(str(gzip_path)),
            folder,
            chunk_size=20_000,
            use_templates=True,
            process_count=process_count,
            defer_blocks=defer_blocks,
        )
        for defer_blocks, folder in folders.items()
    }
    assert_alike(decoded[False], decoded[True], chunks=False)
    deferred, blocks = decoded[True].text, decoded[False].text
    assert isinstance(deferred, GzipText)
    assert isinstance(blocks, BlockText)
    assert sorted(file.name for file in folders[True].iterdir()) == []
    assert deferred.first.tolist() == blocks.first.tolist()
    ordinals = random.Random(1).sample(range(COUNT), 20)
    for _ in ("before the split", "after it"):
        assert [deferred.read_entry(k, parse_chunk) for k in ordinals] == [expected[k] for k in ordinals]
        assert list(deferred.read_texts(range(len(deferred.first)))) == list(
            blocks.read_texts(range(len(blocks.first)))
        )
        some_chunks = list(range(1, len(deferred.first), 3))
        assert list(deferred.read_texts(some_chunks)) == list(blocks.read_texts(some_chunks))
        deferred.split_into_blocks()
    assert deferred.block_text is not None
    assert sorted(file.name for file in folders[True].iterdir()) == ["text.blocks", "text.ends"]
    assert np.array_equal(deferred.block_text.offset, blocks.offset)
    assert np.array_equal(deferred.block_text.length, blocks.length)


def test_stored_and_mapped_traces_read_the_same_entries(tmp_path: Path, gzip_path: Path) -> None:
    deferred, blocks = (build(gzip_path, tmp_path / str(defer), defer_blocks=defer) for defer in (True, False))
    same(deferred, blocks)
    events = np.arange(0, len(blocks), 7)
    expected = list(read_entries(blocks, events))
    for _ in ("before the split", "after it"):
        assert list(read_entries(deferred, events)) == expected
        assert list(read_chunks(file_text(deferred))) == list(read_chunks(file_text(blocks)))
        again = open_trace(tmp_path / "True")
        assert again.read_entry(int(again.ordinal[5])) == blocks.read_entry(int(blocks.ordinal[5]))
        deferred_text(deferred).split_into_blocks()
    assert deferred_text(deferred).block_text is not None
    assert deferred_text(open_trace(tmp_path / "True")).block_text is not None  # other processes find them too


def test_only_local_gzip_files_are_deferred(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(kineto_text(100))
    assert isinstance(build(path, tmp_path / "columns", defer_blocks=True).text, PlainText)


@pytest.mark.parametrize("change", ["replaced", "removed", "replaced with equal size and mtime"])
def test_changed_file_is_refused(tmp_path: Path, gzip_path: Path, change: str) -> None:
    text = build_deferred(gzip_path, tmp_path / "columns")
    if change == "removed":
        gzip_path.unlink()
    elif change == "replaced":
        gzip_path.write_bytes(gzip.compress(kineto_text(COUNT + 1)))
    else:
        status = gzip_path.stat()
        gzip_path.write_bytes(gzip.compress(kineto_text(10)).ljust(status.st_size, b"\0"))
        os.utime(gzip_path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises((LookupError, OSError)):
        text.read_entry(COUNT - 1, parse_chunk)
    with pytest.raises((LookupError, OSError)):
        text.split_into_blocks()
    assert text.block_text is None
    assert {file.name for file in (tmp_path / "columns").iterdir()} == {"columns", "meta.json"}


def test_file_that_changes_during_the_split_leaves_no_blocks(
    tmp_path: Path, gzip_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = build_deferred(gzip_path, tmp_path / "columns")
    put = block_text.BlockWriter.put

    def put_and_change(writer: block_text.BlockWriter, chunk: block_text.ChunkText) -> None:
        os.utime(gzip_path, ns=(0, 0))
        put(writer, chunk)

    monkeypatch.setattr(block_text.BlockWriter, "put", put_and_change)
    with pytest.raises(LookupError, match="changed"):
        text.split_into_blocks()
    assert {file.name for file in (tmp_path / "columns").iterdir()} == {"columns", "meta.json"}


def test_blocks_of_another_chunk_count_are_ignored(tmp_path: Path, gzip_path: Path) -> None:
    text = build_deferred(gzip_path, tmp_path / "columns")
    np.arange(7).tofile(text.blocks_path.with_suffix(".ends"))
    assert text.block_text is None
    assert text.read_entry(7, parse_chunk) == expected_entries()[7]


async def test_opener_splits_the_text_in_a_child_process(gzip_path: Path) -> None:
    opening = SingleTraceOpener(str(gzip_path), defer_blocks=True)
    opening.start()
    trace = await opening.load_trace(lambda progress: None)
    text = deferred_text(trace)
    assert text.block_text is None
    await asyncio.to_thread(opening.split_into_blocks, trace)
    assert text.block_text is not None
    opening.close()
    opening.split_into_blocks(trace)  # closed: nothing to do

    again = SingleTraceOpener(str(gzip_path), defer_blocks=True)
    again.start()
    assert again.cached
    trace = await again.load_trace(lambda progress: None)
    assert deferred_text(trace).block_text is not None
    again.split_into_blocks(trace)
    assert again._splitter is None
    again.close()


async def test_close_ends_an_unfinished_split(gzip_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opening = SingleTraceOpener(str(gzip_path), cache=False, defer_blocks=True)
    opening.start()
    trace = await opening.load_trace(lambda progress: None)
    assert opening._state is not None
    folder = opening._state.entry.folder
    monkeypatch.setattr("torchprof_tui.trace.loading.worker_process._START_CODE", "import time; time.sleep(60)")
    split = asyncio.create_task(asyncio.to_thread(opening.split_into_blocks, trace))
    await wait_until(lambda: deferred_text(trace).wait_for_blocks is not None)
    splitter = opening._splitter
    assert isinstance(splitter, WorkerProcess)
    process: Any = splitter._process
    read = asyncio.create_task(asyncio.to_thread(trace.read_entry, 7))
    await asyncio.sleep(0.1)
    assert not read.done()  # waits for the blocks
    opening.close()
    await split
    assert process.poll() is not None
    assert not folder.exists()
    assert (await read)["name"] == expected_entries()[7]["name"]


async def test_stopped_split_leaves_no_drafts(gzip_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opening = SingleTraceOpener(str(gzip_path), defer_blocks=True)
    opening.start()
    trace = await opening.load_trace(lambda progress: None)
    assert opening._state is not None
    folder = opening._state.entry.folder
    slow_down = (
        "import time; from torchprof_tui.trace.text.block_text import BlockWriter as B; "
        "B.put = lambda *_: time.sleep(60); "
    )
    monkeypatch.setattr(
        "torchprof_tui.trace.loading.worker_process._START_CODE",
        worker_process._START_CODE.replace("from", slow_down + "from", 1),
    )
    split = asyncio.create_task(asyncio.to_thread(opening.split_into_blocks, trace))
    await wait_until(lambda: any("-" in file.name for file in folder.iterdir()))
    opening.close()
    await split
    assert {file.name for file in folder.iterdir()} == {"columns", "meta.json", "lock", "seal"}
    # A later command splits the text itself.
    assert loader.load_trace(str(gzip_path)).read_entry(7) == expected_entries()[7]
    assert {file.name for file in folder.iterdir()} == {
        "columns",
        "meta.json",
        "lock",
        "seal",
        "text.blocks",
        "text.ends",
    }


async def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the condition did not become true")


def test_link_with_a_new_target_still_reads_the_old_file(tmp_path: Path, gzip_path: Path) -> None:
    link = tmp_path / "latest.json.gz"
    link.symlink_to(gzip_path)
    text = build_deferred(link, tmp_path / "columns")
    link.unlink()
    assert text.read_entry(7, parse_chunk) == expected_entries()[7]


def test_text_is_unpacked_again_without_a_size_limit(
    tmp_path: Path, gzip_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = build_deferred(gzip_path, tmp_path / "columns")
    monkeypatch.setattr(source, "_BOMB_RATIO", 0)
    monkeypatch.setattr(source, "_BOMB_BYTES", 0)
    assert text.read_entry(7, parse_chunk) == expected_entries()[7]
    with pytest.raises(TraceError, match="unpack"):
        list(open_source(str(gzip_path)).blocks())


def test_unreadable_file_raises_lookup_error(tmp_path: Path, gzip_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(spec: str) -> source.Source:
        raise TraceError(f"{spec}: no permission")

    text = build_deferred(gzip_path, tmp_path / "columns")
    monkeypatch.setattr("torchprof_tui.trace.sources.source.open_source", refuse)
    with pytest.raises(LookupError, match="no permission"):
        text.read_entry(7, parse_chunk)


def test_little_of_the_text_is_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.json.gz"
    path.write_bytes(gzip.compress(b" " * (40 << 20) + kineto_text(100), 1))
    assert path.stat().st_size < 1 << 20
    with path.open("rb") as file:
        version = GzipFileVersion.from_open_file(path, file.fileno())
    offset = np.arange(0, 40 << 20, 1 << 18)
    length = np.full(len(offset), 1 << 18)
    checksum = np.full(len(offset), crc32(b" " * (1 << 18)), np.uint32)
    text = GzipText(version.path, offset, offset, length, checksum, version.fingerprint, tmp_path / "text.blocks")
    tracemalloc.start()
    try:
        for _, chunk_text in text.read_texts(range(len(offset))):
            assert len(chunk_text) == 1 << 18
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.long
@pytest.mark.skipif(not SHARED_TRACES.is_dir(), reason="needs the shared traces")
def test_real_traces(tmp_path: Path) -> None:
    for path in sorted(SHARED_TRACES.glob("*.json.gz"))[::6]:
        deferred, blocks = (
            build(path, tmp_path / f"{path.name}{defer}", defer_blocks=defer) for defer in (True, False)
        )
        events = np.arange(0, len(blocks), max(len(blocks) // 50, 1))
        expected = list(read_entries(blocks, events))
        assert list(read_entries(deferred, events)) == expected, path.name
        deferred_text(deferred).split_into_blocks()
        assert list(read_entries(deferred, events)) == expected, path.name
