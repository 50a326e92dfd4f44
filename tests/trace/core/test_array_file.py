"""Test arrays that grow in files: their values, what is left of them, a full disk; and when traces use them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.column_equality import assert_deeply_equal
from tests.helpers.long_run import keep_some
from torchprof_samples import find
from torchprof_tui.trace.core import array_files
from torchprof_tui.trace.core.array_files import keep_arrays_in_files, read_available_memory
from torchprof_tui.trace.core.growable_array import GrowableArray
from torchprof_tui.trace.core.process_state import read_cgroup_memory
from torchprof_tui.trace.decode import general_decoder
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.model.raw_events import RawEvents
from torchprof_tui.trace.sources.source import open_source

SAMPLE = find("train_gpt_stack_memory").path


def is_mapped(array: np.ndarray) -> bool:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base is not None


@pytest.fixture
def in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "MIN_BYTES", 1 << 10)
    monkeypatch.setattr("torchprof_tui.trace.core.growable_array._LARGE_BYTES", 1 << 10)


@pytest.mark.usefixtures("in_files")
def test_an_array_grows_in_a_file(tmp_path: Path) -> None:
    array, expected = GrowableArray(np.int32), np.arange(100_000, dtype=np.int32)
    with keep_arrays_in_files(tmp_path):
        for first in range(0, len(expected), 777):
            array.extend(expected[first : first + 777])
        array.make_room(10)
        assert np.array_equal(array.view, expected)
        found = array.finish()
    assert is_mapped(found)
    assert np.array_equal(found, expected)
    found += 1  # the build changes columns in place
    assert not os.listdir(tmp_path)
    other = GrowableArray(np.int32)
    other.extend(expected)
    assert not is_mapped(other.finish())


@pytest.mark.usefixtures("in_files")
@pytest.mark.parametrize(("number", "raised"), [(errno.ENOSPC, True), (errno.EOPNOTSUPP, False)])
def test_no_room_is_an_error_and_a_strange_file_system_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, raised: bool
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", fail)
    array = GrowableArray(np.int64)
    with keep_arrays_in_files(tmp_path):
        if raised:
            with pytest.raises(OSError, match=os.strerror(number)):
                array.extend(np.arange(10_000))
        else:
            array.extend(np.arange(10_000))
            assert np.array_equal(array.finish(), np.arange(10_000))
    assert not os.listdir(tmp_path)


def decode(folder: Path, processes: int) -> RawEvents:
    folder.mkdir()
    decoded = decode_trace(
        open_source(str(SAMPLE)), folder, process_count=processes, chunk_size=1 << 14, use_templates=True
    )
    return decoded.events


@pytest.mark.usefixtures("in_files")
@pytest.mark.parametrize("processes", keep_some([1, 3], 1))
def test_columns_are_the_same_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int) -> None:
    expected = decode(tmp_path / "memory", 1)
    assert not is_mapped(expected.time)
    monkeypatch.setattr(general_decoder, "read_available_memory", lambda: 1 << 20)
    found = decode(tmp_path / "files", processes)
    assert is_mapped(found.time)
    found.args, expected.args = dict(sorted(found.args.items())), dict(sorted(expected.args.items()))
    found.ids, expected.ids = list(found.ids), list(expected.ids)
    assert_deeply_equal(expected, found)
    assert os.listdir(tmp_path / "files") == os.listdir(tmp_path / "memory")


@pytest.mark.usefixtures("in_files")
def test_a_full_disk_ends_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(general_decoder, "read_available_memory", lambda: 1 << 20)
    monkeypatch.setattr(os, "posix_fallocate", fail)
    for processes in (1, 3):
        with pytest.raises(OSError, match="No space left"):
            decode(tmp_path / str(processes), processes)
        assert not list(tmp_path.rglob("part-*"))


def test_memory_that_is_left(tmp_path: Path) -> None:
    available = read_available_memory()
    assert available is None or 1 << 20 < available < 1 << 50
    assert read_cgroup_memory(str(tmp_path)) is None
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert read_cgroup_memory(str(tmp_path)) is None
    (tmp_path / "memory.max").write_text("5000\n")
    assert read_cgroup_memory(str(tmp_path)) == 4000
    (tmp_path / "memory.max").write_text("500\n")
    assert read_cgroup_memory(str(tmp_path)) == 0
