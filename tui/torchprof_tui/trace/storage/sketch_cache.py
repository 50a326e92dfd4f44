"""The cache of sketches: one small file per trace, in a folder of their own beside the decoded traces.

A file is named by the same digest as the decoded trace (path, size and times of change, or a remote identity) and by
the version of its format. The folder counts as one entry of the cache: it is pruned and cleared as a whole.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from torchprof_tui.trace.storage.disk_cache import SKETCHES_FOLDER, cache_folder, create_sketches_folder, find_key


def find_sketch_path(spec: str, identity: str | None, version: int) -> Path | None:
    """Find where the sketch of a trace is, or would be; None for what has no identity, such as a pipe."""
    key = find_key(spec, identity)
    return None if key is None else cache_folder() / SKETCHES_FOLDER / f"{key}.v{version}.parquet"


def find_pack_path(digest: str, version: int) -> Path:
    """Find where all sketches of a job are, or would be, in one file."""
    return cache_folder() / SKETCHES_FOLDER / f"{digest}.v{version}.pack"


def read_sketch(path: Path | None) -> bytes:
    """Read a stored sketch; b"" where there is none."""
    with contextlib.suppress(OSError):
        return b"" if path is None else path.read_bytes()
    return b""


def store_sketch(path: Path | None, data: bytes) -> None:
    """Store a sketch. If that fails, it is made again next time."""
    if path is None:
        return
    with contextlib.suppress(OSError):
        if create_sketches_folder() is None:
            return
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_bytes(data)
        draft.replace(path)
