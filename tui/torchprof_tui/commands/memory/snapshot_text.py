"""Print a snapshot of the allocator as text."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from torchprof_tui.analysis.memory.findings.allocator_findings import find_snapshot_findings
from torchprof_tui.analysis.memory.snapshots.device_snapshot import (
    DeviceSnapshot,
    OutOfMemory,
    SnapshotGroupBy,
    SnapshotState,
)
from torchprof_tui.commands.common.tables import ConsoleTable, create_console
from torchprof_tui.commands.memory.text import MAX_TEXT_CELLS, format_bytes, print_findings
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.common.number_format import format_share

_MAX_FRAMES = 8
"""Frames of a failed allocation that are printed."""


def print_snapshot(
    devices: list[DeviceSnapshot],
    device: DeviceSnapshot,
    state: SnapshotState | None,
    by: SnapshotGroupBy,
    limit: int | None,
) -> None:
    """Print the totals, failures, what is alive by line or stack, the segments and the findings of one device."""
    console = create_console()
    _print_totals(console, devices, device)
    for failure in device.list_failures():
        _print_failure(console, failure)
    console.print()
    groups = device.group_blocks(by) if state is None else device.group_alive(state, by)
    if state is None:
        total, heading = device.totals.requested, "When the snapshot was made"
    else:
        total = state.requested
        peak = state.position == device.find_peak()
        heading = f"At {format_duration(state.time)} of the history{', the peak' if peak else ''}"
        heading += f" ({format_bytes(state.reserved)} reserved)"
    console.print(Text(f"{heading}: {format_bytes(total)} requested", style="bold"))
    if state is not None and state.surplus:
        more = format_bytes(state.surplus)
        console.print(f"the history does not agree with the blocks of the snapshot: it has {more} more")
    table = ConsoleTable(
        f"by {by.value}",
        ("bytes", "right"),
        ("share", "right"),
        ("number", "right"),
        ("largest", "right"),
        (by.value, "left"),
        max_text_cells=MAX_TEXT_CELLS if console.is_terminal else None,
    )
    for group in groups[:limit]:
        table.add_cells(
            format_bytes(group.bytes),
            format_share(group.bytes / total) if total else "–",
            f"{group.count:,}",
            format_bytes(group.largest),
            clean(group.label.replace("\n", " < ")),
        )
    if state is not None and state.older:
        table.add_cells(
            format_bytes(state.older),
            format_share(state.older / total) if total else "–",
            "–",
            "–",
            "before the history begins",
        )
    console.print(table)
    if limit is not None and len(groups) > limit:
        console.print(Text(f"and {len(groups) - limit:,} more (--top 0 shows all)", style="dim"))
    _print_segments(console, device, limit)
    print_findings(console, find_snapshot_findings(device))


def _print_totals(console: Console, devices: list[DeviceSnapshot], device: DeviceSnapshot) -> None:
    totals = device.totals
    console.print(
        f"{device.label}: {format_bytes(totals.reserved)} reserved in {totals.segments:,} segments = "
        f"{format_bytes(totals.allocated)} allocated + {format_bytes(totals.pending)} pending + "
        f"{format_bytes(totals.free)} free"
    )
    if totals.free and totals.fragmentation is not None:
        console.print(
            f"free: {totals.free_blocks:,} blocks, the largest {format_bytes(totals.largest_free)}; "
            f"{format_share(totals.fragmentation)} of it lies in smaller ones; "
            f"{format_bytes(totals.unused)} in segments without a block in use (empty_cache() returns them)"
        )
    if device.history is None:
        console.print(
            "no history: call torch.cuda.memory._record_memory_history() before, or record with "
            "torchprof-tui run --memory-snapshot"
        )
    others = [each.label.replace(" ", "") for each in devices if each is not device]
    if others:
        console.print(Text(f"other devices: {', '.join(others)} (--device)", style="dim"))


def _print_failure(console: Console, failure: OutOfMemory) -> None:
    left = "" if failure.device_free < 0 else f", the device had {format_bytes(failure.device_free)} left"
    console.print()
    console.print(
        Text(
            f"Out of memory at {format_duration(failure.time)}: {format_bytes(failure.size)} asked for{left}; "
            f"{format_bytes(failure.requested)} in use of {format_bytes(failure.reserved)} reserved",
            style="bold",
        )
    )
    frames = failure.stack.splitlines()
    for frame in frames[:_MAX_FRAMES]:
        console.print(f"  {clean(frame)}")
    if len(frames) > _MAX_FRAMES:
        console.print(Text(f"  … {len(frames) - _MAX_FRAMES} more frames (--json has them)", style="dim"))


def _print_segments(console: Console, device: DeviceSnapshot, limit: int | None) -> None:
    segments = device.snapshot.segments
    table = ConsoleTable(
        "segments",
        ("size", "right"),
        ("allocated", "right"),
        ("largest free", "right"),
        ("blocks", "right"),
        ("stream", "right"),
        ("kind", "left"),
    )
    for row in device.segments[:limit].tolist():
        table.add_cells(
            format_bytes(int(segments.size[row])),
            format_bytes(int(device.segment_allocated[row])),
            format_bytes(int(device.segment_largest_free[row])),
            f"{int(segments.first[row + 1] - segments.first[row]):,}",
            str(int(segments.stream[row])),
            clean(segments.kind[row]) + (", expandable" if segments.is_expandable[row] else ""),
        )
    console.print()
    console.print(table)
    if limit is not None and len(device.segments) > limit:
        console.print(Text(f"and {len(device.segments) - limit:,} more segments (--top 0 shows all)", style="dim"))
