"""Format the rows of a sheet as lines, with as many columns as fit into the width."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from rich.cells import cell_len

from torchprof_tui.analysis.table.sheets import Field, Sheet, Unit
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.event_styles import Palette
from torchprof_tui.ui.common.name_display import clean, shorten, truncate
from torchprof_tui.ui.common.number_format import format_share, format_value
from torchprof_tui.ui.common.painted_widget import TextRun

NAME_MIN_CELLS = 24
TEXT_CELLS = 26
_UNIT_CELLS = {
    Unit.COUNT: 10,
    Unit.NS: 11,
    Unit.SHARE: 8,
    Unit.BYTES: 11,
    Unit.GB_S: 9,
    Unit.FLOPS: 11,
    Unit.TFLOPS: 9,
}
_NARROW_TEXT_CELLS = {"device": 5, "class": 18, "step": 8, "dtype": 10}


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """The columns that fit into a width, each with its cells; the first is the name, which gets the remaining cells."""

    fields: tuple[Field, ...]
    cells: tuple[int, ...]


def fit_columns(sheet: Sheet, width: int, sort_key: str) -> ColumnLayout:
    """Choose columns from left to right while NAME_MIN_CELLS remain for the name; the sort column is always kept."""
    name_field, *fields = sheet.fields
    cells = {field.key: _column_cells(field) for field in fields}
    available = width - 2 - NAME_MIN_CELLS - cells.get(sort_key, 0)
    kept: list[Field] = []
    omitted = set()
    for field in fields:
        if field.key.removesuffix("_share") in omitted and field.key != sort_key:
            continue  # a share is meaningless without the column that it refers to
        if field.key == sort_key or cells[field.key] <= available:
            kept.append(field)
            available -= 0 if field.key == sort_key else cells[field.key]
        else:
            omitted.add(field.key)
    used = sum(cells[field.key] for field in kept)
    return ColumnLayout((name_field, *kept), (max(width - 2 - used, 8), *(cells[field.key] for field in kept)))


def _column_cells(field: Field) -> int:
    if field.unit is Unit.TEXT:
        return _NARROW_TEXT_CELLS.get(field.key, TEXT_CELLS)
    return max(_UNIT_CELLS[field.unit], len(field.title) + 3)


def format_header(layout: ColumnLayout, sort_key: str, descending: bool, palette: Palette) -> list[TextRun]:
    """Format the titles of the columns, with an arrow at the sort column."""
    runs: list[TextRun] = [("  ", palette.muted)]
    for column, (field, cells) in enumerate(zip(layout.fields, layout.cells, strict=True)):
        arrow = (" ▼" if descending else " ▲") if field.key == sort_key else ""
        separator = _text_separator(layout, column)
        title = separator + truncate(field.title + arrow, cells - 1 - len(separator))
        padding = " " * (cells - cell_len(title))
        text = title + padding if field.unit is Unit.TEXT else padding + title
        runs.append((text, palette.strong if arrow else palette.muted))
    return runs


def format_row(sheet: Sheet, row: int, layout: ColumnLayout, palette: Palette, selected: bool) -> list[TextRun]:
    """Format one row. Text from the trace is cleaned here."""
    runs: list[TextRun] = [("▶ " if selected else "  ", palette.accent)]
    name_style = palette.active if selected else palette.text
    for column, (field, cells) in enumerate(zip(layout.fields, layout.cells, strict=True)):
        style = name_style if column == 0 else palette.text
        value = sheet.columns[field.key][row]
        if field.unit is Unit.TEXT:
            separator = _text_separator(layout, column)
            text = clean(str(value).replace("\n", " < "))
            available = cells - 1 - len(separator)
            if cell_len(text) > available:
                text = truncate(shorten(text) if column == 0 else text, available)
            text = separator + text
            runs.append((text + " " * (cells - cell_len(text)), style))
        else:
            runs.append((f"{format_cell(value, field.unit):>{cells}}", style))
    return runs


def _text_separator(layout: ColumnLayout, column: int) -> str:
    """Return the space before a text column that follows a right-aligned number, "" for other columns."""
    fields = layout.fields
    return "  " if column and fields[column].unit is Unit.TEXT and fields[column - 1].unit is not Unit.TEXT else ""


def format_cell(value: object, unit: Unit) -> str:
    """Format a number; "" for unknown values (nan), and for a time or share of zero."""
    number = value.item() if isinstance(value, np.generic) else value
    assert isinstance(number, (int, float))
    if isinstance(number, float) and math.isnan(number):
        return ""
    if unit is Unit.NS:
        return format_duration(number) if number else ""
    if unit is Unit.SHARE:
        return format_share(number) if number else ""
    if unit is Unit.BYTES:
        return format_value(number, "bytes")
    if unit is Unit.COUNT:
        return f"{int(number):,}"
    if unit is Unit.FLOPS:
        return _format_si(number)
    return f"{number:.3g}"


def _format_si(number: float) -> str:
    for prefix in ("", "k", "M", "G", "T", "P"):
        if abs(number) < 1000 or prefix == "P":
            return f"{number:.3g} {prefix}".rstrip()
        number /= 1000
    return ""
