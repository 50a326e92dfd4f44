"""What is written is what is mapped."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

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
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.storage.trace_store import (
    COLUMNS_FILE,
    META_FILE,
    StoreError,
    TraceWriter,
    open_trace,
    save_trace,
)
from torchprof_tui.trace.text.text_index import TextIndex


def same(one: Any, other: Any, where: str = "trace") -> None:
    """Deeply equal, types of arrays included."""
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, where
        assert np.array_equal(one, other), where
    elif dataclasses.is_dataclass(one):
        assert type(one) is type(other), where
        for each in dataclasses.fields(one):
            if each.compare and each.name != "stored_index":
                same(getattr(one, each.name), getattr(other, each.name), f"{where}.{each.name}")
    elif isinstance(one, dict):
        assert list(one) == list(other), where
        for key in one:
            same(one[key], other[key], f"{where}[{key!r}]")
    elif isinstance(one, list | tuple):
        assert type(one) is type(other), where
        assert len(one) == len(other), where
        for k, (a, b) in enumerate(zip(one, other, strict=True)):
            same(a, b, f"{where}[{k}]")
    else:
        assert type(one) is type(other), where
        assert one == other or (one != one and other != other), where


HEADER = {"deviceProperties": [{"id": 0, "name": "H200"}], "distributedInfo": {"rank": 1}, "odd": float("nan")}


def everything() -> Trace:
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


def test_a_trace_comes_back_as_it_was(tmp_path: Path) -> None:
    made = everything()
    save_trace(made, tmp_path)
    found = open_trace(tmp_path)
    same(made, found)
    same(made.row_index, found.row_index)


@pytest.mark.parametrize("least", [1, 1 << 20])
def test_columns_worked_out_where_they_are_to_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int) -> None:
    monkeypatch.setattr(column_file, "_MIN_MAPPED_BYTES", least)
    with TraceWriter(tmp_path) as storing:
        made = add_row_index(build_trace(decoded(entries(), HEADER), "literal", storing.allocate), storing.allocate)
        assert bool(storing._file.layout) is (least == 1)
        storing.finish(made)
    same(everything(), open_trace(tmp_path))


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_file_systems_that_set_nothing_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(column_file, "_MIN_MAPPED_BYTES", 1)
    monkeypatch.setattr(os, "posix_fallocate", refusing(number))
    with TraceWriter(tmp_path) as storing:
        storing.finish(build_trace(decoded(entries(), HEADER), "literal", storing.allocate))
    same(everything(), open_trace(tmp_path))


def test_systems_that_cannot_set_anything_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_file, "_MIN_MAPPED_BYTES", 1)
    monkeypatch.delattr(os, "posix_fallocate")
    with TraceWriter(tmp_path) as storing:
        storing.finish(build_trace(decoded(entries(), HEADER), "literal", storing.allocate))
    same(everything(), open_trace(tmp_path))


def refusing(number: int) -> Callable[[int, int, int], None]:
    def refuse(file: int, offset: int, size: int) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


def test_room_is_given_once_and_is_that_of_the_trace(tmp_path: Path) -> None:
    made = everything()
    with TraceWriter(tmp_path) as storing:
        storing.allocate("start", len(made), np.int64)
        with pytest.raises(AssertionError, match="start"):
            storing.allocate("start", len(made), np.int64)
        with pytest.raises(AssertionError, match="start"):
            storing.finish(made)


def test_a_disk_without_room_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_file, "_MIN_MAPPED_BYTES", 1)
    monkeypatch.setattr(os, "posix_fallocate", refusing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space"), TraceWriter(tmp_path) as storing:
        storing.finish(build_trace(decoded(entries(), HEADER), "literal", storing.allocate))
    assert not (tmp_path / META_FILE).exists()


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), TraceWriter(tmp_path) as storing:  # noqa: PT012
        storing._file._file = Full(storing._file._file)  # type: ignore[assignment]
        storing.finish(everything())
    assert not (tmp_path / META_FILE).exists()


class Full:
    """A file on a disk without room."""

    def __init__(self, file: IO[bytes]) -> None:
        self.seek, self.truncate, self.close = file.seek, file.truncate, file.close
        self.closed = False

    def write(self, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "the disk is full")


def test_an_empty_trace_comes_back_too(tmp_path: Path) -> None:
    made = trace()
    save_trace(made, tmp_path)
    same(made, open_trace(tmp_path))


def test_columns_are_mapped_and_cannot_be_written(tmp_path: Path) -> None:
    save_trace(everything(), tmp_path)
    found = open_trace(tmp_path)
    assert not found.start.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        found.start[0] = 1


def test_the_folder_may_be_moved_with_the_text_in_it(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.mkdir()
    nowhere = np.zeros(0, np.int64)
    made = dataclasses.replace(everything(), text=TextIndex(first / "text.blocks", True, nowhere, nowhere, nowhere))
    save_trace(made, first)
    assert open_trace(first).text.path == first / "text.blocks"
    first.rename(tmp_path / "second")
    assert open_trace(tmp_path / "second").text.path == tmp_path / "second" / "text.blocks"


def test_text_elsewhere_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    save_trace(everything(), folder)
    assert open_trace(folder).text.path == tmp_path / "literal"


def test_another_version_is_refused(tmp_path: Path) -> None:
    save_trace(everything(), tmp_path)
    meta = json.loads((tmp_path / META_FILE).read_text())
    (tmp_path / META_FILE).write_text(json.dumps({**meta, "version": meta["version"] + 1}))
    with pytest.raises(StoreError, match="another version"):
        open_trace(tmp_path)


def test_damage_is_refused(tmp_path: Path) -> None:
    save_trace(everything(), tmp_path)
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
