"""Write the columns of a trace to one file, one after the other, and compute CRC-32 checksums.

The first write to fresh memory is expensive, and a column that is computed in memory and then written to a file exists
twice. So the code that computes a long column allocates it here and gets a memory-mapped part of the file.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import stat
import threading
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from torchprof_tui.trace.core.array_files import map_part
from torchprof_tui.trace.core.arrays import Array

try:
    from isal.isal_zlib import crc32 as _crc32
except ImportError:  # no wheel for this platform: slower, with the same result
    from zlib import crc32 as _crc32

READ_BYTES = 1 << 18
"""Bytes that are read and summed at a time: they stay in the core's cache, and no mapped page is touched."""


crc32: Callable[..., int] = _crc32
"""CRC-32 of a buffer (as in gzip), uint32. `value`: the checksum of the bytes before it. Releases the GIL."""


def checksum_array(array: Array) -> int:
    """Return the CRC-32 of the bytes of an array in C order."""
    return crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data) if array.size else 0


def open_unbuffered(path: Path) -> FileIO:
    """Open a regular file for reading, without waiting for the writer of a pipe. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return FileIO(descriptor)


class ChecksumReader:
    """Reads a file from its beginning and returns the checksums of its parts. `file`: opened without a buffer."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self._buffer = memoryview(bytearray(READ_BYTES))

    def read_checksum(self, size: int) -> int | None:
        """Return the CRC-32 of the next `size` bytes, None where the file ends before."""
        checksum = 0
        while size > 0:
            count = self._read(size)
            if not count:
                return None
            checksum = crc32(self._buffer[:count], checksum)
            size -= count
        return checksum

    def skip_zeros(self, size: int) -> bool:
        """Skip `size` bytes; return whether all of them are there and zero."""
        while size > 0:
            count = self._read(size)
            if not count or any(self._buffer[:count]):
                return False
            size -= count
        return True

    def ended(self) -> bool:
        """Return whether there are no more bytes."""
        return not self._read(1)

    def _read(self, size: int) -> int:
        return self._file.readinto(self._buffer[:size]) or 0


Shape = int | tuple[int, ...]
ColumnAllocator = Callable[[str, Shape, npt.DTypeLike], npt.NDArray[Any]]
"""Allocates an uninitialised column by its name (as in `trace_store.iterate_arrays`), shape and dtype."""

ALIGNMENT = 64

_MIN_MAPPED_BYTES = 1 << 20  # bytes from which a column is mapped: each mapped column takes a mapping of its own


def allocate_in_memory(name: str, shape: Shape, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Allocate a column in memory. A `ColumnAllocator`."""
    return np.empty(shape, dtype)


class ColumnFile:
    """New file of columns. `layout`: name → (offset, dtype, shape) of each column in it; `size`: bytes.

    All methods raise OSError if the disk is full. Several threads may call `allocate`.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b")
        self.layout: dict[str, tuple[int, str, tuple[int, ...]]] = {}
        self.size = 0
        self._allocating = threading.Lock()

    def allocate(self, name: str, shape: Shape, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Allocate a column: mapped and in `layout` if it is long and the file system allows it, else in memory."""
        shape = (shape,) if isinstance(shape, int) else shape
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size < _MIN_MAPPED_BYTES or not hasattr(os, "posix_fallocate"):
            return allocate_in_memory(name, shape, dtype)
        with self._allocating:
            offset = self.size + -self.size % mmap.ALLOCATIONGRANULARITY
            mapped = map_part(self._file, size, offset)
            if mapped is None:
                return allocate_in_memory(name, shape, dtype)
            self.layout[name] = (offset, np.dtype(dtype).str, shape)
            self.size = offset + size
        return np.frombuffer(mapped, dtype).reshape(shape)

    def write(self, name: str, array: Array) -> None:
        """Append a column that is in memory."""
        self.size += -self.size % ALIGNMENT
        self._file.seek(self.size)
        if array.size:
            self._file.write(np.ascontiguousarray(array).data)
        self.layout[name] = (self.size, array.dtype.str, array.shape)
        self.size += array.nbytes

    def close(self) -> None:
        """Finish the file. May be called again."""
        if not self._file.closed:
            self._file.truncate(self.size)  # extends the file if alignment was added before an empty last column
        self._file.close()
