"""A snapshot laid on the trace that was recorded with it: every allocation has its own entry, at the same time."""

from __future__ import annotations

import numpy as np

from tests.helpers.memory_fixtures import MEMORY, open_recording
from torchprof_tui.analysis.memory.memory_history import build_memory_history
from torchprof_tui.analysis.memory.snapshots.device_snapshot import (
    DeviceSnapshot,
    TraceStacks,
    list_device_snapshots,
    match_snapshot,
)
from torchprof_tui.analysis.memory.snapshots.snapshot_file import read_snapshot


def read_device() -> DeviceSnapshot:
    return list_device_snapshots(read_snapshot(MEMORY / "snapshot.pickle.gz"))[0]


def match(name: str) -> tuple[TraceStacks, np.ndarray]:
    trace = open_recording(name)
    history = build_memory_history(trace)
    assert history is not None
    device = history.devices[0]
    return match_snapshot(trace, device, read_device()), device.lifetimes.bytes


def test_every_allocation_of_its_trace_has_an_entry_of_its_own() -> None:
    stacks, sizes = match("start")
    assert stacks.count == len(sizes) == 553
    assert len(set(stacks.entry.tolist())) == 553
    recorded = stacks.device.history
    assert recorded is not None
    assert (recorded.size[stacks.entry] <= sizes).all()  # the allocator rounds up what was requested
    frames = [stacks.format_frames(row) for row in range(len(sizes))]
    assert any(any("record_memory.py" in frame for frame in each) for each in frames)


def test_a_trace_of_another_time_has_none() -> None:
    stacks, sizes = match("steady")
    assert stacks.count == 0
    assert stacks.format_frames(len(sizes) - 1) == []
