"""Arrays that grow at their end: columns of unknown length, while a file is read."""

from __future__ import annotations

from io import FileIO
from typing import Any

import numpy as np
import numpy.typing as npt

from torchprof_tui.trace.core.array_files import create_array_file, map_part
from torchprof_tui.trace.core.arrays import Array

_INITIAL_SIZE = 1024
_GROWTH = 1.25
_LARGE_BYTES = 4 << 20
_LARGE_GROWTH_FACTOR = 4
"""Bytes from which numpy requests huge pages, and the factor by which a large array grows.

Memory costs on the first write, per page; a huge page replaces 512 page faults. Pages never written cost nothing, so a
large array is over-allocated and copied only once or twice; a small one is reallocated.
"""


class GrowableArray:
    """One-dimensional array to which chunks are appended. In a file if it is long and `keep_arrays_in_files` is on."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._data: npt.NDArray[Any] = np.empty(_INITIAL_SIZE, dtype)
        self._size = 0
        self._file: FileIO | None = None

    def extend(self, values: Array) -> None:
        self.reserve(len(values))[:] = values

    def reserve(self, count: int) -> npt.NDArray[Any]:
        """Append `count` uninitialised values and return a view of them, valid until the next `extend` or `reserve`."""
        size = self._size + count
        if size > len(self._data):
            self._grow(size)
        reserved = self._data[self._size : size]
        self._size = size
        return reserved

    def _grow(self, size: int) -> None:
        if size * self._data.itemsize < _LARGE_BYTES:
            self._data.resize(max(size, int(len(self._data) * _GROWTH)), refcheck=False)
            return
        is_in_file, in_file = self._file is not None, int(size * _GROWTH)
        self._file = self._file or create_array_file(in_file * self._data.itemsize)
        mapped = None if self._file is None else map_part(self._file, in_file * self._data.itemsize)
        larger: npt.NDArray[Any]
        if mapped is not None:
            larger = np.frombuffer(mapped, self._data.dtype)
            if not is_in_file:
                larger[: self._size] = self.view
            self._data = larger
            return
        self._file = None
        try:
            larger = np.empty(size * _LARGE_GROWTH_FACTOR, self._data.dtype)
        except MemoryError:  # some systems do not overcommit memory
            larger = np.empty(int(size * _GROWTH), self._data.dtype)
        larger[: self._size] = self.view
        self._data = larger

    def make_room(self, count: int) -> None:
        """Make room for `count` more values: views from `reserve` stay valid while these are reserved."""
        if self._size + count > len(self._data):
            self._grow(self._size + count)

    def __len__(self) -> int:
        return self._size

    @property
    def view(self) -> npt.NDArray[Any]:
        """View of the values appended so far, valid until the next `extend` or `reserve`."""
        return self._data[: self._size]

    def finish(self) -> npt.NDArray[Any]:
        """Return the array without keeping a reference. Nothing can be appended afterwards."""
        data, self._data = self._data, np.empty(0, self._data.dtype)
        if self._file is not None:
            self._file = None
            return data[: self._size]
        data.resize(self._size, refcheck=False)
        return data
