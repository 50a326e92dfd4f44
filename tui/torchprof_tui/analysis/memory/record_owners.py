"""Find the event during which each `[memory]` record was made."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_ancestor_ending_after
from torchprof_tui.trace.core.arrays import I32
from torchprof_tui.trace.model.trace import MemoryEvents, Trace


def find_enclosing_events(trace: Trace, memory: MemoryEvents) -> I32:
    """Find the innermost event around each record on its own thread: int32[records]; -1 for none."""
    owner = np.full(len(memory.time), -1, np.int32)
    for lane in np.unique(memory.lane[memory.lane >= 0]).tolist():
        first, last = trace.lanes[lane].first, trace.lanes[lane].last
        records = np.flatnonzero(memory.lane == lane)
        index = first + np.searchsorted(trace.start[first:last], memory.time[records], side="right") - 1
        owner[records] = np.where(index >= first, index, -1)
    has_owner = np.flatnonzero(owner >= 0)
    end = trace.start + trace.duration
    owner[has_owner] = find_ancestor_ending_after(trace.parent, end, owner[has_owner], memory.time[has_owner])
    return owner


def format_device(device_type: int, device_id: int) -> str:
    """Format a device as the tables name it: "CPU", "GPU 0"."""
    return "CPU" if device_type == CPU_DEVICE_TYPE else f"GPU {device_id}" if device_id >= 0 else "GPU"


CPU_DEVICE_TYPE = 0
