"""Columns are the same whatever the number of processes that decode and of threads that build."""

from __future__ import annotations

import errno
import gzip
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.column_equality import assert_deeply_equal
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SAMPLES, find_shared_traces, name_trace
from tests.helpers.threaded_build import divide_among_threads
from torchprof_tui.trace.build.build_trace import add_row_index, build_trace
from torchprof_tui.trace.core.column_file import allocate_in_memory
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.source import open_source

MAX_STORED_BYTES = 60_000
SMALL_FILES = [path for path in find_shared_traces() if path.stat().st_size < MAX_STORED_BYTES]
SAMPLE_FILES = sorted(SAMPLES.glob("train_*.json.gz"))


def build(path: Path, folder: Path, processes: int, threads: int, allocate: Any = allocate_in_memory) -> Trace:
    folder.mkdir(exist_ok=True)
    decoded = decode_trace(
        open_source(str(path)), folder, process_count=processes, chunk_size=1 << 14, use_templates=True
    )
    with divide_among_threads(threads):
        return add_row_index(build_trace(decoded, "", allocate), allocate)


def assert_same_columns(one: Trace, other: Trace) -> None:
    for trace in (one, other):
        for field in ("text", "large_keys"):  # hold paths, and the chunks of the text
            object.__setattr__(trace, field, None)
        object.__setattr__(trace, "args", dict(sorted(trace.args.items())))  # their order depends on the chunks
    assert_deeply_equal(one, other)
    assert_deeply_equal(one.row_index, other.row_index, "index")


COUNTS = [2, 3, 8, 16]


def list_samples() -> list[Any]:
    """List every sample with every count; each push tests one count of each."""
    return [
        pytest.param(
            path,
            count,
            id=f"{path.name.partition('.')[0]}-{count}",
            marks=pytest.mark.long if (position + number) % 8 else (),
        )
        for position, path in enumerate(SAMPLE_FILES)
        for number, count in enumerate(COUNTS)
    ]


@pytest.mark.parametrize(("path", "count"), keep_some(list_samples(), 1))
def test_samples(tmp_path: Path, path: Path, count: int) -> None:
    if count in (3, 16):  # not compressed: divided in another way
        plain = tmp_path / "plain.json"
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        path = plain
    assert_same_columns(build(path, tmp_path / "one", 1, 1), build(path, tmp_path / "many", count, count))
    assert not list(tmp_path.rglob("part-*"))


@pytest.mark.parametrize(
    "path",
    keep_some(
        [
            # test_real_traces.py decodes every file in several processes; threads divide the columns of any file alike.
            pytest.param(path, id=name_trace(path), marks=pytest.mark.long if position % 30 else ())
            for position, path in enumerate(SMALL_FILES)
        ],
        1,
    ),
)
def test_shared_traces(tmp_path: Path, path: Path) -> None:
    one = build(path, tmp_path / "one", 1, 1)
    assert_same_columns(one, build(path, tmp_path / "many", 3, 16))


def test_a_full_disk_ends_all_threads(tmp_path: Path) -> None:
    """The disk is full when the columns of the args are allocated, on several threads."""
    before = set(threading.enumerate())

    def allocate(name: str, shape: Any, dtype: Any) -> np.ndarray:
        if name.startswith("args."):
            raise OSError(errno.ENOSPC, "No space left on device")
        return allocate_in_memory(name, shape, dtype)

    with pytest.raises(OSError, match="No space left"):
        build(SAMPLE_FILES[0], tmp_path, 1, 8, allocate)
    deadline = time.monotonic() + 30
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before
