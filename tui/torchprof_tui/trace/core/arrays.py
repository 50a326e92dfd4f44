"""Arrays: type aliases, operations on long columns in cache-sized blocks, columns that grow, arrays kept in files.

`GrowableArray` appends to a column of unknown length while a file is read. Large columns may be kept in files, which
have no names: whatever ends the process, nothing is left of them.
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

from torchprof_tui.trace.core.errors import DISK_FULL_ERRNOS
from torchprof_tui.trace.core.process_state import read_cgroup_memory

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
U32 = npt.NDArray[np.uint32]
U16 = npt.NDArray[np.uint16]
U8 = npt.NDArray[np.uint8]
I8 = npt.NDArray[np.int8]
F64 = npt.NDArray[np.float64]
F32 = npt.NDArray[np.float32]
Bool = npt.NDArray[np.bool_]
Array = npt.NDArray[np.generic]

_BLOCK_SIZE = 1 << 17

_MAX_TABLE_RATIO = 6
"""Range of integers up to which a table of flags pays, as a multiple of how many there are."""


def take_chunked(
    column: npt.NDArray[Any], indices: npt.NDArray[np.integer[Any]], out: npt.NDArray[Any] | None = None
) -> npt.NDArray[Any]:
    """Return `column[indices]` (one-dimensional), block by block, because numpy first converts all indices to int64.

    `out`: array to write to; may be `indices` itself if that is int32.
    """
    out = np.empty(len(indices), column.dtype) if out is None else out
    for block in block_slices(len(indices)):
        # All indices are in range; with an `out`, mode "raise" would buffer a copy.
        column.take(indices[block], out=out[block], mode="clip")
    return out


def flatnonzero_int32(mask: Bool, out: I32 | None = None) -> I32:
    """Return np.flatnonzero(mask) as int32, in half of its memory. `out`: array to write to."""
    out = np.empty(int(np.count_nonzero(mask)), np.int32) if out is None else out
    size = 0
    for block in block_slices(len(mask)):
        indices = np.flatnonzero(mask[block])
        np.add(indices, block.start, out=out[size : size + len(indices)], casting="unsafe")
        size += len(indices)
    return out


def sorted_unique(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the distinct values in ascending order, by sorting.

    np.unique hashes the values first, which is slower for many of them and holds the GIL: 45 ms for a million, during
    which no frame is drawn.
    """
    ordered = np.sort(values, axis=None)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def argsort_stable(values: I64) -> I64:
    """Return the indexes that sort int64[n], equal values in their order.

    Where both fit into 63 bits, each value is packed with its index: numpy sorts plain numbers several times as fast as
    it finds their order. Of values in few sorted runs np.argsort is faster.
    """
    if len(values) < 2:
        return np.arange(len(values))
    first, last = int(values.min()), int(values.max())
    bits = len(values).bit_length()
    if (last - first).bit_length() + bits > 63:
        return np.argsort(values, kind="stable")
    packed: I64 = values - np.int64(first)
    packed <<= np.int64(bits)
    packed |= np.arange(len(values))
    packed.sort()
    packed &= np.int64((1 << bits) - 1)
    return packed


def is_in(values: npt.NDArray[np.integer[Any]], chosen: npt.NDArray[np.integer[Any]]) -> Bool:
    """Return whether each of these integers is one of `chosen`: bool[n].

    A table of flags where they are near each other, else a search among the sorted ones. np.isin sorts or hashes both,
    which takes longer and holds the GIL, and its np.unique imports numpy.ma for 8 ms.
    """
    if not len(values) or not len(chosen):
        return np.zeros(len(values), np.bool_)
    first, last = int(chosen.min()), int(chosen.max())
    if last - first <= _MAX_TABLE_RATIO * (len(values) + len(chosen)):
        flags = np.zeros(last - first + 3, np.bool_)  # the first and the last stand for the values before and after
        flags[chosen - np.int64(first - 1)] = True
        found: Bool = flags[np.clip(values, first - 1, last + 1) - np.int64(first - 1)]
        return found
    ordered = np.sort(chosen)
    nearest: Bool = ordered[np.minimum(ordered.searchsorted(values), len(ordered) - 1)] == values
    return nearest


def find_largest(values: npt.NDArray[Any], count: int) -> I64:
    """Find the indexes of the largest values, largest first, equal ones in their order: int64[min(count, n)]."""
    candidates = np.arange(len(values))
    if len(values) > count > 0:
        candidates = np.flatnonzero(values >= np.partition(values, len(values) - count)[len(values) - count])
    return candidates[np.argsort(-values[candidates], kind="stable")][:count]


def number_distinct(rows: npt.NDArray[np.integer[Any]], size: int) -> tuple[I64, I32]:
    """Number the distinct rows 0..size-1: (they, ascending; the number of each row, int32[k]).

    What `np.unique(rows, return_inverse=True)` returns, without a sort.
    """
    is_present = np.zeros(size, np.bool_)
    is_present[rows] = True
    distinct = np.flatnonzero(is_present)
    number = np.empty(size, np.int32)
    number[distinct] = np.arange(len(distinct), dtype=np.int32)
    return distinct, number[rows]


def block_slices(size: int) -> Iterator[slice]:
    """Yield slices that cover a column of this size.

    Temporaries of one block reuse the memory of the block before: the first write to fresh memory costs more than most
    arithmetic.
    """
    for begin in range(0, size, _BLOCK_SIZE):
        yield slice(begin, min(begin + _BLOCK_SIZE, size))


_MAX_CHUNKED_SIZE = 1 << 16


def factorize(values: I64) -> tuple[I64, I64]:
    """Return (codes, uniques): int64[n] index of each value in `uniques`, and the distinct values in ascending order.

    Uses a table over the range of the values if it is at most twice as long as they are, else np.unique.
    """
    if not len(values):
        return values, values
    low = int(values.min())
    size = int(values.max()) - low + 1
    if size > 2 * len(values):
        uniques, codes = np.unique(values, return_inverse=True)
        return codes.astype(np.int64), uniques
    shifted = values - low
    table = np.zeros(size, np.int64)
    table[shifted] = 1
    uniques = np.flatnonzero(table) + low
    if len(uniques) == size:
        return shifted, uniques
    np.cumsum(table, out=table)
    table -= 1
    return table[shifted], uniques


def bincount_chunked(values: Array, size: int) -> I64:
    """Count each of the values 0..size-1: int64[size]. Block by block, because np.bincount converts values to int64."""
    if size > _MAX_CHUNKED_SIZE:
        return np.bincount(values, minlength=size)
    counts = np.zeros(size, np.int64)
    for block in block_slices(len(values)):
        counts += np.bincount(values[block], minlength=size)
    return counts


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
