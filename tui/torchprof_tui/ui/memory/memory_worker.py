"""Read the memory of a trace and the snapshot beside it in a worker, and answer what is alive at the cursor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from textual.message import Message

from torchprof_tui.analysis.memory.categories import Category
from torchprof_tui.analysis.memory.memory_history import (
    CategoryTotals,
    DeviceHistory,
    GroupBy,
    MemoryGroup,
    MemoryHistory,
    MemoryState,
    build_memory_history,
    explain_missing_memory,
)
from torchprof_tui.analysis.memory.producers import Phase
from torchprof_tui.analysis.memory.snapshots.device_snapshot import TraceStacks, list_device_snapshots, match_snapshot
from torchprof_tui.analysis.memory.snapshots.snapshot_file import is_snapshot_file, read_snapshot
from torchprof_tui.analysis.search.name_search import BadPattern, compile_matcher
from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.common.number_format import format_value

FILTERED_BY = (GroupBy.OP, GroupBy.MODULE, GroupBy.LINE, GroupBy.CATEGORY, GroupBy.PHASE)
"""What a filter searches; shapes would be read from the file."""

NO_SHAPES = "the shapes cannot be read from the file"


@record(slots=False)
class ShownDevice:
    """A device and what the screen needs of it: k lifetimes by time and by size.

    `begin`, `end` int64[k]: ns, of what is older than the recording before it, of what is never freed after it.
    `by_size` int64[k]: the lifetimes, the largest first.
    """

    history: DeviceHistory
    totals: CategoryTotals
    begin: I64
    end: I64
    by_size: I64

    def mask_alive(self, position: int) -> Bool:
        """bool[k]: alive after a record of the device, -1 before the first."""
        record = int(self.history.memory.records[position]) if position >= 0 else -1
        lifetimes = self.history.lifetimes
        return np.asarray((lifetimes.begin <= record) & (lifetimes.end > record))


@dataclass
class MemoryRead(Message):
    """The memory of a trace was read; no devices where `problem` says why."""

    devices: tuple[ShownDevice, ...]
    problem: str = ""


class StateQuery(NamedTuple):
    """What is asked for: the device's index, a time (ns), a grouping and a lifetime (-1 for none)."""

    device: int
    time: int
    by: GroupBy
    lifetime: int


class StateRead(Message):
    """What is alive at a time, by group, and a line about the lifetime under the row cursor."""

    def __init__(
        self, query: StateQuery, state: MemoryState, groups: list[MemoryGroup], detail: str, problem: str
    ) -> None:
        super().__init__()
        self.query, self.state, self.groups, self.detail, self.problem = query, state, groups, detail, problem


class FilterMade(Message):
    """A filter was applied: `mask` bool[k] of the device's lifetimes; nothing where `problem` says what is wrong."""

    def __init__(self, device: int, text: str, mask: Bool, problem: str = "") -> None:
        super().__init__()
        self.device, self.text, self.mask, self.problem = device, text, mask, problem


def read_memory(trace: Trace) -> MemoryRead:
    """Pair all allocations of a trace and sort them."""
    history = build_memory_history(trace)
    if history is None:
        return MemoryRead((), explain_missing_memory(trace).removeprefix(f"{trace.label}: "))
    return MemoryRead(tuple(_prepare_device(history, device) for device in history.devices))


def _prepare_device(history: MemoryHistory, device: DeviceHistory) -> ShownDevice:
    lifetimes, time = device.lifetimes, device.producers.memory.time
    low, high = history.trace.span
    begin = np.where(lifetimes.allocated_by >= 0, time[np.maximum(lifetimes.allocated_by, 0)], min(low, int(time[0])))
    end = np.where(lifetimes.freed_by >= 0, time[np.maximum(lifetimes.freed_by, 0)], max(high, int(time[-1])) + 1)
    _ = device.op, device.memory.peak  # computed here, not while a frame is painted
    return ShownDevice(
        device, CategoryTotals(device), begin, end, np.argsort(-lifetimes.bytes, kind="stable").astype(np.int64)
    )


def find_state(shown: ShownDevice, query: StateQuery, stacks: TraceStacks | None = None) -> StateRead:
    """Find what is alive at a time. At the time of the peak that is the peak, as `memory --at peak` has it."""
    history = shown.history
    peak = history.memory.peak
    is_peak = query.time == int(history.memory.time[peak])
    state = history.find_peak() if is_peak else history.find_state(query.time)
    problem, groups = "", []
    try:
        groups = history.group_state(state, query.by)
    except (OSError, LookupError) as error:
        problem = f"{NO_SHAPES}: {clean(str(error))}"
    detail = describe_lifetime(shown, query.lifetime, stacks) if query.lifetime >= 0 else ""
    return StateRead(query, state, groups, detail, problem)


def describe_lifetime(shown: ShownDevice, lifetime: int, stacks: TraceStacks | None) -> str:
    """Describe one allocation in a line: size, op, what it is for, its time, its line, module and stack."""
    device = shown.history
    frames = [] if stacks is None else stacks.format_frames(lifetime)  # innermost first
    row = np.array([lifetime], np.int64)
    labels = {}
    for by in (GroupBy.OP, GroupBy.LINE, GroupBy.MODULE):
        index, texts = device.label_lifetimes(row, by)
        labels[by] = clean(texts[int(index[0])])
    since, until = device.since(lifetime), device.until(lifetime)
    held = f" ({format_duration(until - since)})" if since is not None and until is not None else ""
    parts = [
        format_value(int(device.lifetimes.bytes[lifetime]), "bytes"),
        labels[GroupBy.OP] or "no op",
        Category(int(device.category[lifetime])).label,
        Phase(int(device.phase[lifetime])).label,
        f"since {'before' if since is None else format_duration(since)} "
        f"until {'the end' if until is None else format_duration(until)}{held}",
        labels[GroupBy.LINE],
        labels[GroupBy.MODULE],
        f"stack: {' < '.join(map(clean, frames))}" if frames else "",
    ]
    return " · ".join(part for part in parts if part)


def filter_lifetimes(shown: ShownDevice, number: int, text: str) -> FilterMade:
    """Find the lifetimes whose op, module, line, category or phase has a text; `/text/` is a regular expression."""
    matches = compile_matcher(text)
    if isinstance(matches, BadPattern):
        return FilterMade(number, text, np.zeros(0, np.bool_), matches.message)
    device = shown.history
    everything = np.arange(len(device.lifetimes))
    mask = np.zeros(len(everything), np.bool_)
    for by in FILTERED_BY:
        index, texts = device.label_lifetimes(everything, by)
        found = np.fromiter((bool(each) and matches(each) for each in texts), np.bool_, len(texts))
        if len(texts):
            mask |= found[index]
    return FilterMade(number, text, mask)


def find_allocation(devices: tuple[ShownDevice, ...], trace: Trace, event: int) -> tuple[int, int] | None:
    """Find the largest allocation made in an event, or in what it calls: (device's index, lifetime); None for none."""
    lane = trace.lanes[int(trace.lane[event])]
    finish = int(trace.start[event] + trace.duration[event])
    last = lane.first + int(np.searchsorted(trace.start[lane.first : lane.last], finish, side="left"))
    for number, shown in enumerate(devices):
        history = shown.history
        made_by = history.lifetimes.allocated_by
        owner = np.where(made_by >= 0, history.producers.owner[np.maximum(made_by, 0)], -1)
        inside = np.flatnonzero(((owner >= event) & (owner < max(last, event + 1))) | (history.op == event))
        if len(inside):
            return number, int(inside[np.argmax(history.lifetimes.bytes[inside])])
    return None


SNAPSHOT_STEM = "memory_snapshot"
"""How `run --memory-snapshot` names the file; of one rank of several, with `.rankN` after it."""


DeviceStacks = tuple[TraceStacks | None, ...]  # for each device its stacks, None for none


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


def read_stacks(trace: Trace, devices: tuple[ShownDevice, ...], path: Path) -> tuple[DeviceStacks, str]:
    """Read a snapshot, match its entries with the allocations of each device, and say in a line what became of it."""
    try:
        snapshots = {snapshot.label: snapshot for snapshot in list_device_snapshots(read_snapshot(path))}
    except (OSError, TraceError) as error:
        return (None,) * len(devices), f"the snapshot beside the trace is not read: {error}"
    stacks = []
    for shown in devices:
        snapshot = snapshots.get(shown.history.memory.label)
        stacks.append(None if snapshot is None else match_snapshot(trace, shown.history, snapshot))
    count = sum(each.count for each in stacks if each is not None)
    if not count:
        return (None,) * len(devices), f"{path.name}: none of its allocations are in this trace"
    return tuple(stacks), f"stacks of {count:,} allocations from {path.name}"
