"""A column that grows as a file is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from torchprof_tui.trace.core.arrays import Array

_INITIAL_SIZE = 1024
_GROWTH = 1.25
_LARGE_BYTES = 4 << 20
_LARGE_GROWTH_FACTOR = 4
"""Bytes from which numpy asks for huge pages, and how much more than is needed is then asked for.

Memory costs when it is first written to: by the page, and a huge one stands for 512. What is never written to costs
nothing, so that a large column has room for long, and is copied once or twice in its life; a small one is moved.
"""


ArrayFiller = Callable[[Array], None]
"""Fills an array with what another process has in it; arrays are asked for in the order in which they were given."""


class GrowableArray:
    """A one-dimensional array to which chunks are appended."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._data: npt.NDArray[Any] = np.empty(_INITIAL_SIZE, dtype)
        self._size = 0

    def extend(self, values: Array) -> None:
        self.reserve(len(values))[:] = values

    def reserve(self, count: int) -> npt.NDArray[Any]:
        """So many more, to be filled in at once: good until the next `extend` or `room`, which may move it."""
        size = self._size + count
        if size > len(self._data):
            self._grow(size)
        room = self._data[self._size : size]
        self._size = size
        return room

    def _grow(self, size: int) -> None:
        if size * self._data.itemsize < _LARGE_BYTES:
            self._data.resize(max(size, int(len(self._data) * _GROWTH)), refcheck=False)
            return
        larger: npt.NDArray[Any]
        try:
            larger = np.empty(size * _LARGE_GROWTH_FACTOR, self._data.dtype)
        except MemoryError:  # not everywhere is room free that is only asked for
            larger = np.empty(int(size * _GROWTH), self._data.dtype)
        larger[: self._size] = self.view
        self._data = larger

    def __len__(self) -> int:
        return self._size

    @property
    def view(self) -> npt.NDArray[Any]:
        """A view of what was appended: good until the next `extend`, which may move it."""
        return self._data[: self._size]

    def finish(self) -> npt.NDArray[Any]:
        """The array itself, which is not kept here; nothing can be appended any more."""
        data, self._data = self._data, np.empty(0, self._data.dtype)
        data.resize(self._size, refcheck=False)
        return data
