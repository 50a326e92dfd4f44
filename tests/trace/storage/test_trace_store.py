"""Tests of the stored trace: what is mapped equals what was written; damage and full disks are reported."""

from __future__ import annotations

import dataclasses
import errno
import json
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from tests.helpers.column_equality import assert_deeply_equal
from tests.helpers.stored_traces import save_trace
from tests.helpers.trace_builder import (
    begin,
    counter,
    cpu,
    decoded,
    end,
    flow,
    kernel,
    memory,
    runtime,
    step,
    trace,
)
from torchprof_tui.trace.build.build_trace import add_row_index, build_trace
from torchprof_tui.trace.core import column_file
from torchprof_tui.trace.core.column_file import crc32
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.storage import trace_store
from torchprof_tui.trace.storage.trace_store import (
    COLUMNS_FILE,
    META_FILE,
    OtherVersionError,
    StoreError,
    TraceWriter,
    open_trace,
)
from torchprof_tui.trace.text.block_text import BlockText, FileText, PlainText
from torchprof_tui.trace.text.gzip_text import GzipText

HEADER = {"deviceProperties": [{"id": 0, "name": "H200"}], "distributedInfo": {"rank": 1}, "odd": float("nan")}


CHUNKS: Any = (*(np.arange(k, k + 3, dtype=np.int64) for k in range(3)), np.arange(3, 6, dtype=np.uint32))
"""`first`, `offset`, `length` and `checksum` of three chunks."""


def build_full_trace() -> Trace:
    """A trace with every kind of entry: events, links, counters, memory, steps, problems."""
    return trace(*entries(), header=HEADER)


def entries() -> list[Any]:
    return [
        step(1, 0, 100),
        cpu("naïve \ud800 \0 name", 1, 10, **{"External id": 3}),
        flow("s", "fwdbwd", 1, 1),
        runtime("cudaLaunchKernel", 2, 3, corr=1),
        kernel("k", 12, 5, corr=1, grid=[1, 2, 3]),
        begin("a", 20),
        end("a", 30),
        begin("open", 25),
        cpu("Backward", 50, 10),
        flow("f", "fwdbwd", 1, 50),
        counter("c", 5, x=3),
        memory(3, 100, 100, device=0),
        {"ph": "N", "name": "object", "ts": 1},
        {"ph": "X", "cat": "overhead", "name": "Buffer Flush", "pid": -1, "tid": 0, "ts": 1, "dur": 2},
    ]


def test_mapped_trace_equals_the_written_one(tmp_path: Path) -> None:
    written = build_full_trace()
    save_trace(written, tmp_path)
    mapped = open_trace(tmp_path)
    assert_deeply_equal(written, mapped)
    assert_deeply_equal(written.row_index, mapped.row_index)


@pytest.mark.parametrize("min_bytes", [1, 1 << 20])
def test_columns_allocated_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, min_bytes: int) -> None:
    monkeypatch.setattr(column_file, "_MIN_MAPPED_BYTES", min_bytes)
    with TraceWriter(tmp_path) as writer:
        written = add_row_index(build_trace(decoded(entries(), HEADER), "literal", writer.allocate), writer.allocate)
        assert bool(writer._file.layout) is (min_bytes == 1)
        writer.finish(written)
        assert_deeply_equal(build_full_trace(), open_trace(tmp_path))  # all is in the files once it is finished


def test_long_columns_are_mapped_at_pages_and_others_written_at_multiples_of_64_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_file, "_MIN_MAPPED_BYTES", 80)
    file = column_file.ColumnFile(tmp_path / "columns")
    columns = {
        "too short": file.allocate("too short", 79, np.uint8),
        "just long": file.allocate("just long", (5, 2), np.int64),
        "long": file.allocate("long", 90, np.int32),
    }
    assert list(file.layout) == ["just long", "long"]
    columns |= {
        "bytes": np.empty(5, np.uint8),
        "transposed": np.empty((2, 3), np.int16).T,
        "last": np.empty(0, np.int64),
    }
    for number, column in enumerate(columns.values()):
        column[...] = np.arange(column.size).reshape(column.shape) + number
    for name in ("too short", "bytes", "transposed", "last"):
        file.write(name, columns[name])
    file.close()
    file.close()
    page = mmap.ALLOCATIONGRANULARITY
    written = page + 384  # the next multiple of 64
    assert {name: offset for name, (offset, _, _) in file.layout.items()} == {
        "just long": 0,
        "long": page,
        "too short": written,
        "bytes": written + 128,
        "transposed": written + 192,
        "last": written + 256,
    }
    stored = (tmp_path / "columns").read_bytes()
    assert len(stored) == file.size == written + 256
    for name, (offset, dtype, shape) in file.layout.items():
        found = np.frombuffer(stored, dtype, columns[name].size, offset).reshape(shape)
        assert np.array_equal(found, columns[name])
        assert found.dtype == columns[name].dtype


def test_each_byte_of_the_file_of_columns_is_verified(tmp_path: Path) -> None:
    parts = {3: b"first", 10: b"", 12: b"second"}
    data = bytearray(20)
    for offset, part in parts.items():
        data[offset : offset + len(part)] = part
    arrays = {str(offset): (offset, "u1", (len(part),), crc32(part)) for offset, part in reversed(parts.items())}
    path = tmp_path / "columns"

    def is_intact(content: bytes, size: int = 20) -> bool:
        path.write_bytes(content)
        try:
            trace_store._verify_columns(path, arrays, size)
        except StoreError:
            return False
        return True

    assert is_intact(data)
    assert is_intact(data[:18], 18)
    assert not any(is_intact(data[:size]) for size in range(20))
    assert not is_intact(data + b"\0")
    for at in range(20):
        changed = bytearray(data)
        changed[at] ^= 1
        assert not is_intact(changed)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_file_systems_without_fallocate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(column_file, "_MIN_MAPPED_BYTES", 1)
    monkeypatch.setattr(os, "posix_fallocate", refusing(number))
    with TraceWriter(tmp_path) as writer:
        writer.finish(build_trace(decoded(entries(), HEADER), "literal", writer.allocate))
    assert_deeply_equal(build_full_trace(), open_trace(tmp_path))


def test_platforms_without_fallocate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_file, "_MIN_MAPPED_BYTES", 1)
    monkeypatch.delattr(os, "posix_fallocate")
    with TraceWriter(tmp_path) as writer:
        writer.finish(build_trace(decoded(entries(), HEADER), "literal", writer.allocate))
    assert_deeply_equal(build_full_trace(), open_trace(tmp_path))


def refusing(number: int) -> Callable[[int, int, int], None]:
    """A posix_fallocate that fails with this errno."""

    def refuse(file: int, offset: int, size: int) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


def test_each_column_is_allocated_once_and_must_be_used(tmp_path: Path) -> None:
    written = build_full_trace()
    with TraceWriter(tmp_path) as writer:
        writer.allocate("start", len(written), np.int64)
        with pytest.raises(AssertionError, match="start"):
            writer.allocate("start", len(written), np.int64)
        with pytest.raises(AssertionError, match="start"):
            writer.finish(written)


def test_full_disk_at_allocation_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_file, "_MIN_MAPPED_BYTES", 1)
    monkeypatch.setattr(os, "posix_fallocate", refusing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space"), TraceWriter(tmp_path) as writer:
        writer.finish(build_trace(decoded(entries(), HEADER), "literal", writer.allocate))
    assert not (tmp_path / META_FILE).exists()


def test_full_disk_at_writing_raises(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), TraceWriter(tmp_path) as writer:  # noqa: PT012
        writer._file._file = FullDiskFile(writer._file._file)  # type: ignore[assignment]
        writer.finish(build_full_trace())
    assert not (tmp_path / META_FILE).exists()


class FullDiskFile:
    """A file whose writes fail with ENOSPC."""

    def __init__(self, file: IO[bytes]) -> None:
        self.seek, self.truncate, self.close = file.seek, file.truncate, file.close
        self.closed = False

    def write(self, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "the disk is full")


def test_empty_trace(tmp_path: Path) -> None:
    written = trace()
    save_trace(written, tmp_path)
    assert_deeply_equal(written, open_trace(tmp_path))


def test_mapped_columns_are_read_only(tmp_path: Path) -> None:
    save_trace(build_full_trace(), tmp_path)
    mapped = open_trace(tmp_path)
    assert not mapped.start.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        mapped.start[0] = 1


@pytest.mark.parametrize(
    "text",
    [
        PlainText(Path("/data/trace.json"), *CHUNKS),
        BlockText(Path("/data/text.blocks"), *CHUNKS),
        GzipText(
            Path("/data/trace.json.gz"),
            CHUNKS[0],
            CHUNKS[1],
            CHUNKS[2],
            CHUNKS[3],
            (1, 2, 3, 4),
            Path("/cache/text.blocks"),
        ),
    ],
    ids=lambda text: type(text).__name__,
)
def test_each_kind_of_text_is_restored(tmp_path: Path, text: FileText) -> None:
    save_trace(dataclasses.replace(build_full_trace(), text=text), tmp_path)
    assert_deeply_equal(text, open_trace(tmp_path).text)


def text_of(trace: Trace) -> FileText:
    assert isinstance(trace.text, FileText)
    return trace.text


def test_folder_with_its_text_may_be_moved(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.mkdir()
    no_chunks = np.zeros(0, np.int64)
    written = dataclasses.replace(
        build_full_trace(),
        text=BlockText(first / "text.blocks", no_chunks, no_chunks, no_chunks, no_chunks.astype(np.uint32)),
    )
    save_trace(written, first)
    assert text_of(open_trace(first)).path == first / "text.blocks"
    first.rename(tmp_path / "second")
    assert text_of(open_trace(tmp_path / "second")).path == tmp_path / "second" / "text.blocks"


def test_text_outside_the_folder_has_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    save_trace(build_full_trace(), folder)
    assert text_of(open_trace(folder)).path == tmp_path / "literal"


def test_other_format_version_is_refused(tmp_path: Path) -> None:
    save_trace(build_full_trace(), tmp_path)
    meta = json.loads((tmp_path / META_FILE).read_bytes().splitlines()[0])
    text = json.dumps({**meta, "version": meta["version"] + 1}).encode()
    (tmp_path / META_FILE).write_bytes(b"%b\n%08x" % (text, crc32(text)))
    with pytest.raises(OtherVersionError, match="another version"):
        open_trace(tmp_path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    save_trace(build_full_trace(), tmp_path)
    columns = (tmp_path / COLUMNS_FILE).read_bytes()
    (tmp_path / COLUMNS_FILE).write_bytes(columns[:-1])
    with pytest.raises(StoreError, match="cut short"):
        open_trace(tmp_path)
    (tmp_path / META_FILE).write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        open_trace(tmp_path)
    (tmp_path / META_FILE).unlink()
    with pytest.raises(OSError, match=META_FILE):
        open_trace(tmp_path)
