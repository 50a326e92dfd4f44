"""The file that the columns of a trace lie in, one after the other, and how they get there.

Memory costs when it is first written to, and a column that is worked out in one place and then written to a file is
there twice. So whoever works out a long one asks where it is to lie, and is given a piece of the file, mapped.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from torchprof_tui.trace.core.arrays import Array

Shape = int | tuple[int, ...]
ColumnAllocator = Callable[[str, Shape, npt.DTypeLike], npt.NDArray[Any]]
"""Where a column is to lie: by its name in `store.arrays_of`, its shape and type; it holds anything yet."""

ALIGNMENT = 64

_MIN_MAPPED_BYTES = 1 << 20
"""Bytes from which a column is mapped: each takes a map of its own."""

_DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What is answered where there is no room. Whatever else is, blocks cannot be set aside there, or not be mapped."""


def allocate_in_memory(name: str, shape: Shape, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Room in memory."""
    return np.empty(shape, dtype)


class ColumnFile:
    """A new file. `arrays`: name → [offset, dtype, shape] of those in it; `size`: its bytes.

    All methods raise OSError where there is no more room.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b")
        self.layout: dict[str, tuple[int, str, tuple[int, ...]]] = {}
        self.size = 0

    def allocate(self, name: str, shape: Shape, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A piece of the file where it is worth it, and can be had: the column is in `arrays` then, else not yet."""
        shape = (shape,) if isinstance(shape, int) else shape
        size = math.prod(shape) * np.dtype(dtype).itemsize
        # Without blocks set aside a full disk would be told by a signal, which nobody can answer.
        if size < _MIN_MAPPED_BYTES or not hasattr(os, "posix_fallocate"):
            return allocate_in_memory(name, shape, dtype)
        offset = self.size + -self.size % mmap.ALLOCATIONGRANULARITY
        try:
            os.posix_fallocate(self._file.fileno(), offset, size)
            mapped = mmap.mmap(self._file.fileno(), size, offset=offset)
        except OSError as error:
            if error.errno in _DISK_FULL_ERRNOS:
                raise
            return allocate_in_memory(name, shape, dtype)
        self.layout[name] = (offset, np.dtype(dtype).str, shape)
        self.size = offset + size
        return np.frombuffer(mapped, dtype).reshape(shape)

    def write(self, name: str, array: Array) -> None:
        """Write a column."""
        self.size += -self.size % ALIGNMENT
        self._file.seek(self.size)
        if array.size:
            self._file.write(np.ascontiguousarray(array).data)
        self.layout[name] = (self.size, array.dtype.str, array.shape)
        self.size += array.nbytes

    def close(self) -> None:
        """All is in the file. May be called again."""
        if not self._file.closed:
            self._file.truncate(self.size)  # where the last column is empty, it is shorter yet
        self._file.close()
