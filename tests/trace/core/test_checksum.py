"""Test checksums against zlib's: of arrays, and of files that are longer than what is read at a time."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import numpy as np
import pytest

from torchprof_tui.trace.core.column_file import READ_BYTES, ChecksumReader, checksum_array, open_unbuffered


@pytest.mark.parametrize("size", [0, 1, READ_BYTES - 1, READ_BYTES, READ_BYTES + 1, 3 * READ_BYTES + 5])
def test_a_file_is_summed_in_parts(tmp_path: Path, size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    path = tmp_path / "columns"
    path.write_bytes(data + b"rest")
    with open_unbuffered(path) as file:
        reader = ChecksumReader(file)
        assert reader.read_checksum(size) == zlib.crc32(data)
        assert not reader.ended()
        assert reader.read_checksum(3) is not None
        assert reader.ended()
        assert reader.read_checksum(1) is None
    with open_unbuffered(path) as file:
        assert ChecksumReader(file).read_checksum(size + 5) is None


def test_arrays_of_any_layout_are_summed_in_c_order() -> None:
    array = np.arange(24, dtype=np.int32).reshape(4, 6)
    for view in (array, array.T, array[:, ::2], array[:0]):
        assert checksum_array(view) == zlib.crc32(view.tobytes())


def test_zeros_are_skipped_and_anything_else_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "columns"
    path.write_bytes(bytes(READ_BYTES + 10) + b"\x01")
    with open_unbuffered(path) as file:
        reader = ChecksumReader(file)
        assert reader.skip_zeros(READ_BYTES + 10)
        assert not reader.skip_zeros(1)
        assert not reader.skip_zeros(1)  # there are no more bytes


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="not a regular file"):
        open_unbuffered(tmp_path / "pipe")
    assert len(os.listdir("/proc/self/fd")) == descriptors
