"""Keep large arrays in files, in memory or in a folder.

The files have no names: whatever ends the process, nothing is left of them.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import IO

import numpy as np

from torchprof_tui.trace.core.arrays import Array
from torchprof_tui.trace.core.errors import DISK_FULL_ERRNOS
from torchprof_tui.trace.core.process_state import read_cgroup_memory

MIN_BYTES = 8 << 20  # bytes from which an array is kept in a file

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


def create_array_file(size: int) -> FileIO | None:
    """Create a file for an array of `size` bytes; None where arrays of this size stay in memory. Raises OSError."""
    if _folder is None or size < MIN_BYTES or not hasattr(os, "posix_fallocate"):
        return None
    return tempfile.TemporaryFile(dir=_folder, buffering=0)


def map_part(file: IO[bytes], size: int, offset: int = 0) -> mmap.mmap | None:
    """Map a part of a file, which grows to hold it; None where the file system cannot do that.

    Raises OSError if the disk is full.
    """
    try:
        os.posix_fallocate(file.fileno(), offset, size)  # else a full disk would raise SIGBUS
        return mmap.mmap(file.fileno(), size, offset=offset)
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
