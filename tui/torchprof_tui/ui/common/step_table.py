"""Lay out the rows of an event over the steps as texts, for the command line and the chain panel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.name_display import clean, shorten

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.step_rows import StepRows

OUTLIER_MARK = "*"  # behind a value that is far from the median of all steps
STATISTICS = ("mean", "median", "p5", "p95")  # the rows above those of the steps

KERNEL_TITLE = "kernel"

_TITLES = {
    "first_op_gap": "gap",
    "op_gap": "to own op",
    "dispatch": "dispatch",
    "launch_latency": "launch latency",
    "queue_delay": "queue",
    "kernel_time": KERNEL_TITLE,
    "duration": "event",
}


@record(slots=False)
class StepTable:
    """`columns`: (title, whether it has numbers). `rows`: STATISTICS, then the steps. `notes`: sentences."""

    columns: list[tuple[str, bool]]
    rows: list[list[str]]
    notes: list[str]


def build_step_table(found: StepRows) -> StepTable:
    """Build the table: columns that no step has, or that repeat another one, are left out."""
    shown = [name for name in _TITLES if name in found.statistics]
    if all(row.op_gap == row.first_op_gap for row in found.rows):
        shown = [name for name in shown if name != "op_gap"]
    columns = [("step", False), ("first op", False), *((_TITLES[name], True) for name in shown)]
    rows = [
        [label, "", *(f"{format_duration(getattr(found.statistics[name], label))} " for name in shown)]
        for label in STATISTICS
    ]
    for index, row in enumerate(found.rows):
        cells = [clean(row.step.name), shorten(clean(row.first_op))]
        for name in shown:
            value = getattr(row, name)
            mark = OUTLIER_MARK if (index, name) in found.outliers else " "
            cells.append("" if value is None else f"{format_duration(value)}{mark}")
        rows.append(cells)
    return StepTable(columns, rows, _build_notes(found))


def _build_notes(found: StepRows) -> list[str]:
    """Build the sentences above the table: what is typical, why a kernel varies, and what the columns leave out."""
    spread = [
        f"{label} {text}"
        for name, label in (("kernel_time", "kernel"), ("first_op_gap", "gap"), ("launch_latency", "launch latency"))
        if (text := found.describe_spread(name))
    ]
    notes = [" · ".join(spread)] if spread else []
    if found.explanation:
        notes.append(f"the kernel's time varies: {found.explanation}")
    if found.outliers:
        notes.append(f"{OUTLIER_MARK} far from the median of all steps")
    if found.missing:
        numbers = ", ".join(f"#{step.number}" for step in found.missing[:8])
        more = f" and {len(found.missing) - 8:,} more" if len(found.missing) > 8 else ""
        notes.append(f"not in the steps {numbers}{more}")
    return notes
