"""A column that grows as a file is read, and never exists twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tui.trace.arrays import Array

_FIRST = 1024
_GROWTH = 1.25
"""A large block is moved by the kernel, page by page, not copied: growing often is cheap, and little is wasted."""


class Grown:
    """A one-dimensional array to which chunks are appended."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._data: npt.NDArray[Any] = np.empty(_FIRST, dtype)
        self._size = 0

    def extend(self, values: Array) -> None:
        size = self._size + len(values)
        if size > len(self._data):
            self._data.resize(max(size, int(len(self._data) * _GROWTH)), refcheck=False)
        self._data[self._size : size] = values
        self._size = size

    def __len__(self) -> int:
        return self._size

    @property
    def so_far(self) -> npt.NDArray[Any]:
        """A view of what was appended: good until the next `extend`, which may move it."""
        return self._data[: self._size]

    def finish(self) -> npt.NDArray[Any]:
        """The array itself; nothing can be appended any more."""
        self._data.resize(self._size, refcheck=False)
        return self._data
