"""Format what is alive in memory as cells: the same on the screens and in `torchprof-tui memory`."""

from __future__ import annotations

from torchprof_tui.analysis.memory.memory_history import UNACCOUNTED, MemoryGroup
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.number_format import format_share, format_value

NOT_SEEN = "–"


def format_bytes(size: int) -> str:
    return format_value(size, "bytes")


def format_part(part: int, total: int) -> str:
    """Format a part as its share of the total."""
    return format_share(part / total) if total else NOT_SEEN


def format_moment(time: int | None, otherwise: str) -> str:
    """Format a time of the trace, or what stands for one that is not recorded."""
    return otherwise if time is None else format_duration(time)


def list_group_cells(group: MemoryGroup, total: int) -> tuple[str, ...]:
    """Format a group: bytes, share, number, since, until, what."""
    accounted = group.label != UNACCOUNTED
    return (
        format_bytes(group.bytes),
        format_part(group.bytes, total),
        f"{len(group.lifetimes):,}" if len(group.lifetimes) else NOT_SEEN,
        format_moment(group.since, "before") if accounted else NOT_SEEN,
        format_moment(group.until, "end") if accounted else NOT_SEEN,
        clean(group.label),
    )
