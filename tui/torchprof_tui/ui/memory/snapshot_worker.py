"""Find the memory snapshot beside a trace, and lay its stacks on the trace's allocations, in a worker."""

from __future__ import annotations

from pathlib import Path

from textual.message import Message

from torchprof_tui.analysis.memory.snapshots.device_snapshot import TraceStacks, list_device_snapshots, match_snapshot
from torchprof_tui.analysis.memory.snapshots.snapshot_file import is_snapshot_file, read_snapshot
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.memory.memory_worker import ShownDevice

SNAPSHOT_STEM = "memory_snapshot"
"""How `run --memory-snapshot` names the file; of one rank of several, with `.rankN` after it."""


class StacksRead(Message):
    """A snapshot was read: for each device its stacks, None for none. `line`: what became of it."""

    def __init__(self, stacks: tuple[TraceStacks | None, ...], line: str) -> None:
        super().__init__()
        self.stacks, self.line = stacks, line


def find_snapshot_beside(rank: Rank) -> Path | None:
    """Find the snapshot in the folder of a local trace; None where there is none."""
    folder = Path(rank.file).parent
    number = rank.trace.rank if rank.trace.rank is not None else rank.number
    names = [f"{SNAPSHOT_STEM}.rank{number}.pickle"]
    if not rank.is_merged:
        names.append(f"{SNAPSHOT_STEM}.pickle")
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file() and is_snapshot_file(path):
                return path
    return None


def read_stacks(trace: Trace, devices: tuple[ShownDevice, ...], path: Path) -> StacksRead:
    """Read a snapshot and match its entries with the allocations of each device."""
    try:
        snapshots = {snapshot.label: snapshot for snapshot in list_device_snapshots(read_snapshot(path))}
    except (OSError, TraceError) as error:
        return StacksRead((None,) * len(devices), f"the snapshot beside the trace is not read: {error}")
    stacks = []
    for shown in devices:
        snapshot = snapshots.get(shown.history.memory.label)
        stacks.append(None if snapshot is None else match_snapshot(trace, shown.history, snapshot))
    count = sum(each.count for each in stacks if each is not None)
    if not count:
        return StacksRead((None,) * len(devices), f"{path.name}: none of its allocations are in this trace")
    return StacksRead(tuple(stacks), f"stacks of {count:,} allocations from {path.name}")
