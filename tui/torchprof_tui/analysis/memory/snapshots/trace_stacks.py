"""Lay a snapshot of the allocator on the time axis of a trace: which of its entries made which allocation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.memory.memory_history import DeviceHistory
from torchprof_tui.analysis.memory.snapshots.device_snapshot import DeviceSnapshot
from torchprof_tui.analysis.memory.snapshots.snapshot import Action
from torchprof_tui.analysis.memory.snapshots.stacks import format_stack
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.trace import Trace

MAX_DIFFERENCE_NS = 1_000_000
"""Between the times of one allocation in a trace and in a snapshot, which have clocks of their own.

Both are the Unix clock; the snapshot counts whole microseconds, before the profiler does.
"""


@dataclass(frozen=True, slots=True)
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
        entry[known] = _find_nearest(address, time, recorded.address[rows], moved, rows)
    return TraceStacks(snapshot, entry)


def _find_nearest(address: I64, time: I64, other_address: I64, other_time: I64, rows: I64) -> I64:
    """Find the row of the same address that is nearest in time: int64[q]; -1 where none is near."""
    order = np.lexsort((other_time, other_address))
    codes, index = np.unique(np.concatenate([other_address, address]), return_inverse=True)
    start = int(min(other_time.min(), time.min()))
    span = int(max(other_time.max(), time.max())) - start + 1
    unit = max(1, len(codes) * span // np.iinfo(np.int64).max + 1)  # ns for each step of a key, so that keys fit
    length = span // unit + 1
    keys = index[: len(rows)][order] * length + (other_time[order] - start) // unit
    wanted = index[len(rows) :] * length + (time - start) // unit
    after = np.searchsorted(keys, wanted)
    best = np.full(len(wanted), -1, np.int64)
    least = np.full(len(wanted), MAX_DIFFERENCE_NS + 1, np.int64)
    for place in (np.maximum(after - 1, 0), np.minimum(after, len(keys) - 1)):
        found = order[place]
        away = np.abs(other_time[found] - time)
        is_better = (other_address[found] == address) & (away < least)
        best[is_better], least[is_better] = rows[found[is_better]], away[is_better]
    return best
