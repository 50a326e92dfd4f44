"""Write the columns of a trace to one file, one after the other.

The first write to fresh memory is expensive, and a column that is computed in memory and then written to a file exists
twice. So the code that computes a long column allocates it here and gets a memory-mapped part of the file.
"""

from __future__ import annotations

import math
import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from torchprof_tui.trace.core.arrays import Array
from torchprof_tui.trace.core.errors import DISK_FULL_ERRNOS

Shape = int | tuple[int, ...]
ColumnAllocator = Callable[[str, Shape, npt.DTypeLike], npt.NDArray[Any]]
"""Allocates an uninitialised column by its name (as in `trace_store.iterate_arrays`), shape and dtype."""

ALIGNMENT = 64

_MIN_MAPPED_BYTES = 1 << 20
"""Bytes from which a column is mapped: each mapped column takes a mapping of its own."""


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
        # Without allocated blocks, a full disk would raise SIGBUS on a write to the mapping.
        if size < _MIN_MAPPED_BYTES or not hasattr(os, "posix_fallocate"):
            return allocate_in_memory(name, shape, dtype)
        with self._allocating:
            mapped = self._map_column(name, size, shape, dtype)
        return allocate_in_memory(name, shape, dtype) if mapped is None else np.frombuffer(mapped, dtype).reshape(shape)

    def _map_column(self, name: str, size: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> mmap.mmap | None:
        """Map `size` bytes for a column at the end of the file; None if the file system does not support that."""
        offset = self.size + -self.size % mmap.ALLOCATIONGRANULARITY
        try:
            os.posix_fallocate(self._file.fileno(), offset, size)
            mapped = mmap.mmap(self._file.fileno(), size, offset=offset)
        except OSError as error:
            if error.errno in DISK_FULL_ERRNOS:
                raise
            return None  # the file system cannot allocate or map blocks
        self.layout[name] = (offset, np.dtype(dtype).str, shape)
        self.size = offset + size
        return mapped

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
