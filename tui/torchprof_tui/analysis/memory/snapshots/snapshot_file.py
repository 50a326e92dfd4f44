"""Read the file of a snapshot into columns, and check every part of it.

Written by `torch.cuda.memory._dump_snapshot`; torch documents the fields in `torch/csrc/cuda/Module.cpp`
(`THCPModule_memorySnapshot`).
"""

from __future__ import annotations

import gc
import gzip
import io
import zlib
from array import array
from collections.abc import Sequence
from enum import IntEnum
from itertools import repeat
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from torchprof_tui.analysis.memory.snapshots.primitive_pickle import (
    UnsafePickleError,
    load_plain_pickle,
    starts_as_pickle,
)
from torchprof_tui.trace.core.arrays import I8, I64, Bool, sorted_unique
from torchprof_tui.trace.core.errors import TraceError, quote_file
from torchprof_tui.trace.core.readable import read_begin
from torchprof_tui.trace.core.records import record


class BlockState(IntEnum):
    """The state of a block."""

    FREE = 0  # inactive: in the cache
    ALLOCATED = 1
    PENDING_FREE = 2  # freed by the program, still in use by another stream
    UNKNOWN = 3


BLOCK_STATES = {
    "inactive": BlockState.FREE,
    "active_allocated": BlockState.ALLOCATED,
    "active_pending_free": BlockState.PENDING_FREE,
    "active_awaiting_free": BlockState.PENDING_FREE,
}


class Action(IntEnum):
    """What the allocator did."""

    OTHER = 0
    ALLOC = 1
    FREE_REQUESTED = 2
    FREE_COMPLETED = 3
    SEGMENT_ALLOC = 4
    SEGMENT_FREE = 5
    SEGMENT_MAP = 6
    SEGMENT_UNMAP = 7
    OOM = 8
    SNAPSHOT = 9


ACTIONS = {action.name.lower(): action for action in Action}


@record
class Segments:
    """s segments, memory that was got from the driver. All int64[s]; `kind` texts; `first` int64[s + 1] into blocks.

    `stream` as recorded, `is_expandable` bool[s].
    """

    device: I64
    address: I64
    size: I64
    stream: I64
    kind: Sequence[str]
    is_expandable: Bool
    first: I64

    def __len__(self) -> int:
        return len(self.size)


@record
class Blocks:
    """b blocks of the segments, in their order. `size`, `requested`, `address` int64[b], `state` int8[b].

    `frames`: one list for each, innermost first, as recorded (see `Stacks`).
    """

    address: I64
    size: I64
    requested: I64
    state: I8
    frames: Sequence[Any]

    def __len__(self) -> int:
        return len(self.size)


@record
class History:
    """What the allocator of one device did, e entries by time: `action` int8[e], others int64[e].

    `size`: bytes as the program requested them, of segments the whole. `time`: ns of the Unix clock. `free` bytes that
    the device had left, of OOM entries, -1 for all others. `frames`: one list for each, innermost first.
    """

    device: int
    action: I8
    address: I64
    size: I64
    time: I64
    free: I64
    frames: Sequence[Any]

    def __len__(self) -> int:
        return len(self.action)


@record
class Snapshot:
    """A snapshot. `histories`: of the devices that have one. `settings`: of the allocator, as recorded."""

    label: str
    segments: Segments
    blocks: Blocks
    histories: tuple[History, ...]
    settings: dict[str, Any]


MAX_BYTES = 1 << 31  # the largest file that is read, decompressed: about ten times as much memory is needed to read it
MAX_DEVICES = 4096  # more than a machine has; each has a list of its own

_SMALL_BYTES = 1 << 20
_MAX_CONTAINER_SHARE = 0.25
"""Share of bytes that may begin a container; of torch's own files it is below 0.05. An empty list takes 64 bytes."""

_GZIP = b"\x1f\x8b"
_HEAD_BYTES = 1 << 16
_NO_FRAMES: tuple[Any, ...] = ()


def is_snapshot_file(path: str | Path) -> bool:
    """Return whether a local file starts as a pickle, also a compressed one. False where it cannot be read."""
    try:
        head = read_begin(path, _HEAD_BYTES)
        if head.startswith(_GZIP):
            with gzip.open(io.BytesIO(head)) as text:
                head = text.read(2)
    except (OSError, EOFError, zlib.error, ValueError):
        return False
    return starts_as_pickle(head)


def read_snapshot(path: str | Path) -> Snapshot:
    """Read a snapshot. Raises TraceError with one line where the file is none, OSError where it cannot be read."""
    was_enabled = gc.isenabled()
    gc.disable()  # millions of dicts are created and none is garbage
    try:
        return build_snapshot(load_plain_pickle(_read_bytes(path)), str(path))
    except UnsafePickleError as error:
        line = f"{path}: not read{quote_file(f': {error}')}"
        raise TraceError(f"{line}; a memory snapshot is a pickle of dicts, lists, texts and numbers only") from error
    except (EOFError, zlib.error) as error:
        raise TraceError(f"{path}: the compressed data is damaged ({error})") from error
    finally:
        if was_enabled:
            gc.enable()


def _read_bytes(path: str | Path) -> bytes:
    with open(path, "rb") as file:
        compressed = file.read(2) == _GZIP
        file.seek(0)
        if compressed:
            with gzip.open(file) as text:
                data = text.read(MAX_BYTES + 1)
        else:
            data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise TraceError(f"{path}: larger than {MAX_BYTES >> 30} GiB; record fewer entries (max_entries=…)")
    containers = sum(map(data.count, (b"]", b"}", b")"))) if len(data) > _SMALL_BYTES else 0
    if containers > _MAX_CONTAINER_SHARE * len(data):
        raise TraceError(f"{path}: not a memory snapshot: {containers:,} lists and dicts in {len(data):,} bytes")
    return data


def build_snapshot(content: Any, label: str = "") -> Snapshot:
    """Build the columns from the content of a pickle. Raises TraceError where that is not a snapshot."""
    if not isinstance(content, dict) or not isinstance(content.get("segments"), (list, tuple)):
        raise TraceError(
            f"{label}: a pickle, but not a memory snapshot: expected what torch.cuda.memory._dump_snapshot writes"
        )
    try:
        segments, blocks = _build_segments(content["segments"])
        traces = _as_list(content.get("device_traces"))
        if max(len(sorted_unique(segments.device)), len(traces)) > MAX_DEVICES:
            raise ValueError(f"more than {MAX_DEVICES:,} devices")
        if len({id(part) for part in traces if part}) != sum(bool(part) for part in traces):
            raise ValueError("two devices have the same list of entries")
        histories = tuple(
            _build_history(device, _as_list(entries)) for device, entries in enumerate(traces) if _as_list(entries)
        )
    except (TypeError, ValueError, OverflowError, KeyError, AttributeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise TraceError(f"{label}: not a memory snapshot{quote_file(f': {reason}')}") from error
    settings = content.get("allocator_settings")
    return Snapshot(label, segments, blocks, histories, dict(settings) if isinstance(settings, dict) else {})


def _build_segments(found: Sequence[Any]) -> tuple[Segments, Blocks]:
    parts = [_as_list(segment["blocks"]) for segment in found]
    if len({id(part) for part in parts if part}) != sum(bool(part) for part in parts):
        raise ValueError("two segments have the same list of blocks")
    blocks = [block for part in parts for block in part]
    first = np.zeros(len(found) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=first[1:])
    segments = Segments(
        device=_read_integers(found, "device", 0),
        address=_read_integers(found, "address", 0),
        size=_read_sizes(found, "total_size"),
        stream=_read_integers(found, "stream", 0),
        kind=[kind if isinstance(kind := segment.get("segment_type"), str) else "" for segment in found],
        is_expandable=np.array([bool(segment.get("is_expandable")) for segment in found], np.bool_),
        first=first,
    )
    size = _read_sizes(blocks, "size")
    states, unknown = [block.get("state") for block in blocks], BlockState.UNKNOWN
    # torch before 2.1 records no addresses: blocks follow each other in their segment.
    before = np.cumsum(size) - size
    start = np.repeat(segments.first[:-1], np.diff(segments.first))
    origin = np.repeat(segments.address, np.diff(segments.first))
    computed = (origin + before - before[start]).tolist() if len(blocks) else []
    return segments, Blocks(
        address=_as_integers([block.get("address", other) for block, other in zip(blocks, computed, strict=True)]),
        size=size,
        requested=_as_integers([block.get("requested_size", block["size"]) for block in blocks]),
        state=np.array(
            [BLOCK_STATES.get(state, unknown) if isinstance(state, str) else unknown for state in states], np.int8
        ),
        frames=[_find_frames(block) for block in blocks],
    )


def _find_frames(block: dict[str, Any]) -> Any:
    """Find the frames of a block; torch before 2.1 has them in its history, the latest use first."""
    frames = block.get("frames")
    if frames is None:
        history = block.get("history")
        latest = history[0] if isinstance(history, list) and history else None
        frames = latest.get("frames") if isinstance(latest, dict) else None
    return _as_frames(frames)


def _as_frames(value: Any) -> Any:
    return value if isinstance(value, list) else _NO_FRAMES


def _build_history(device: int, entries: Sequence[Any]) -> History:
    codes = {name: int(action) for name, action in ACTIONS.items()}
    names = list(map(itemgetter("action"), entries))
    if set(map(type, names)) - {str}:
        raise TypeError("an action is not a text")
    action: I8 = np.array(list(map(codes.get, names, repeat(int(Action.OTHER)))), np.int8)
    free = np.full(len(entries), -1, np.int64)
    for row in np.flatnonzero(action == Action.OOM).tolist():
        left = entries[row].get("device_free", -1)
        free[row] = left if isinstance(left, int) else -1
    # Read the frames of each entry, none where they are no list.
    try:
        frames = list(map(itemgetter("frames"), entries))
    except KeyError:
        frames = [entry.get("frames") for entry in entries]
    return History(
        device=device,
        action=action,
        address=_read_integers(entries, "addr", 0),
        size=_read_sizes(entries, "size"),
        time=_read_integers(entries, "time_us", 0) * 1000,
        free=free,
        frames=frames if set(map(type, frames)) <= {list} else list(map(_as_frames, frames)),
    )


def _read_integers(records: Sequence[Any], key: str, missing: int) -> I64:
    """Read a number of each record: int64[k]. Raises TypeError, ValueError, OverflowError for anything else."""
    try:
        values = list(map(itemgetter(key), records))
    except KeyError:
        values = [record.get(key, missing) for record in records]
    return _as_integers(values)


def _as_integers(values: list[Any]) -> I64:
    """Convert to int64[k]. Raises TypeError for anything but integers, at the first: lists may hold each other."""
    return np.frombuffer(array("q", values), np.int64) if values else np.zeros(0, np.int64)


def _read_sizes(records: Sequence[Any], key: str) -> I64:
    sizes = _read_integers(records, key, 0)
    if len(sizes) and (int(sizes.min()) < 0 or float(sizes.astype(np.float64).sum()) >= 2**62):
        raise ValueError(f"{key!r} is no size in bytes")
    return sizes


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()
