"""Format matched ops, modules or kernels as a table of at most 80 columns; its rows sum to the total."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchprof_tui.analysis.compare.matched_rows import ComparedRow, ComparedRows, RowStatus
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.name_display import truncate

MAX_ROWS = 12
"""Rows that are shown; the others are added up as one, and --json has all."""

_WIDTH = 80
_NAME_CELLS, _CALLS_CELLS, _TIME_CELLS, _CHANGE_CELLS = 29, 9, 8, 9
_MARKS: dict[RowStatus, str] = {RowStatus.ADDED: "+", RowStatus.REMOVED: "-", RowStatus.CHANGED: "*"}
_LEGEND = "(* other names at the same place, + only in B, - only in A)"


def format_matched_rows(matched: ComparedRows) -> Iterator[str]:
    """Format rows by the larger of their two changes, what could not be matched, and the total; times of one step."""
    yield _format_cells(f"per step, by {matched.by}", "calls", "GPU: A", "B", "change", "CPU self")
    changed = [row for row in matched.rows if row.gpu_delta_ns or row.cpu_delta_ns]
    shown = sorted(changed, key=lambda row: -max(abs(row.gpu_delta_ns), abs(row.cpu_delta_ns)))[:MAX_ROWS]
    for row in shown:
        label = f"{_MARKS.get(row.status, ' ')} {clean(_describe_row(row, matched.by))}"
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
    if any(row.status in _MARKS for row in shown):
        yield _LEGEND
    if matched.is_merged:
        yield "(too many calls: those of one name below one caller were matched as one)"


def _describe_row(row: ComparedRow, by: str) -> str:
    """Describe a row by its name, decoded where it is that of a kernel; both names where they differ."""
    names = [decode_kernel_name(name).display or name for name in (row.name_a, row.name_b)] if by == "kernel" else []
    text = row.text
    if names:
        text = names[0] if names[0] == names[1] else " → ".join(name for name in names if name)
    return text


def _format_row(label: str, rows: Sequence[ComparedRow]) -> str:
    calls = [sum(row.calls_a for row in rows), sum(row.calls_b for row in rows)]
    gpu = [sum(row.gpu_ns_a for row in rows), sum(row.gpu_ns_b for row in rows)]
    cpu = sum(row.cpu_delta_ns for row in rows)
    times = [format_duration(time) if time else "-" for time in gpu]
    return _format_cells(
        label,
        _format_calls(calls[0]) if calls[0] == calls[1] else "→".join(map(_format_calls, calls)),
        times[0],
        times[1],
        _format_change(gpu[1] - gpu[0]),
        _format_change(cpu),
    )


def _format_change(time: float) -> str:
    return f"{'+' if time > 0 else ''}{format_duration(time)}" if round(time) else "-"


def _format_calls(calls: float) -> str:
    return f"{calls:.0f}" if calls == round(calls) or calls >= 100 else f"{calls:.1f}"


def _format_cells(label: str, calls: str, a: str, b: str, change: str, cpu: str) -> str:
    name = truncate(clean(label), _NAME_CELLS)
    times = f"{a:>{_TIME_CELLS}} {b:>{_TIME_CELLS}} {change:>{_CHANGE_CELLS}} {cpu:>{_CHANGE_CELLS}}"
    return f"{name:<{_NAME_CELLS}} {calls:>{_CALLS_CELLS}} {times}".rstrip()
