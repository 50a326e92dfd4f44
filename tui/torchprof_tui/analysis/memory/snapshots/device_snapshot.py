"""Answer about one device of a snapshot: what is reserved and free, and what was alive before.

Frames are resolved to lines and stacks only when asked for: a snapshot has millions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np

from torchprof_tui.analysis.dispatch.frame_names import FrameOrigin, classify_file
from torchprof_tui.analysis.memory.device_memory import Lifetimes, pair_records
from torchprof_tui.analysis.memory.memory_history import DeviceHistory
from torchprof_tui.analysis.memory.snapshots.snapshot_file import Action, BlockState, History, Snapshot
from torchprof_tui.trace.core.arrays import I32, I64, Bool, is_in, sorted_unique, sum_by_index
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Trace

MAX_FRAMES = 100  # frames of a stack that are examined and shown, innermost first


MAX_TEXT = 1000  # characters of a file or a function that are kept: names of C++ templates are longer than anyone reads


def format_frame(frame: Any) -> str:
    """Format a frame as `file:line function`; "" for what is none."""
    if not isinstance(frame, dict):
        return ""
    line = frame.get("line")
    number = line if isinstance(line, int) else 0
    return f"{_read_text(frame, 'filename')}:{number} {_read_text(frame, 'name')}"


def _read_text(frame: dict[str, Any], key: str) -> str:
    """Read a text of a frame; "" for anything else, of which a small file can hold more than memory prints."""
    value = frame.get(key)
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def find_line(frames: Sequence[Any]) -> str:
    """Find the line of the program: the innermost frame of the user's code, else of an installed package, else any.

    "" where no frame was recorded. A stack of C++ frames alone has the innermost.
    """
    found: dict[FrameOrigin, Any] = {}
    for frame in frames[:MAX_FRAMES]:
        if isinstance(frame, dict):
            file = _read_text(frame, "filename")
            is_python = file.endswith(".py") or file.startswith("<")  # C++ frames have "??" or a source file
            found.setdefault(classify_file(file) if is_python else FrameOrigin.INTERNAL, frame)
    return format_frame(found[min(found)]) if found else ""


def format_stack(frames: Sequence[Any]) -> str:
    """Format a stack, innermost first, one frame a line; "" without frames."""
    return "\n".join(filter(None, map(format_frame, frames[:MAX_FRAMES])))


def factorize_frames(stacks: Iterable[Any], by_stack: bool) -> tuple[I32, list[str]]:
    """Return (index int32[k], texts) of the line, or of the whole stack, of each list of frames; "" comes first."""
    index_of_text: dict[str, int] = {"": 0}
    index_of_ids: dict[tuple[int, ...], int] = {}
    index = []
    for frames in stacks:
        frames = frames if isinstance(frames, (list, tuple)) else ()
        key = tuple(map(id, frames[:MAX_FRAMES]))  # the frames themselves are shared: their ids tell equal stacks
        number = index_of_ids.get(key)
        if number is None:
            text = format_stack(frames) if by_stack else find_line(frames)
            number = index_of_ids[key] = index_of_text.setdefault(text, len(index_of_text))
        index.append(number)
    return np.array(index, np.int32), list(index_of_text)


class SnapshotGroupBy(str, Enum):
    """What the memory of a snapshot is grouped by."""

    LINE = "line"
    STACK = "stack"


@record
class BlockTotals:
    """Sums over the segments of a device, in bytes.

    `reserved` = `allocated` + `pending` + `free`, + `unknown` of blocks in an unknown state. `requested`: of what is
    allocated, what the program asked for: the rest is rounding. `largest_free`: the largest free block. `unused`: of
    segments without a block in use, which `torch.cuda.empty_cache()` would give back.
    """

    segments: int
    reserved: int
    allocated: int
    pending: int
    free: int
    unknown: int
    requested: int
    blocks: int
    free_blocks: int
    largest_free: int
    unused: int

    @property
    def fragmentation(self) -> float | None:
        """The share of the free bytes outside of the largest free block, 0..1; None where nothing is free."""
        return None if not self.free else 1 - self.largest_free / self.free


@record
class SnapshotGroup:
    """Allocations of one line or stack: bytes as requested, how many, and the largest."""

    label: str
    bytes: int
    count: int
    largest: int


@record
class SnapshotState:
    """What was alive at one time. Sizes are bytes as the program requested them.

    `position`: index into the history, -1 before it. `time`: ns from its first entry. `alive` int64[a]: entries that
    allocated, the largest first. `older`: what was allocated before the history begins, or is not in it. `surplus`:
    what the history has beyond the blocks of the snapshot, 0 where both agree; `requested` includes it.
    """

    position: int
    time: int
    requested: int
    reserved: int
    alive: I64
    older: int
    surplus: int = 0


@record
class OutOfMemory:
    """An allocation that failed: bytes asked for, bytes that the device had left, and the allocator at that time."""

    time: int
    size: int
    device_free: int
    requested: int
    reserved: int
    stack: str


@record(slots=False)
class DeviceSnapshot:
    """One device. `history`: None where none was recorded."""

    snapshot: Snapshot = field(repr=False)
    device: int
    history: History | None

    @cached_property
    def segments(self) -> I64:
        """Its segments, the largest first: int64[s]."""
        found = np.flatnonzero(self.snapshot.segments.device == self.device)
        return found[np.argsort(-self.snapshot.segments.size[found], kind="stable")]

    @cached_property
    def blocks(self) -> I64:
        """Its blocks: int64[b]."""
        return np.flatnonzero(self.snapshot.segments.device[self._segment_of_block] == self.device)

    @property
    def label(self) -> str:
        return f"GPU {self.device}"

    @cached_property
    def segment_allocated(self) -> I64:
        """Bytes of each segment of the snapshot in blocks in use: int64[segments]."""
        used = np.where(self.snapshot.blocks.state == BlockState.ALLOCATED, self.snapshot.blocks.size, 0)
        return sum_by_index(self._segment_of_block, used, len(self.snapshot.segments))

    @cached_property
    def segment_largest_free(self) -> I64:
        """The largest free block of each segment of the snapshot, bytes: int64[segments]."""
        largest = np.zeros(len(self.snapshot.segments), np.int64)
        free = np.where(self.snapshot.blocks.state == BlockState.FREE, self.snapshot.blocks.size, 0)
        np.maximum.at(largest, self._segment_of_block, free)
        return largest

    @cached_property
    def _segment_of_block(self) -> I64:
        return np.repeat(np.arange(len(self.snapshot.segments)), np.diff(self.snapshot.segments.first))

    @cached_property
    def totals(self) -> BlockTotals:
        blocks, segments = self.snapshot.blocks, self.snapshot.segments
        state, size = blocks.state[self.blocks], blocks.size[self.blocks]
        sums = {each: int(size[state == each].sum()) for each in BlockState}
        free = size[state == BlockState.FREE]
        is_used = np.zeros(len(segments), np.bool_)
        is_used[self._segment_of_block[blocks.state != BlockState.FREE]] = True
        return BlockTotals(
            segments=len(self.segments),
            reserved=int(segments.size[self.segments].sum()),
            allocated=sums[BlockState.ALLOCATED],
            pending=sums[BlockState.PENDING_FREE],
            free=sums[BlockState.FREE],
            unknown=sums[BlockState.UNKNOWN],
            requested=int(blocks.requested[self.blocks][state == BlockState.ALLOCATED].sum()),
            blocks=len(self.blocks),
            free_blocks=len(free),
            largest_free=int(free.max(initial=0)),
            unused=int(segments.size[self.segments][~is_used[self.segments]].sum()),
        )

    @cached_property
    def requested_curve(self) -> I64:
        """Bytes requested by what is allocated, after each entry of the history: int64[e].

        Computed back from the state of the snapshot, because the history may have dropped its oldest entries.
        """
        return self._compute_curve([Action.ALLOC], [Action.FREE_REQUESTED], self.totals.requested)

    @cached_property
    def reserved_curve(self) -> I64:
        """Bytes in segments after each entry of the history: int64[e]."""
        adds, removes = [Action.SEGMENT_ALLOC], [Action.SEGMENT_FREE]
        if self.history is not None and (self.history.action == Action.SEGMENT_MAP).any():
            adds.append(Action.SEGMENT_MAP)  # expandable segments are mapped piece by piece
            removes.append(Action.SEGMENT_UNMAP)
        return self._compute_curve(adds, removes, self.totals.reserved)

    def _compute_curve(self, adds: list[Action], removes: list[Action], last: int) -> I64:
        if self.history is None:
            return np.zeros(0, np.int64)
        sign = is_in(self.history.action, adds).astype(np.int64) - is_in(self.history.action, removes)
        total = np.cumsum(sign * self.history.size)
        return total + (last - int(total[-1]) if len(total) else 0)

    @cached_property
    def lifetimes(self) -> Lifetimes:
        """The lifetimes of the history's allocations; their records are its entries."""
        history = self.history
        assert history is not None
        rows = np.flatnonzero((history.action == Action.ALLOC) | (history.action == Action.FREE_REQUESTED))
        is_allocation: Bool = history.action[rows] == Action.ALLOC
        sizes = np.where(is_allocation, history.size[rows], -history.size[rows])
        return pair_records(history.address[rows], sizes, rows.astype(np.int64), len(history))

    def find_state(self, position: int) -> SnapshotState:
        """Find what was alive after an entry of the history, -1: before the first."""
        history = self.history
        assert history is not None
        lifetimes = self.lifetimes
        alive = lifetimes.find_alive(position)
        alive = alive[lifetimes.allocated_by[alive] >= 0]
        alive_bytes = int(lifetimes.bytes[alive].sum())
        counted = self._read(self.requested_curve, position)
        return SnapshotState(
            position=position,
            time=int(history.time[max(position, 0)] - history.time[0]),
            requested=max(counted, alive_bytes),
            reserved=self._read(self.reserved_curve, position),
            alive=lifetimes.allocated_by[alive],
            older=max(counted - alive_bytes, 0),
            surplus=max(alive_bytes - counted, 0),
        )

    def _read(self, curve: I64, position: int) -> int:
        if position >= 0:
            return int(curve[position])
        assert self.history is not None
        first = int(self.history.size[0])
        grew = {Action.ALLOC: first, Action.FREE_REQUESTED: -first}.get(Action(int(self.history.action[0])), 0)
        return int(curve[0]) - (grew if curve is self.requested_curve else 0)

    def find_peak(self) -> int:
        """Find the entry after which most was requested: an index into the history."""
        return int(np.argmax(self.requested_curve))

    def find_position(self, time: int) -> int:
        """Find the last entry at or before a time, ns from the first entry; -1 before it."""
        assert self.history is not None
        order = np.maximum.accumulate(self.history.time) - self.history.time[0]
        return int(np.searchsorted(order, time, side="right")) - 1

    def group_alive(self, state: SnapshotState, by: SnapshotGroupBy) -> list[SnapshotGroup]:
        """Group what was alive at a time, the largest group first; with `state.older` they sum to `requested`."""
        history = self.history
        assert history is not None
        frames = [history.frames[entry] for entry in state.alive.tolist()]
        return _group(frames, history.size[state.alive], by)

    def group_blocks(self, by: SnapshotGroupBy) -> list[SnapshotGroup]:
        """Group what is allocated at the time of the snapshot; the groups sum to `totals.requested`."""
        blocks = self.snapshot.blocks
        held = self.blocks[blocks.state[self.blocks] == BlockState.ALLOCATED]
        return _group([blocks.frames[block] for block in held.tolist()], blocks.requested[held], by)

    def list_failures(self) -> list[OutOfMemory]:
        """List the allocations that failed for lack of memory, by time."""
        history = self.history
        if history is None:
            return []
        return [
            OutOfMemory(
                time=int(history.time[row] - history.time[0]),
                size=int(history.size[row]),
                device_free=int(history.free[row]),
                requested=int(self.requested_curve[row]),
                reserved=int(self.reserved_curve[row]),
                stack=format_stack(history.frames[row]),
            )
            for row in np.flatnonzero(history.action == Action.OOM).tolist()
        ]


def _group(frames: list[object], sizes: I64, by: SnapshotGroupBy) -> list[SnapshotGroup]:
    index, texts = factorize_frames(frames, by is SnapshotGroupBy.STACK)
    sums, counts = sum_by_index(index, sizes, len(texts)), np.bincount(index, minlength=len(texts))
    largest = np.zeros(len(texts), np.int64)
    np.maximum.at(largest, index, sizes)
    order = np.argsort(-sums, kind="stable").tolist()
    return [
        SnapshotGroup(texts[row] or NO_FRAMES, int(sums[row]), int(counts[row]), int(largest[row]))
        for row in order
        if counts[row]
    ]


NO_FRAMES = "(no stack recorded)"  # the label of allocations without frames


def list_device_snapshots(snapshot: Snapshot) -> list[DeviceSnapshot]:
    """List the devices of a snapshot, the one with most reserved bytes first."""
    histories = {history.device: history for history in snapshot.histories}
    numbers = {*sorted_unique(snapshot.segments.device).tolist(), *histories}
    devices = [DeviceSnapshot(snapshot, number, histories.get(number)) for number in sorted(numbers)]
    return sorted(devices, key=lambda device: -device.totals.reserved)


MAX_DIFFERENCE_NS = 1_000_000
"""Between the times of one allocation in a trace and in a snapshot: both are the Unix clock, but the snapshot counts
whole microseconds, before the profiler does."""


@record
class TraceStacks:
    """The stacks of a snapshot for the k lifetimes of a device: `entry` int64[k] of its history, -1 for none."""

    device: DeviceSnapshot
    entry: I64

    @property
    def count(self) -> int:
        """The lifetimes that have a stack."""
        return int(np.count_nonzero(self.entry >= 0))

    def format_frames(self, lifetime: int) -> list[str]:
        """Format the frames of a lifetime's allocation, innermost first; [] for none."""
        entry = int(self.entry[lifetime])
        if entry < 0 or self.device.history is None:
            return []
        return format_stack(self.device.history.frames[entry]).splitlines()


def match_snapshot(trace: Trace, history: DeviceHistory, snapshot: DeviceSnapshot) -> TraceStacks:
    """Find the snapshot's entry of each allocation of a device: of the same address, at the same time.

    Both record the Unix clock: the trace as `baseTimeNanoseconds` + `ts`, the snapshot as `time_us`.
    """
    made_by = history.lifetimes.allocated_by
    entry = np.full(len(made_by), -1, np.int64)
    recorded = snapshot.history
    known = np.flatnonzero(made_by >= 0)
    if recorded is None or not len(known):
        return TraceStacks(snapshot, entry)
    memory = history.producers.memory
    address, time = memory.address[made_by[known]], memory.time[made_by[known]]
    rows = np.flatnonzero(recorded.action == Action.ALLOC)
    moved = recorded.time[rows] - (trace.metadata.base_time + trace.origin)
    near = (moved >= int(time.min()) - MAX_DIFFERENCE_NS) & (moved <= int(time.max()) + MAX_DIFFERENCE_NS)
    rows, moved = rows[near], moved[near]
    if len(rows):
        nearest = _find_nearest(address, time, recorded.address[rows], moved)
        entry[known] = np.where(nearest >= 0, rows[nearest], -1)
    return TraceStacks(snapshot, entry)


def _find_nearest(address: I64, time: I64, other_address: I64, other_time: I64) -> I64:
    """Find the other of the same address that is nearest in time: int64[q] indexes; -1 where none is near."""
    order = np.lexsort((other_time, other_address))
    codes, index = np.unique(np.concatenate([other_address, address]), return_inverse=True)
    start = int(min(other_time.min(), time.min()))
    span = int(max(other_time.max(), time.max())) - start + 1
    unit = max(1, len(codes) * span // np.iinfo(np.int64).max + 1)  # ns for each step of a key, so that keys fit
    length = span // unit + 1
    keys = index * length + (np.concatenate([other_time, time]) - start) // unit
    known, wanted = keys[: len(order)][order], keys[len(order) :]
    after = np.searchsorted(known, wanted)
    best = np.full(len(wanted), -1, np.int64)
    least = np.full(len(wanted), MAX_DIFFERENCE_NS + 1, np.int64)
    for place in (np.maximum(after - 1, 0), np.minimum(after, len(known) - 1)):
        found = order[place]
        away = np.abs(other_time[found] - time)
        is_better = (other_address[found] == address) & (away < least)
        best[is_better], least[is_better] = found[is_better], away[is_better]
    return best
