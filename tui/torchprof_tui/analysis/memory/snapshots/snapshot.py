"""A snapshot of the CUDA caching allocator, as columns: segments, blocks, and what the allocator did before.

Written by `torch.cuda.memory._dump_snapshot`; torch documents the fields in `torch/csrc/cuda/Module.cpp`
(`THCPModule_memorySnapshot`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from torchprof_tui.trace.core.arrays import I8, I64, Bool


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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot. `histories`: of the devices that have one. `settings`: of the allocator, as recorded."""

    label: str
    segments: Segments
    blocks: Blocks
    histories: tuple[History, ...]
    settings: dict[str, Any]
