"""Print what is alive in a trace as text."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from torchprof_tui.analysis.memory.categories import RULES, Category
from torchprof_tui.analysis.memory.device_memory import UNKNOWN_BYTES
from torchprof_tui.analysis.memory.findings.list_findings import list_memory_findings
from torchprof_tui.analysis.memory.findings.memory_finding import MemoryFinding, format_size
from torchprof_tui.analysis.memory.memory_history import (
    DeviceHistory,
    GroupBy,
    MemoryGroup,
    MemoryHistory,
    MemoryState,
    explain_missing_addresses,
)
from torchprof_tui.analysis.memory.passes import Phase
from torchprof_tui.commands.common.tables import ConsoleTable, create_console
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.common.number_format import format_share, format_value

MAX_TEXT_CELLS = 60
NOT_SEEN = "–"


def print_state(
    history: MemoryHistory, device: DeviceHistory, state: MemoryState, by: GroupBy, limit: int | None
) -> None:
    """Print the peak, what is alive by group, the largest allocations, findings, and the rules."""
    console = create_console()
    _print_peaks(console, history, device)
    reserved = "" if state.reserved == UNKNOWN_BYTES else f", {format_bytes(state.reserved)} reserved"
    console.print()
    console.print(
        Text(f"At {format_duration(state.time)}: {format_bytes(state.allocated)} allocated{reserved}", style="bold")
    )
    groups = device.group_state(state, by)
    table = ConsoleTable(
        f"by {by.value}", *_GROUP_COLUMNS, max_text_cells=MAX_TEXT_CELLS if console.is_terminal else None
    )
    for group in groups[:limit]:
        table.add_cells(*_format_group(group, state.allocated))
    console.print(table)
    _print_omitted(console, len(groups), limit, "groups")
    _print_allocations(console, device, state, limit)
    print_findings(console, list_memory_findings(device))
    _print_notes(console, device, state, groups if by is GroupBy.CATEGORY else [])


_GROUP_COLUMNS = (
    ("bytes", "right"),
    ("share", "right"),
    ("number", "right"),
    ("since", "right"),
    ("until", "right"),
    ("what", "left"),
)
_ALLOCATION_COLUMNS = (
    ("bytes", "right"),
    ("since", "right"),
    ("until", "right"),
    ("category", "left"),
    ("phase", "left"),
    ("op", "left"),
    ("line", "left"),
)


def format_bytes(size: int) -> str:
    return format_value(size, "bytes")


def _print_peaks(console: Console, history: MemoryHistory, device: DeviceHistory) -> None:
    for each in history.devices:
        memory = each.memory
        reserved = int(memory.reserved[memory.peak])
        got = "" if reserved == UNKNOWN_BYTES else f", {format_bytes(reserved)} reserved"
        console.print(
            f"{memory.label}: peak {format_bytes(int(memory.allocated[memory.peak]))} at "
            f"{format_duration(int(memory.time[memory.peak]))}{got}"
            + ("" if each is device else f"   (--device {memory.label.replace(' ', '')})")
        )


def _format_group(group: MemoryGroup, total: int) -> tuple[str, ...]:
    known = len(group.lifetimes) > 0
    return (
        format_bytes(group.bytes),
        format_share(group.bytes / total) if total else NOT_SEEN,
        f"{len(group.lifetimes):,}" if known else NOT_SEEN,
        _format_moment(group.since, "before") if known else NOT_SEEN,
        _format_moment(group.until, "end") if known else NOT_SEEN,
        clean(group.label),
    )


def _format_moment(time: int | None, otherwise: str) -> str:
    return otherwise if time is None else format_duration(time)


def _print_omitted(console: Console, count: int, limit: int | None, what: str) -> None:
    if limit is not None and count > limit:
        console.print(Text(f"{what}: {count - limit:,} more (--top 0 shows all)", style="dim"))


def _print_allocations(console: Console, device: DeviceHistory, state: MemoryState, limit: int | None) -> None:
    if not len(state.alive):
        return
    shown = state.alive[:limit]
    op, op_names = device.label_lifetimes(shown, GroupBy.OP)
    line, lines = device.label_lifetimes(shown, GroupBy.LINE)
    table = ConsoleTable(
        "largest allocations",
        *_ALLOCATION_COLUMNS,
        max_text_cells=MAX_TEXT_CELLS // 2 if console.is_terminal else None,
    )
    for row, lifetime in enumerate(shown.tolist()):
        table.add_cells(
            format_bytes(int(device.lifetimes.bytes[lifetime])),
            _format_moment(device.since(lifetime), "before"),
            _format_moment(device.until(lifetime), "end"),
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
        console.print(Text(clean(note), style="dim"))


def print_findings(console: Console, findings: list[MemoryFinding]) -> None:
    """Print each finding: what was seen, what to do and what that saves at the peak, a line to paste."""
    for finding in findings:
        console.print()
        console.print(Text(f"{finding.id}: {clean(finding.seen)}"))
        saves = f" (saves at most {format_size(finding.saved)} at the peak)" if finding.saved else ""
        console.print(Text(f"  → {finding.action}{saves}"))
        if finding.code:
            console.print(Text(f"  {finding.code}", style="dim"))
