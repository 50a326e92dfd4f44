"""Append to a column of unknown length while a file is read.

from one process to another.

The files have no names: whatever ends the process, nothing is left of them.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from torchprof_tui.trace.core.arrays import Array
from torchprof_tui.trace.core.core_count import read_cgroup_memory
from torchprof_tui.trace.core.errors import DISK_FULL_ERRNOS

MIN_BYTES = 8 << 20
"""Bytes from which an array is kept in a file."""

_folder: Path | None = None


@contextmanager
def keep_arrays_in_files(folder: Path | None) -> Iterator[None]:
    """Keep the long arrays that grow meanwhile in files of a folder; None: in memory. Holds for the whole process."""
    global _folder
    previous, _folder = _folder, folder
    try:
        yield
    finally:
        _folder = previous


class ArrayFile:
    """A file that holds one array."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 (open as long as the array grows)

    @classmethod
    def create(cls, size: int) -> ArrayFile | None:
        """Create a file for an array of so many bytes; None if that is kept in memory. Raises OSError."""
        if _folder is None or size < MIN_BYTES or not hasattr(os, "posix_fallocate"):
            return None
        return cls(_folder)

    def map_array(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[np.generic] | None:
        """Map the file as an array of `count` values; those of an array mapped before are the first.

        Returns None where the file system cannot do that. Raises OSError if the disk is full.
        """
        size = count * np.dtype(dtype).itemsize
        try:
            os.posix_fallocate(self._file.fileno(), 0, size)  # else a full disk would raise SIGBUS
            return np.frombuffer(mmap.mmap(self._file.fileno(), size), dtype)
        except OSError as error:
            if error.errno in DISK_FULL_ERRNOS:
                raise
            return None


def create_shared_file() -> FileIO:
    """Create a file without a name, for a process and those that it forks; in memory unless arrays are kept in files.

    Raises OSError.
    """
    if _folder is None and hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):  # a sandbox may not have it
            return FileIO(os.memfd_create("torchprof-tui"), "r+")
    return tempfile.TemporaryFile(dir=_folder, buffering=0)


def write_array(file: FileIO, array: Array, offset: int) -> None:
    """Write an array at an offset of a file. Raises OSError."""
    data = array.view(np.uint8).data
    while data.nbytes:
        written = os.pwrite(file.fileno(), data, offset)
        data, offset = data[written:], offset + written


def read_array(file: FileIO, array: Array, offset: int) -> bool:
    """Read an array from an offset of a file; False if the file ends before. Raises OSError."""
    data = array.view(np.uint8).data
    while data.nbytes:
        count = os.preadv(file.fileno(), [data], offset)
        if not count:
            return False
        data, offset = data[count:], offset + count
    return True


def read_available_memory() -> int | None:
    """Read how many bytes programs can still allocate here, as Linux and the cgroup say; None where they do not."""
    limits = [read_cgroup_memory()]
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        limits.append(int(fields["MemAvailable"].split()[0]) << 10)
    except (OSError, ValueError, KeyError, IndexError):
        pass
    return min((limit for limit in limits if limit is not None), default=None)


_INITIAL_SIZE = 1024
_GROWTH = 1.25
_LARGE_BYTES = 4 << 20
_LARGE_GROWTH_FACTOR = 4
"""Bytes from which numpy requests huge pages, and the factor by which a large array grows.

Memory costs on the first write, per page; a huge page replaces 512 page faults. Pages never written cost nothing, so a
large array is over-allocated and copied only once or twice; a small one is reallocated.
"""


ArrayFinisher = Callable[[npt.NDArray[Any]], object]
"""Changes a filled array in place."""

ArrayFiller = Callable[[Array, ArrayFinisher | None], None]
"""Notes an array to fill with the data of another process, and what to do with it then; arrays must be noted in the
order in which they are sent. They are filled later, so the columns that they are views of must not grow until then."""


class GrowableArray:
    """One-dimensional array to which chunks are appended. In a file if it is long and `keep_arrays_in_files` is on."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._data: npt.NDArray[Any] = np.empty(_INITIAL_SIZE, dtype)
        self._size = 0
        self._file: ArrayFile | None = None

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
        if self._grow_in_file(int(size * _GROWTH)):
            return
        larger: npt.NDArray[Any]
        try:
            larger = np.empty(size * _LARGE_GROWTH_FACTOR, self._data.dtype)
        except MemoryError:  # some systems do not overcommit memory
            larger = np.empty(int(size * _GROWTH), self._data.dtype)
        larger[: self._size] = self.view
        self._data = larger

    def _grow_in_file(self, size: int) -> bool:
        """Make the array this long in a file. Returns False if it stays in memory. Raises OSError."""
        is_in_file = self._file is not None
        self._file = self._file or ArrayFile.create(size * self._data.itemsize)
        larger = None if self._file is None else self._file.map_array(size, self._data.dtype)
        if larger is None:
            self._file = None
            return False
        if not is_in_file:
            larger[: self._size] = self.view
        self._data = larger
        return True

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
