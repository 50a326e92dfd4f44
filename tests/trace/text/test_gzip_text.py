"""The text of a gzip file that is taken apart when its lanes are there already: before and after, the same entries."""

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
from tests.helpers.remote_traces import same
from tests.trace.decode.template.test_template_decoder import plain
from tests.trace.decode.test_decoder import TRACES
from torchprof_tui.analysis.slicing.entry_survey import read_chunks
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.decode.decoder import decode_trace
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.loading import load as loader
from torchprof_tui.trace.loading import worker_process
from torchprof_tui.trace.loading.decode_and_store import decode_and_store
from torchprof_tui.trace.loading.open_trace import SingleTraceOpener
from torchprof_tui.trace.loading.worker_process import WorkerProcess
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries
from torchprof_tui.trace.sources import source
from torchprof_tui.trace.sources.open import open_source
from torchprof_tui.trace.storage.trace_store import open_trace
from torchprof_tui.trace.text import block_writer, gzip_text
from torchprof_tui.trace.text.gzip_text import GzipText
from torchprof_tui.trace.text.text_index import TextIndex

COUNT = 3000


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(plain(COUNT)))
    return path


def built(path: Path, folder: Path, *, late: bool, parts: int = 1) -> Trace:
    folder.mkdir()
    decode_and_store(str(path), folder, lambda progress: None, defer_blocks=late, process_count=parts)
    return open_trace(folder)


def index_of(trace: Trace) -> TextIndex:
    assert isinstance(trace.text, TextIndex)
    return trace.text


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_columns_are_the_same_and_so_are_entries(tmp_path: Path, packed: Path, parts: int) -> None:
    expected = json.loads(plain(COUNT))["traceEvents"]
    folders = {late: tmp_path / str(late) for late in (False, True)}
    for folder in folders.values():
        folder.mkdir()
    decoded = {
        late: decode_trace(
            open_source(str(packed)),
            folder,
            chunk_size=20_000,
            use_templates=True,
            process_count=parts,
            defer_blocks=late,
        )
        for late, folder in folders.items()
    }
    assert_alike(decoded[False], decoded[True], chunks=False)
    late, now = decoded[True].text, decoded[False].text
    assert late.gzip_text is not None
    assert now.gzip_text is None
    assert sorted(file.name for file in folders[True].iterdir()) == []
    assert late.first.tolist() == now.first.tolist()
    picked = random.Random(1).sample(range(COUNT), 20)
    for _ in ("whole", "apart"):
        assert [late.read_entry(k, parse_chunk) for k in picked] == [expected[k] for k in picked]
        assert list(late.read_texts(range(len(late.first)))) == list(now.read_texts(range(len(now.first))))
        some = list(range(1, len(late.first), 3))
        assert list(late.read_texts(some)) == list(now.read_texts(some))
        late.split_into_blocks()
    assert late.block_index is not None
    assert sorted(file.name for file in folders[True].iterdir()) == ["text.blocks", "text.ends"]
    assert np.array_equal(late.block_index.length, now.length)


def test_stored_and_mapped_it_is_still_whole(tmp_path: Path, packed: Path) -> None:
    late, now = (built(packed, tmp_path / str(late), late=late) for late in (True, False))
    same(late, now)
    some = np.arange(0, len(now), 7)
    expected = list(read_entries(now, some))
    for _ in ("whole", "apart"):
        assert list(read_entries(late, some)) == expected
        assert list(read_chunks(index_of(late))) == list(read_chunks(index_of(now)))
        again = open_trace(tmp_path / "True")
        assert again.read_entry(int(again.ordinal[5])) == now.read_entry(int(now.ordinal[5]))
        index_of(late).split_into_blocks()
    assert index_of(late).block_index is not None
    assert index_of(open_trace(tmp_path / "True")).block_index is not None  # which others find as well


def test_what_is_no_local_gzip_file_is_kept_at_once(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(plain(100))
    assert index_of(built(path, tmp_path / "columns", late=True)).gzip_text is None


@pytest.mark.parametrize("how", ["other", "gone", "alike"])
def test_a_file_that_is_another_one_by_now(tmp_path: Path, packed: Path, how: str) -> None:
    index = index_of(built(packed, tmp_path / "columns", late=True))
    if how == "gone":
        packed.unlink()
    elif how == "other":
        packed.write_bytes(gzip.compress(plain(COUNT + 1)))
    else:  # as long and as old
        found = packed.stat()
        packed.write_bytes(gzip.compress(plain(10)).ljust(found.st_size, b"\0"))
        os.utime(packed, ns=(found.st_atime_ns, found.st_mtime_ns))
    with pytest.raises((LookupError, OSError)):
        index.read_entry(COUNT - 1, parse_chunk)
    with pytest.raises((LookupError, OSError)):
        index.split_into_blocks()
    assert index.block_index is None
    assert {file.name for file in (tmp_path / "columns").iterdir()} == {"columns", "meta.json"}


def test_a_file_that_changes_meanwhile_is_not_taken_apart(
    tmp_path: Path, packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = index_of(built(packed, tmp_path / "columns", late=True))
    put = block_writer.BlockWriter.put

    def put_and_change(writer: block_writer.BlockWriter, item: block_writer.ChunkText) -> None:
        os.utime(packed, ns=(0, 0))
        put(writer, item)

    monkeypatch.setattr(block_writer.BlockWriter, "put", put_and_change)
    with pytest.raises(LookupError, match="changed"):
        index.split_into_blocks()
    assert {file.name for file in (tmp_path / "columns").iterdir()} == {"columns", "meta.json"}


def test_blocks_of_something_else_are_not_believed(tmp_path: Path, packed: Path) -> None:
    index = index_of(built(packed, tmp_path / "columns", late=True))
    np.arange(7).tofile(index.path.with_suffix(".ends"))
    assert index.block_index is None
    assert index.read_entry(7, parse_chunk) == json.loads(plain(COUNT))["traceEvents"][7]


async def test_the_program_has_a_child_take_it_apart(packed: Path) -> None:
    opening = SingleTraceOpener(str(packed), defer_blocks=True)
    opening.start()
    trace = await opening.load_trace(lambda progress: None)
    index = index_of(trace)
    assert index.gzip_text is not None
    await asyncio.to_thread(opening.split_into_blocks, trace)
    assert index.block_index is not None
    opening.close()
    opening.split_into_blocks(trace)  # closed: nothing to do

    again = SingleTraceOpener(str(packed), defer_blocks=True)
    again.start()
    assert again.cached
    trace = await again.load_trace(lambda progress: None)
    assert index_of(trace).block_index is not None
    again.split_into_blocks(trace)
    assert again._splitter is None
    again.close()


async def test_closing_ends_what_is_not_finished(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opening = SingleTraceOpener(str(packed), cache=False, defer_blocks=True)
    opening.start()
    trace = await opening.load_trace(lambda progress: None)
    assert opening._state is not None
    folder = opening._state.entry.folder
    monkeypatch.setattr("torchprof_tui.trace.loading.worker_process._START_CODE", "import time; time.sleep(60)")
    finished = asyncio.create_task(asyncio.to_thread(opening.split_into_blocks, trace))
    await until(lambda: index_of(trace).wait_for_blocks is not None)
    finishing = opening._splitter
    assert isinstance(finishing, WorkerProcess)
    process: Any = finishing._process
    asked = asyncio.create_task(asyncio.to_thread(trace.read_entry, 7))
    await asyncio.sleep(0.1)
    assert not asked.done()  # it waits for the blocks
    opening.close()
    await finished
    assert process.poll() is not None
    assert not folder.exists()
    assert (await asked)["name"] == json.loads(plain(COUNT))["traceEvents"][7]["name"]


async def test_a_child_that_is_stopped_leaves_no_drafts(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opening = SingleTraceOpener(str(packed), defer_blocks=True)
    opening.start()
    trace = await opening.load_trace(lambda progress: None)
    assert opening._state is not None
    folder = opening._state.entry.folder
    slowly = (
        "import time; from torchprof_tui.trace.text.text_index import BlockWriter as B; "
        "B.put = lambda *_: time.sleep(60); "
    )
    monkeypatch.setattr(
        "torchprof_tui.trace.loading.worker_process._START_CODE",
        worker_process._START_CODE.replace("from", slowly + "from", 1),
    )
    finished = asyncio.create_task(asyncio.to_thread(opening.split_into_blocks, trace))
    await until(lambda: any("-" in file.name for file in folder.iterdir()))
    opening.close()
    await finished
    assert {file.name for file in folder.iterdir()} == {"columns", "meta.json", "lock"}
    assert (
        loader.load_trace(str(packed)).read_entry(7) == json.loads(plain(COUNT))["traceEvents"][7]
    )  # and a command makes up for it
    assert {file.name for file in folder.iterdir()} == {"columns", "meta.json", "lock", "text.blocks", "text.ends"}


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came")


def test_a_link_that_leads_elsewhere_by_now(tmp_path: Path, packed: Path) -> None:
    link = tmp_path / "latest.json.gz"
    link.symlink_to(packed)
    index = index_of(built(link, tmp_path / "columns", late=True))
    link.unlink()
    assert index.read_entry(7, parse_chunk) == json.loads(plain(COUNT))["traceEvents"][7]


def test_text_that_was_unpacked_once_is_unpacked_again(
    tmp_path: Path, packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = index_of(built(packed, tmp_path / "columns", late=True))
    monkeypatch.setattr(source, "_BOMB_RATIO", 0)
    monkeypatch.setattr(source, "_BOMB_BYTES", 0)
    assert index.read_entry(7, parse_chunk) == json.loads(plain(COUNT))["traceEvents"][7]
    with pytest.raises(TraceError, match="unpack"):
        list(open_source(str(packed)).blocks())


def test_what_cannot_be_read_any_more_is_told_as_changed(
    tmp_path: Path, packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(spec: str) -> source.Source:
        raise TraceError(f"{spec}: no permission")

    index = index_of(built(packed, tmp_path / "columns", late=True))
    monkeypatch.setattr(gzip_text, "open_source", refuse)
    with pytest.raises(LookupError, match="no permission"):
        index.read_entry(7, parse_chunk)


def test_little_of_the_text_is_held(tmp_path: Path) -> None:
    path = tmp_path / "large.json.gz"
    path.write_bytes(gzip.compress(b" " * (40 << 20) + plain(100), 1))
    found = path.stat()
    assert found.st_size < 1 << 20
    whole = GzipText.from_open_file(path, os.open(path, os.O_RDONLY))
    offset = np.arange(0, 40 << 20, 1 << 18)
    tracemalloc.start()
    try:
        for _, text_index in whole.read_pieces(offset, np.full(len(offset), 1 << 18), range(len(offset))):
            assert len(text_index) == 1 << 18
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not TRACES.is_dir(), reason="the shared traces are not here")
def test_real_traces(tmp_path: Path) -> None:
    for path in sorted(TRACES.glob("*.json.gz"))[::6]:
        late, now = (built(path, tmp_path / f"{path.name}{late}", late=late) for late in (True, False))
        picked = np.arange(0, len(now), max(len(now) // 50, 1))
        expected = list(read_entries(now, picked))
        assert list(read_entries(late, picked)) == expected, path.name
        index_of(late).split_into_blocks()
        assert list(read_entries(late, picked)) == expected, path.name
