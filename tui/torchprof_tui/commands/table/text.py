"""Print a sheet as text: coloured headings on a terminal, plain into a pipe."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from torchprof_tui.analysis.table.sheets import Field, Sheet, Unit, format_spans_note
from torchprof_tui.analysis.table.table_reading import describe_row
from torchprof_tui.commands.common.tables import create_console
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_share, format_value

NAME_CELLS = 60
NARROW_NAME_CELLS = 24

_OPTIONAL_COLUMNS = (
    ("cpu_share", "gpu_share"),
    ("self_cpu_share", "peak_share"),
    ("cpu_avg", "gpu_avg", "min", "median"),
    ("self_gpu_share", "device", "max_gb_s"),
    ("cpu", "flops", "class"),
)
"""Columns dropped on a narrow terminal, in this order; `--json` and a pipe have all."""

_OPTIONAL_STEP_COLUMNS = (
    ("cpu_share", "gpu_share", "self_cpu_share", "self_gpu_share", "cpu_avg", "gpu_avg"),
    ("self_cpu", "self_gpu", "gpu"),
    ("cpu", "calls"),
    ("token_p95", "kernels_per_token", "kv_length"),
    ("cpu_per_token", "gap_p50"),
    ("step_p95", "batch"),
)
"""The same for steps of a serving engine."""

_PREFIXES = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6}


def print_sheet(sheet: Sheet, work: Sequence[int], spans: Sequence[int], limit: int | None) -> None:
    """Print rows of a sheet on stdout: those of work, then those of annotations, at most `limit` of each; totals."""
    console = create_console()
    shown_work, shown_spans = list(work[:limit]), list(spans[:limit])
    rows = [*shown_work, *shown_spans]
    cells = {field.key: [_format_cell(sheet, field, row) for row in rows] for field in sheet.fields}
    fields, width = _fit_columns(sheet.fields, cells, console.width)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for field in fields:
        table.add_column(field.title, justify="left" if field.unit is Unit.TEXT else "right", no_wrap=True)
    for place in range(len(rows)):
        if place == len(shown_work):
            more = len(work) - len(shown_work)
            table.add_row(Text(f"… {more:,} more, then annotations:" if more else "annotations:", style="dim"))
        shown = [(field.unit, cells[field.key][place]) for field in fields]
        table.add_row(*(Text(truncate(cell, width) if unit is Unit.TEXT else cell) for unit, cell in shown))
    console.print(table)
    omitted = len(work) + len(spans) - len(rows)
    if omitted:
        console.print(Text(f"and {omitted:,} more rows (--limit 0 shows all)", style="dim"))
    if rows and (reading := describe_row(sheet, rows[0])):
        console.print(Text(f"{clean(sheet.displays[rows[0]])}: {reading}"))
    for total in (
        *sheet.totals,
        *([sheet.reading] if sheet.reading else []),
        *([format_spans_note(sheet)] if shown_spans else []),
    ):
        console.print(total)


def _fit_columns(fields: Sequence[Field], cells: dict[str, list[str]], width: int) -> tuple[list[Field], int]:
    """Fit columns into a width; return (columns, cells per text column). Texts shrink first, then columns go."""
    kept = list(fields)
    is_serving = any(field.key in ("steps", "kind") for field in fields)
    for dropped in ((), *(_OPTIONAL_STEP_COLUMNS if is_serving else _OPTIONAL_COLUMNS)):
        kept = [field for field in kept if field.key not in dropped]
        texts = [field for field in kept if field.unit is Unit.TEXT]
        used = sum(max(len(field.title), *map(len, cells[field.key]), 0) + 1 for field in kept if field not in texts)
        room = (width - used) // max(len(texts), 1) - 1
        if room >= NARROW_NAME_CELLS:
            break
    return kept, min(max(room, NARROW_NAME_CELLS), max(NAME_CELLS, room // 2))


def _format_cell(sheet: Sheet, field: Field, row: int) -> str:
    value = sheet.displays[row] if field.key == "name" else sheet.columns[field.key][row]
    if isinstance(value, str):
        return clean(value.replace("\n", " < "))
    number = float(value)
    if math.isnan(number):
        return "–"
    if not number and field.unit in (Unit.NS, Unit.SHARE):
        return ""
    if field.unit is Unit.NS:
        return format_duration(number)
    if field.unit is Unit.SHARE:
        return format_share(number)
    if field.unit is Unit.BYTES:
        return format_value(number, "bytes")
    if field.unit is Unit.FLOPS:
        return next(
            (f"{number / size:.2f} {name}" for name, size in _PREFIXES.items() if number >= size), f"{number:,.0f}"
        )
    if field.unit is Unit.NUMBER:
        return f"{number:.3g}"
    return f"{number:,.0f}" if field.unit is Unit.COUNT else f"{number:,.1f}"
