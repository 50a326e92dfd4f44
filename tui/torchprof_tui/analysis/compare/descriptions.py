"""Describe what a comparison found in words: sides, ranks, causes, matched rows. For commands and screens."""

from __future__ import annotations

from collections.abc import Sequence

from torchprof_tui.analysis.compare.comparison_verdict import ChangeCause
from torchprof_tui.analysis.compare.matched_rows import ComparedRow, ComparedRows, RowStatus
from torchprof_tui.analysis.compare.rank_changes import RankChange
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.time_format import format_duration

ROW_MARKS: dict[RowStatus, str] = {RowStatus.ADDED: "+", RowStatus.REMOVED: "-", RowStatus.CHANGED: "*"}
ROW_LEGEND = "(* other names at the same place, + only in B, - only in A)"


def describe_steps(side: SideAnalysis) -> str:
    """Describe which steps of a side are compared, and how long one takes."""
    steps, duration = side.side.steps, (side.span[1] - side.span[0]) / side.side.step_count
    if not steps:
        return f"in one piece: {format_duration(duration)}"
    first, last = steps[0].number, steps[-1].number
    numbers = f"step #{first}" if len(steps) == 1 else f"{len(steps)} steps, #{first} to #{last}"
    return f"{numbers}: {format_duration(duration)} a step"


def describe_ranks(ranks: Sequence[RankChange]) -> str:
    """Describe how much the step of each rank changed, "" for a single one."""
    if not ranks:
        return ""
    least, most = min(ranks, key=lambda change: change.delta), max(ranks, key=lambda change: change.delta)
    words = [f"{'+' if each.delta > 0 else ''}{format_duration(each.delta)}" for each in (least, most)]
    return (
        f"rank {ranks[0].rank} stands for its run; over {len(ranks)} ranks a step changes by {words[0]} "
        f"(rank {least.rank}) to {words[1]} (rank {most.rank})"
    )


def describe_cause(cause: ChangeCause) -> str:
    """Describe a cause in one line: the change of the part, the pattern and the line behind it."""
    part = cause.part
    change = f"{'+' if part.delta > 0 else ''}{format_duration(part.delta)}"
    noise = ", noise unknown" if part.noise is None else ", within the noise" if part.is_within_noise else ""
    words = f"{part.label}: {change}{noise} ({format_duration(part.a)} → {format_duration(part.b)})"
    if cause.pattern is not None:
        words += f"; in {cause.side.upper()}: {cause.pattern.pattern.title}"
    if cause.line:
        words += f", at {cause.line}"
    return words


def list_largest_changes(matched: ComparedRows) -> list[ComparedRow]:
    """List the rows that changed, by the larger of their changes of GPU and CPU time."""
    changed = [row for row in matched.rows if row.gpu_delta_ns or row.cpu_delta_ns]
    return sorted(changed, key=lambda row: -max(abs(row.gpu_delta_ns), abs(row.cpu_delta_ns)))


def describe_row(row: ComparedRow, by: str) -> str:
    """Describe a row by its name, decoded where it is that of a kernel; both names where they differ."""
    names = [decode_kernel_name(name).display or name for name in (row.name_a, row.name_b)] if by == "kernel" else []
    text = row.text
    if names:
        text = names[0] if names[0] == names[1] else " → ".join(name for name in names if name)
    return text


def format_change(time: float) -> str:
    """Format a difference of times, ns, with its sign; "-" for none."""
    return f"{'+' if time > 0 else ''}{format_duration(time)}" if round(time) else "-"


def format_calls(calls: float) -> str:
    """Format the calls of one step."""
    return f"{calls:.0f}" if calls == round(calls) or calls >= 100 else f"{calls:.1f}"
