"""Read a memory snapshot in a worker, and list what its screen shows: lines, stacks, allocations, segments, …"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import NamedTuple

import numpy as np
from textual.message import Message

from torchprof_tui.analysis.memory.findings.allocator_findings import find_snapshot_findings
from torchprof_tui.analysis.memory.findings.memory_finding import format_number
from torchprof_tui.analysis.memory.snapshots.device_snapshot import (
    DeviceSnapshot,
    SnapshotGroupBy,
    SnapshotState,
    find_line,
    format_stack,
    list_device_snapshots,
)
from torchprof_tui.analysis.memory.snapshots.snapshot_file import BlockState, read_snapshot
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.memory.memory_text import NOT_SEEN, format_bytes, format_part

MAX_ROWS = 5_000  # rows of a list; what is smaller is summed in the last one
MAP_CELLS = 24  # cells of the map of a segment
_MAP_MARKS = "·░▒▓█"  # how much of a cell of the map is in use, from nothing to all


class SnapshotList(str, Enum):
    """What the list of the screen has."""

    LINE = "line"
    STACK = "stack"
    ALLOCATIONS = "allocations"
    SEGMENTS = "segments"
    FAILURES = "out of memory"
    FINDINGS = "findings"


HEADERS = {
    SnapshotList.LINE: ("bytes", "share", "number", "largest", "line"),
    SnapshotList.STACK: ("bytes", "share", "number", "largest", "stack, innermost first"),
    SnapshotList.ALLOCATIONS: ("bytes", "share", "since", "line"),
    SnapshotList.SEGMENTS: ("size", "in use", "free", "blocks", f"{'in use':<{MAP_CELLS}} stream  kind"),
    SnapshotList.FAILURES: ("asked for", "left", "in use", "reserved", "time, stack"),
    SnapshotList.FINDINGS: ("saves", "what"),
}

NO_HISTORY = (
    "no history was recorded, so this is the moment of the snapshot: torchprof-tui run --memory-snapshot records one, "
    "or call torch.cuda.memory._record_memory_history() before"
)


@record(slots=False)
class ShownSnapshot:
    """A device of a snapshot. `time` int64[e]: ns from the first entry of its history, ascending; empty without one."""

    device: DeviceSnapshot
    time: I64
    peak: int

    def find_position(self, time: int) -> int:
        """Find the last entry at or before a time, ns; -1 before the first."""
        return int(np.searchsorted(self.time, time, side="right")) - 1


class SnapshotQuery(NamedTuple):
    """What is asked for: the device's index, an entry of its history (-1: before it), and a list."""

    device: int
    position: int
    shown: SnapshotList


class SnapshotRow(NamedTuple):
    """A row: its cells, and the whole of its text, for the line below the list."""

    cells: tuple[str, ...]
    detail: str


class RowsRead(Message):
    """The rows of a list, the largest first; `state` is None without a history."""

    def __init__(self, query: SnapshotQuery, state: SnapshotState | None, rows: list[SnapshotRow]) -> None:
        super().__init__()
        self.query, self.state, self.rows = query, state, rows


def read_shown_snapshot(path: Path) -> tuple[tuple[ShownSnapshot, ...], str]:
    """Read the devices of a snapshot and compute what is needed to move in it; without any the text says why."""
    try:
        devices = list_device_snapshots(read_snapshot(path))
    except (OSError, TraceError) as error:
        return (), clean(str(error))
    if not devices:
        return (), f"{clean(path.name)}: no memory was reserved when the snapshot was made"
    return tuple(map(_prepare, devices)), ""


def _prepare(device: DeviceSnapshot) -> ShownSnapshot:
    _ = device.totals
    if device.history is None:
        return ShownSnapshot(device, np.zeros(0, np.int64), -1)
    _ = device.reserved_curve, device.lifetimes  # computed here, not while a frame is painted
    time = np.maximum.accumulate(device.history.time)
    return ShownSnapshot(device, time - time[0], device.find_peak())


def find_rows(shown: ShownSnapshot, query: SnapshotQuery) -> RowsRead:
    """Find the rows of a list at an entry of the history."""
    device = shown.device
    state = None if device.history is None else device.find_state(query.position)
    if query.shown in (SnapshotList.LINE, SnapshotList.STACK):
        rows = _list_groups(device, state, SnapshotGroupBy(query.shown.value))
    elif query.shown is SnapshotList.ALLOCATIONS:
        rows = _list_allocations(device, state)
    elif query.shown is SnapshotList.SEGMENTS:
        rows = _list_segments(device)
    elif query.shown is SnapshotList.FAILURES:
        rows = _list_failures(device)
    else:
        rows = _list_findings(device)
    return RowsRead(query, state, rows)


def _list_groups(device: DeviceSnapshot, state: SnapshotState | None, by: SnapshotGroupBy) -> list[SnapshotRow]:
    groups = device.group_blocks(by) if state is None else device.group_alive(state, by)
    total = device.totals.requested if state is None else state.requested
    rows = []
    for group in groups[:MAX_ROWS]:
        numbers = (
            format_bytes(group.bytes),
            format_part(group.bytes, total),
            f"{group.count:,}",
            format_bytes(group.largest),
        )
        rows.append(_build_row(numbers, group.label.replace("\n", " < ")))
    return [*rows, *_list_rest(total, sum(group.bytes for group in groups[:MAX_ROWS]), state, 4)]


def _list_allocations(device: DeviceSnapshot, state: SnapshotState | None) -> list[SnapshotRow]:
    blocks, history = device.snapshot.blocks, device.history
    rows = []
    if state is None or history is None:
        held = device.blocks[blocks.state[device.blocks] == BlockState.ALLOCATED]
        held = held[np.argsort(-blocks.requested[held], kind="stable")][:MAX_ROWS]
        total, shown = device.totals.requested, int(blocks.requested[held].sum())
        for block in held.tolist():
            size = int(blocks.requested[block])
            rows.append(_build_allocation(size, total, NOT_SEEN, blocks.frames[block]))
    else:
        entries = state.alive[:MAX_ROWS]
        total, shown = state.requested, int(history.size[entries].sum())
        for entry in entries.tolist():
            since = format_duration(int(history.time[entry] - history.time[0]))
            rows.append(_build_allocation(int(history.size[entry]), total, since, history.frames[entry]))
    return [*rows, *_list_rest(total, shown, state, 3)]


def _build_allocation(size: int, total: int, since: str, frames: object) -> SnapshotRow:
    found = frames if isinstance(frames, list) else ()
    stack = clean(format_stack(found).replace("\n", " < "))
    cells = (format_bytes(size), format_part(size, total), since, clean(find_line(found)) or "(no stack recorded)")
    return SnapshotRow(cells, f"{format_bytes(size)} since {since} · {stack or '(no stack recorded)'}")


def _list_rest(total: int, shown: int, state: SnapshotState | None, columns: int) -> list[SnapshotRow]:
    """List what the rows leave out: what is older than the history, and what is beyond MAX_ROWS."""
    nothing = (NOT_SEEN,) * (columns - 2)
    older = 0 if state is None else state.older
    rows = []
    if older:
        rows.append(_build_row((format_bytes(older), format_part(older, total), *nothing), "before the history begins"))
    rest = total - older - shown
    if rest > 0:
        rows.append(_build_row((format_bytes(rest), format_part(rest, total), *nothing), "all smaller ones"))
    return rows


def _list_segments(device: DeviceSnapshot) -> list[SnapshotRow]:
    segments = device.snapshot.segments
    rows = []
    for row in device.segments[:MAX_ROWS].tolist():
        size, used = int(segments.size[row]), int(device.segment_allocated[row])
        count = int(segments.first[row + 1] - segments.first[row])
        kind = clean(segments.kind[row]) + (", expandable" if segments.is_expandable[row] else "")
        stream = f"{int(segments.stream[row]):#x}" if segments.stream[row] else "default"
        numbers = (format_bytes(size), format_part(used, size), format_bytes(size - used), f"{count:,}")
        largest, number = format_bytes(int(device.segment_largest_free[row])), format_number(count, "block")
        rows.append(
            SnapshotRow(
                (*numbers, f"{draw_segment(device, row)} {stream:<7} {kind}"),
                f"{format_bytes(size)} at {int(segments.address[row]):#x} · {format_bytes(used)} in use in {number} · "
                f"largest free block {largest} · stream {stream} · {kind}",
            )
        )
    return rows


def draw_segment(device: DeviceSnapshot, segment: int) -> str:
    """Draw where the blocks in use lie in a segment: MAP_CELLS marks, the fuller the darker."""
    segments, blocks = device.snapshot.segments, device.snapshot.blocks
    rows = slice(int(segments.first[segment]), int(segments.first[segment + 1]))
    size = int(segments.size[segment])
    used = np.where(blocks.state[rows] == BlockState.ALLOCATED, blocks.size[rows], 0)
    ends = np.cumsum(blocks.size[rows])
    edges = np.linspace(0, max(size, 1), MAP_CELLS + 1)
    filled = np.interp(edges, np.concatenate([[0], ends]), np.concatenate([[0], np.cumsum(used)]))
    shares = np.diff(filled) / (max(size, 1) / MAP_CELLS)
    last = len(_MAP_MARKS) - 1
    levels = np.where(shares > 1 - 1e-9, last, np.where(shares <= 0, 0, np.clip(np.ceil(shares * last), 1, last - 1)))
    return "".join(_MAP_MARKS[level] for level in levels.astype(int).tolist())


def _list_failures(device: DeviceSnapshot) -> list[SnapshotRow]:
    rows = []
    for failure in device.list_failures():
        left = NOT_SEEN if failure.device_free < 0 else format_bytes(failure.device_free)
        when = f"at {format_duration(failure.time)}"
        stack = clean(failure.stack.replace("\n", " < ")) or "(no stack recorded)"
        numbers = (format_bytes(failure.size), left, format_bytes(failure.requested), format_bytes(failure.reserved))
        rows.append(
            SnapshotRow((*numbers, f"{when} · {stack}"), f"{format_bytes(failure.size)} asked for {when} · {stack}")
        )
    return rows


def _list_findings(device: DeviceSnapshot) -> list[SnapshotRow]:
    rows = []
    for finding in find_snapshot_findings(device):
        text = clean(
            f"{finding.id}: {finding.seen} → {finding.action}" + (f" · {finding.code}" if finding.code else "")
        )
        rows.append(SnapshotRow((format_bytes(finding.saved) if finding.saved else NOT_SEEN, text), text))
    return rows


def _build_row(numbers: tuple[str, ...], text: str) -> SnapshotRow:
    label = clean(text)
    return SnapshotRow((*numbers, label), " · ".join(part for part in (numbers[0], label) if part))
