"""Format matched ops, modules or kernels as a table of at most 80 columns; its rows sum to the total."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchprof_tui.analysis.compare.comparison import (
    ROW_LEGEND,
    ROW_MARKS,
    describe_row,
    format_calls,
    format_change,
    list_largest_changes,
)
from torchprof_tui.analysis.compare.matched_rows import ComparedRow, ComparedRows, RowStatus
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.name_display import truncate

MAX_ROWS = 12
"""Rows that are shown; the others are added up as one, and --json has all."""

_WIDTH = 80
_NAME_CELLS, _CALLS_CELLS, _TIME_CELLS, _CHANGE_CELLS = 29, 9, 8, 9


def format_matched_rows(matched: ComparedRows) -> Iterator[str]:
    """Format rows by the larger of their two changes, what could not be matched, and the total; times of one step."""
    titles = ("GPU: A", "B", "change", "CPU self") if matched.total.on_gpu else ("CPU: A", "B", "change")
    yield _format_cells(f"per step, by {matched.by}", "calls", *titles)
    shown = list_largest_changes(matched)[:MAX_ROWS]
    for row in shown:
        label = f"{ROW_MARKS.get(row.status, ' ')} {clean(describe_row(row, matched.by))}"
        if len(label) > _NAME_CELLS and row.status is RowStatus.CHANGED:
            yield truncate(label, _WIDTH)  # both names matter: they get a line of their own
            label = ""
        elif len(label) > _NAME_CELLS and matched.by == "module":
            label = f"  …{label[len(label) - _NAME_CELLS + 3 :]}"  # the end says which layer it is
        yield _format_row(label, [row])
    rest = [row for row in matched.rows if row not in shown]
    if rest:
        yield _format_row(f"  {len(rest)} other row{'s' if len(rest) > 1 else ''}", rest)
    if any((matched.not_matched.sums_a.calls, matched.not_matched.sums_b.calls)):
        yield _format_row("  GPU work without its launch", [matched.not_matched])
    yield _format_row("  total", [matched.total])
    if any(row.status in ROW_MARKS for row in shown):
        yield ROW_LEGEND
    if matched.is_merged:
        yield "(too many calls: those of one name below one caller were matched as one)"


def _format_row(label: str, rows: Sequence[ComparedRow]) -> str:
    calls = [sum(row.calls_a for row in rows), sum(row.calls_b for row in rows)]
    cpu = [sum(row.cpu_ns_a for row in rows), sum(row.cpu_ns_b for row in rows)]
    gpu = [sum(row.gpu_ns_a for row in rows), sum(row.gpu_ns_b for row in rows)]
    times, others = (gpu, [cpu]) if rows[0].on_gpu else (cpu, [])
    return _format_cells(
        label,
        format_calls(calls[0]) if calls[0] == calls[1] else "→".join(map(format_calls, calls)),
        *(format_duration(time) if time else "-" for time in times),
        *(format_change(pair[1] - pair[0]) for pair in [times, *others]),
    )


def _format_cells(label: str, calls: str, a: str, b: str, *changes: str) -> str:
    name = truncate(clean(label), _NAME_CELLS)
    times = f"{a:>{_TIME_CELLS}} {b:>{_TIME_CELLS}}" + "".join(f" {change:>{_CHANGE_CELLS}}" for change in changes)
    return f"{name:<{_NAME_CELLS}} {calls:>{_CALLS_CELLS}} {times}".rstrip()
