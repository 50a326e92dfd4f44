"""Test the findings of snapshots with pairs that differ in one thing, and recorded ones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.memory_fixtures import MEMORY
from torchprof_tui.analysis.memory.findings.allocator_findings import find_snapshot_findings
from torchprof_tui.analysis.memory.findings.memory_finding import MemoryFinding
from torchprof_tui.analysis.memory.snapshots.device_snapshot import list_device_snapshots
from torchprof_tui.analysis.memory.snapshots.snapshot_file import build_snapshot, read_snapshot

GIB = 1 << 30


def find(content: dict[str, Any]) -> dict[str, MemoryFinding]:
    (device,) = list_device_snapshots(build_snapshot(content))
    return {finding.id: finding for finding in find_snapshot_findings(device)}


def segment(*blocks: tuple[int, str], expandable: bool = False) -> dict[str, Any]:
    return {
        "device": 0,
        "address": 4096,
        "total_size": sum(size for size, _ in blocks),
        "stream": 0,
        "segment_type": "large",
        "is_expandable": expandable,
        "blocks": [{"size": size, "requested_size": size, "state": state, "frames": []} for size, state in blocks],
    }


USED, FREE = "active_allocated", "inactive"


def test_free_blocks_between_blocks_in_use() -> None:
    scattered = find({"segments": [segment((GIB, USED), (GIB, FREE), (GIB, USED))]})["fragmentation"]
    assert scattered.saved == GIB
    assert "expandable_segments" in scattered.code
    assert find({"segments": [segment((2 * GIB, USED))]}) == {}
    expandable = segment((GIB, USED), (GIB, FREE), expandable=True)
    assert find({"segments": [expandable]})["fragmentation"].code == ""


def test_segments_without_a_block_in_use_are_no_fragmentation() -> None:
    other = {**segment((GIB, FREE)), "address": 1 << 40}
    assert find({"segments": [segment((2 * GIB, USED)), other]}) == {}


def act(*actions: str) -> dict[str, Any]:
    entries = [
        {"action": action, "addr": 4096, "size": GIB, "stream": 0, "time_us": time, "frames": []}
        for time, action in enumerate(actions)
    ]
    return {"segments": [segment((2 * GIB, USED))], "device_traces": [entries]}


@pytest.mark.parametrize(
    ("actions", "fires"),
    [
        (("segment_alloc", "alloc", "segment_free", "segment_alloc", "alloc"), True),
        (("segment_alloc", "alloc", "segment_alloc", "alloc"), False),
        (("segment_free", "alloc", "segment_alloc"), False),  # empty_cache(), and growth later
    ],
)
def test_retries(actions: tuple[str, ...], fires: bool) -> None:
    assert ("allocator-retries" in find(act(*actions))) is fires


def test_recorded_snapshots() -> None:
    found = {}
    for name in ("snapshot", "oom"):
        (device,) = list_device_snapshots(read_snapshot(MEMORY / f"{name}.pickle.gz"))
        found[name] = {finding.id: finding for finding in find_snapshot_findings(device)}
    assert "out-of-memory" not in found["snapshot"]
    assert "too little" in found["oom"]["out-of-memory"].seen
