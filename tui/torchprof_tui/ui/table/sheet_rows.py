"""A sheet's rows as lines: columns as wide as they need to be, the ones that matter first where there is no room."""

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
    """The columns that fit into a width, each with its cells; the first is the name, with all that is left."""

    fields: tuple[Field, ...]
    cells: tuple[int, ...]


def fit_columns(sheet: Sheet, width: int, sort_key: str) -> ColumnLayout:
    """Columns from left to right as long as the name keeps its least; the sorted one is always there."""
    first, *others = sheet.fields
    wanted = {field.key: _column_cells(field) for field in others}
    room = width - 2 - NAME_MIN_CELLS - wanted.get(sort_key, 0)
    kept: list[Field] = []
    left_out = set()
    for field in others:
        if field.key.removesuffix("_share") in left_out and field.key != sort_key:
            continue  # a % says nothing without the column that it is of
        if field.key == sort_key or wanted[field.key] <= room:
            kept.append(field)
            room -= 0 if field.key == sort_key else wanted[field.key]
        else:
            left_out.add(field.key)
    used = sum(wanted[field.key] for field in kept)
    return ColumnLayout((first, *kept), (max(width - 2 - used, 8), *(wanted[field.key] for field in kept)))


def _column_cells(field: Field) -> int:
    if field.unit is Unit.TEXT:
        return _NARROW_TEXT_CELLS.get(field.key, TEXT_CELLS)
    return max(_UNIT_CELLS[field.unit], len(field.title) + 3)


def format_header(layout: ColumnLayout, sort_key: str, descending: bool, palette: Palette) -> list[TextRun]:
    runs: list[TextRun] = [("  ", palette.muted)]
    for place, (field, cells) in enumerate(zip(layout.fields, layout.cells, strict=True)):
        mark = (" ▼" if descending else " ▲") if field.key == sort_key else ""
        title = truncate(field.title + mark, cells - 1 - len(_text_separator(layout, place)))
        left = field.unit is Unit.TEXT
        title = _text_separator(layout, place) + title
        text = title + " " * (cells - cell_len(title)) if left else " " * (cells - cell_len(title)) + title
        runs.append((text, palette.strong if mark else palette.muted))
    return runs


def format_row(sheet: Sheet, row: int, layout: ColumnLayout, palette: Palette, selected: bool) -> list[TextRun]:
    """One row. Text from the trace is cleaned here."""
    runs: list[TextRun] = [("▶ " if selected else "  ", palette.accent)]
    style = palette.active if selected else palette.text
    for place, (field, cells) in enumerate(zip(layout.fields, layout.cells, strict=True)):
        value = sheet.columns[field.key][row]
        if field.unit is Unit.TEXT:
            text = clean(str(value).replace("\n", " < "))
            room = cells - 1 - len(_text_separator(layout, place))
            text = text if cell_len(text) <= room else truncate(shorten(text) if place == 0 else text, room)
            text = _text_separator(layout, place) + text
            runs.append((text + " " * (cells - cell_len(text)), style if place == 0 else palette.text))
        else:
            runs.append((f"{format_cell(value, field.unit):>{cells}}", style if place == 0 else palette.text))
    return runs


def _text_separator(layout: ColumnLayout, column: int) -> str:
    """What keeps a text from the number before it, which ends where the text begins."""
    fields = layout.fields
    return "  " if column and fields[column].unit is Unit.TEXT and fields[column - 1].unit is not Unit.TEXT else ""


def format_cell(value: object, unit: Unit) -> str:
    """A number as people read it; "" for what is not known, and for a time or share of nothing."""
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
    for letter in ("", "k", "M", "G", "T", "P"):
        if abs(number) < 1000 or letter == "P":
            return f"{number:.3g} {letter}".rstrip()
        number /= 1000
    return ""
