"""Print what is alive in memory, at the peak or at any time, of a trace or a snapshot: `torchprof-tui memory`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from torchprof_tui.analysis.memory.categories import RULES, Category
from torchprof_tui.analysis.memory.device_memory import UNKNOWN_BYTES
from torchprof_tui.analysis.memory.findings.allocator_findings import find_snapshot_findings
from torchprof_tui.analysis.memory.findings.lifetime_findings import list_memory_findings
from torchprof_tui.analysis.memory.findings.memory_finding import MemoryFinding, format_size
from torchprof_tui.analysis.memory.memory_history import (
    DeviceHistory,
    GroupBy,
    MemoryGroup,
    MemoryHistory,
    MemoryState,
    build_memory_history,
    explain_missing_addresses,
    explain_missing_memory,
)
from torchprof_tui.analysis.memory.producers import Phase
from torchprof_tui.analysis.memory.snapshots.device_snapshot import (
    DeviceSnapshot,
    SnapshotGroupBy,
    SnapshotState,
    list_device_snapshots,
)
from torchprof_tui.analysis.memory.snapshots.snapshot_file import is_snapshot_file, read_snapshot
from torchprof_tui.answers.memory import AliveMemory, build_alive_memory, build_snapshot, build_stacked_curve
from torchprof_tui.answers.pictures.memory_curve import COLUMNS, draw_memory_curve
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs, select_rank
from torchprof_tui.commands.common.output import print_answer
from torchprof_tui.commands.common.picture_file import check_picture, write_picture
from torchprof_tui.commands.common.tables import ConsoleTable, create_console
from torchprof_tui.commands.memory import DEFAULT_ROWS, MemoryOptions
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration, parse_time
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.memory.memory_text import (
    NOT_SEEN,
    format_bytes,
    format_moment,
    format_part,
    list_group_cells,
)

if TYPE_CHECKING:
    from rich.console import Console


PEAK, END = "peak", "end"


def run(options: MemoryOptions) -> int:
    is_snapshot = [os.path.isfile(spec) and is_snapshot_file(spec) for spec in options.trace]
    if any(is_snapshot):
        if len(options.trace) > 1:
            raise UsageError("give one snapshot at a time")
        return _run_snapshot(options)
    picture = None if options.output is None else check_picture(options.output)
    loaded = load_specs(options.trace, cache=not options.no_cache)
    if picture is not None:
        history, device, _, _ = _choose_state(select_rank(loaded.trace, options.rank)[0], options)
        write_picture(picture, draw_memory_curve(build_stacked_curve(history.trace, device, COLUMNS)))
    if options.json:
        print_answer(answer_question(loaded.trace, options))
        return 0
    trace, rank = select_rank(loaded.trace, options.rank)
    chosen = _choose_state(trace, options)
    if rank is not None and options.rank is None:
        print(f"{rank.label}; another: --rank N", file=sys.stderr)
    print_state(*chosen, DEFAULT_ROWS if options.top is None else options.top or None)
    return 0


def answer_question(trace: Trace, options: MemoryOptions) -> AliveMemory:
    """Build the document of `--json` about an opened trace. Raises UsageError."""
    trace, rank = select_rank(trace, options.rank)
    history, device, state, by = _choose_state(trace, options)
    number, first = (None, 0) if rank is None else (rank.number, rank.first)
    return build_alive_memory(history, device, state, by, options.top or None, number, first)


def _choose_state(trace: Trace, options: MemoryOptions) -> tuple[MemoryHistory, DeviceHistory, MemoryState, GroupBy]:
    by = options.by or GroupBy.CATEGORY.value
    if by == SnapshotGroupBy.STACK.value:
        raise UsageError("--by stack: only a snapshot has stacks; of a trace, --by line")
    history = build_memory_history(trace)
    if history is None:
        raise UsageError(explain_missing_memory(trace))
    device: DeviceHistory | None = history.devices[0]
    if options.device is not None:
        device = history.find_device(options.device)
    if device is None:
        known = ", ".join(each.memory.label.replace(" ", "") for each in history.devices)
        raise UsageError(f"--device {options.device}: no memory was recorded of it; there is {known}")
    if options.at == PEAK:
        return history, device, device.find_peak(), GroupBy(by)
    time = int(device.memory.time[-1]) if options.at == END else _parse_at(options.at)
    return history, device, device.find_state(time), GroupBy(by)


def _parse_at(at: str) -> int:
    try:
        return parse_time(at)
    except ValueError as error:
        raise UsageError(f"--at {at}: {error}; or peak, or end") from error


def _run_snapshot(options: MemoryOptions) -> int:
    by = options.by or SnapshotGroupBy.LINE.value
    if by not in [each.value for each in SnapshotGroupBy]:
        raise UsageError(f"--by {by}: a snapshot knows lines and stacks only; record a trace with profile_memory=True")
    if options.output is not None:
        raise UsageError("-o: only the curve of a trace is drawn; for the screen of a snapshot: :export in the app")
    if options.rank is not None:
        raise UsageError("--rank: a snapshot is of one process; give the file of that rank")
    devices = list_device_snapshots(read_snapshot(options.trace[0]))
    if not devices:
        raise UsageError(f"{options.trace[0]}: the snapshot is empty: nothing was allocated on a GPU")
    wanted = (options.device or devices[0].label).lower().replace(" ", "")
    device = next((each for each in devices if each.label.lower().replace(" ", "") == wanted), None)
    if device is None:
        known = ", ".join(each.label.replace(" ", "") for each in devices)
        raise UsageError(f"--device {options.device}: not in this snapshot; there is {known}")
    state = None  # that of the time of the snapshot, where no history can answer
    if device.history is not None and options.at != END:
        state = device.find_state(
            device.find_peak() if options.at == PEAK else device.find_position(_parse_at(options.at))
        )
    elif options.at not in (PEAK, END):
        raise UsageError(
            f"--at {options.at}: this snapshot has no history; to record one, call "
            f"torch.cuda.memory._record_memory_history() before"
        )
    if options.json:
        print_answer(build_snapshot(devices, device, state, SnapshotGroupBy(by), options.top or None))
        return 0
    limit = DEFAULT_ROWS if options.top is None else options.top or None
    print_snapshot(devices, device, state, SnapshotGroupBy(by), limit)
    return 0


MAX_TEXT_CELLS = 60


def print_state(
    history: MemoryHistory, device: DeviceHistory, state: MemoryState, by: GroupBy, limit: int | None
) -> None:
    """Print the peak, what is alive by group, the largest allocations, findings, and the rules."""
    console = create_console()
    for each in history.devices:
        memory, at = each.memory, each.memory.peak
        sizes = f"peak {format_bytes(int(memory.allocated[at]))} at {format_duration(int(memory.time[at]))}"
        other = "" if each is device else f"   (--device {memory.label.replace(' ', '')})"
        console.print(f"{memory.label}: {sizes}{_format_reserved(int(memory.reserved[at]))}{other}")
    console.print()
    sizes = f"{format_bytes(state.allocated)} allocated{_format_reserved(state.reserved)}"
    console.print(f"At {format_duration(state.time)}: {sizes}", style="bold")
    groups = device.group_state(state, by)
    most = MAX_TEXT_CELLS if console.is_terminal else None
    columns = (">bytes", ">share", ">number", ">since", ">until", "what")
    table = ConsoleTable(f"by {by.value}", *columns, max_text_cells=most)
    for group in groups[:limit]:
        table.add_cells(*list_group_cells(group, state.allocated))
    console.print(table)
    _print_omitted(console, len(groups), limit, "groups")
    _print_allocations(console, device, state, limit)
    print_findings(console, list_memory_findings(device))
    _print_notes(console, device, state, groups if by is GroupBy.CATEGORY else [])


def _format_reserved(size: int) -> str:
    return "" if size == UNKNOWN_BYTES else f", {format_bytes(size)} reserved"


def _print_omitted(console: Console, count: int, limit: int | None, what: str) -> None:
    if limit is not None and count > limit:
        console.print(f"{what}: {count - limit:,} more (--top 0 shows all)", style="dim")


def _print_allocations(console: Console, device: DeviceHistory, state: MemoryState, limit: int | None) -> None:
    if not len(state.alive):
        return
    shown = state.alive[:limit]
    op, op_names = device.label_lifetimes(shown, GroupBy.OP)
    line, lines = device.label_lifetimes(shown, GroupBy.LINE)
    columns = (">bytes", ">since", ">until", "category", "phase", "op", "line")
    most = MAX_TEXT_CELLS // 2 if console.is_terminal else None
    table = ConsoleTable("largest allocations", *columns, max_text_cells=most)
    for row, lifetime in enumerate(shown.tolist()):
        table.add_cells(
            format_bytes(int(device.lifetimes.bytes[lifetime])),
            format_moment(device.since(lifetime), "before"),
            format_moment(device.until(lifetime), "end"),
            Category(int(device.category[lifetime])).label,
            Phase(int(device.phase[lifetime])).label,
            clean(op_names[op[row]]) or NOT_SEEN,
            clean(lines[line[row]]) or NOT_SEEN,
        )
    console.print()
    console.print(table)
    _print_omitted(console, len(state.alive), limit, "allocations")


def _print_notes(console: Console, device: DeviceHistory, state: MemoryState, groups: list[MemoryGroup]) -> None:
    """Print what the numbers leave open, and the rules of the categories that are listed."""
    notes = []
    reason = explain_missing_addresses(device.memory)
    if reason is not None:
        notes.append(f"cannot tell what is alive: {reason}")
    notes += [
        f"{format_bytes(part.bytes)} from before the recording: {part.category.label} ({part.rule})"
        for part in state.older.parts
    ]
    if not device.producers.has_frames:
        notes.append("no lines and modules: record them with with_stack=True (run --with-stack)")
    if state.unaccounted and reason is None:
        notes.append(f"{format_bytes(state.unaccounted)} of the recorded total are in no record: records are missing")
    listed = {group.label for group in groups}
    notes += [f"{category.label}: {rule}" for category, rule in RULES.items() if category.label in listed]
    if notes:
        console.print()
    for note in notes:
        console.print(clean(note), style="dim")


def print_findings(console: Console, findings: list[MemoryFinding]) -> None:
    """Print each finding: what was seen, what to do and what that saves at the peak, a line to paste."""
    for finding in findings:
        console.print()
        console.print(f"{finding.id}: {clean(finding.seen)}")
        saves = f" (saves at most {format_size(finding.saved)} at the peak)" if finding.saved else ""
        console.print(f"  → {finding.action}{saves}")
        if finding.code:
            console.print(f"  {finding.code}", style="dim")


_MAX_FRAMES = 8  # frames of a failed allocation that are printed


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
        left = "" if failure.device_free < 0 else f", the device had {format_bytes(failure.device_free)} left"
        console.print()
        console.print(
            f"Out of memory at {format_duration(failure.time)}: {format_bytes(failure.size)} asked for{left}; "
            f"{format_bytes(failure.requested)} in use of {format_bytes(failure.reserved)} reserved",
            style="bold",
        )
        frames = failure.stack.splitlines()
        for frame in frames[:_MAX_FRAMES]:
            console.print(f"  {clean(frame)}")
        if len(frames) > _MAX_FRAMES:
            console.print(f"  … {len(frames) - _MAX_FRAMES} more frames (--json has them)", style="dim")
    console.print()
    groups = device.group_blocks(by) if state is None else device.group_alive(state, by)
    if state is None:
        total, heading = device.totals.requested, "When the snapshot was made"
    else:
        total = state.requested
        peak = state.position == device.find_peak()
        heading = f"At {format_duration(state.time)} of the history{', the peak' if peak else ''}"
        heading += f" ({format_bytes(state.reserved)} reserved)"
    console.print(f"{heading}: {format_bytes(total)} requested", style="bold")
    if state is not None and state.surplus:
        more = format_bytes(state.surplus)
        console.print(f"the history does not agree with the blocks of the snapshot: it has {more} more")
    most = MAX_TEXT_CELLS if console.is_terminal else None
    table = ConsoleTable(f"by {by.value}", ">bytes", ">share", ">number", ">largest", by.value, max_text_cells=most)
    for group in groups[:limit]:
        share, label = format_part(group.bytes, total), clean(group.label.replace("\n", " < "))
        table.add_cells(format_bytes(group.bytes), share, f"{group.count:,}", format_bytes(group.largest), label)
    if state is not None and state.older:
        share = format_part(state.older, total)
        table.add_cells(format_bytes(state.older), share, NOT_SEEN, NOT_SEEN, "before the history begins")
    console.print(table)
    if limit is not None and len(groups) > limit:
        console.print(f"and {len(groups) - limit:,} more (--top 0 shows all)", style="dim")
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
        console.print(f"other devices: {', '.join(others)} (--device)", style="dim")


def _print_segments(console: Console, device: DeviceSnapshot, limit: int | None) -> None:
    segments = device.snapshot.segments
    table = ConsoleTable("segments", ">size", ">allocated", ">largest free", ">blocks", ">stream", "kind")
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
        console.print(f"and {len(device.segments) - limit:,} more segments (--top 0 shows all)", style="dim")
