"""Export a sheet as JSON, CSV or Markdown. Times in µs, shares 0..1 (Markdown: percent)."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from torchprof_tui.analysis.table.sheets import Field, Sheet, Unit, format_spans_note

CleanText = Callable[[str], str]

_FRAME_SEPARATOR = " < "  # separates the frames of a stack where a cell must be one line
_UNITS = {Unit.NS: " µs", Unit.BYTES: " (bytes)", Unit.FLOPS: " (10⁹)"}  # in the titles of Markdown tables


def column_key(field: Field) -> str:
    """Return the name of a column in a file: it ends in its unit."""
    if field.unit is Unit.BYTES and field.key != "bytes":
        return f"{field.key}_bytes"
    return f"{field.key}_us" if field.unit is Unit.NS else field.key


def to_records(sheet: Sheet, order: Iterable[int]) -> list[dict[str, Any]]:
    """Return one object per row, in this order; None for unknown; a stack is a list of frames, innermost first.

    Sheets with GPU work have a `display` as well: the decoded name of such rows, the name of others. Sheets with
    annotations have an `annotation`: whether the row is a span that contains the work of other rows.
    """
    rows = list(order)
    records = [{column_key(field): read_cell(sheet, field, row) for field in sheet.fields} for row in rows]
    if sheet.gpu_mask is not None:
        for record, row in zip(records, rows, strict=True):
            record["display"] = sheet.displays[row]
    if sheet.span_mask is not None:
        for record, row in zip(records, rows, strict=True):
            record["annotation"] = bool(sheet.span_mask[row])
    return records


def to_json(sheet: Sheet, order: Iterable[int]) -> str:
    return json.dumps(to_records(sheet, order))


def to_csv(sheet: Sheet, order: Iterable[int], clean: CleanText) -> str:
    """Write CSV with a header line; unknown values are empty. `clean` turns a text into one line."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([column_key(field) for field in sheet.fields])
    for row in order:
        values = (read_cell(sheet, field, row) for field in sheet.fields)
        writer.writerow(["" if value is None else _join_lines(value, clean) for value in values])
    return buffer.getvalue()


def to_markdown(sheet: Sheet, order: Iterable[int], clean: CleanText) -> str:
    """Write a Markdown table with the names to read, numbers aligned right, followed by the totals."""
    rows = list(order)
    has_spans = sheet.span_mask is not None and bool(sheet.span_mask[rows].any())
    titles = ["share" if field.title == "%" else f"{field.title}{_UNITS.get(field.unit, '')}" for field in sheet.fields]
    alignments = [":--" if field.unit is Unit.TEXT else "--:" for field in sheet.fields]
    lines = [titles, alignments]
    lines += [[_markdown_cell(sheet, field, row, clean) for field in sheet.fields] for row in rows]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = (
        *sheet.totals,
        *([sheet.reading] if sheet.reading else []),
        *([format_spans_note(sheet)] if has_spans else []),
    )
    return "\n".join([text, "", *(f"{note}  " for note in notes)]).rstrip() + "\n"


def read_cell(sheet: Sheet, field: Field, row: int) -> Any:
    value: Any = sheet.columns[field.key][row]
    if field.unit is Unit.TEXT:
        if field.key == "stack":
            return str(value).split("\n") if value else []
        return value
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, float) and math.isnan(number):
        return None
    if field.unit in (Unit.COUNT, Unit.BYTES) and isinstance(number, float) and number.is_integer():
        return int(number)  # float64 only because another row is unknown
    return number / 1000 if field.unit is Unit.NS else number


def _join_lines(value: Any, clean: CleanText) -> Any:
    if isinstance(value, list):
        value = _FRAME_SEPARATOR.join(value)
    return clean(value) if isinstance(value, str) else value


def _markdown_cell(sheet: Sheet, field: Field, row: int, clean: CleanText) -> str:
    value: Any = sheet.displays[row] if field.key == "name" else read_cell(sheet, field, row)
    if value is None:
        return ""
    if field.unit is Unit.TEXT:
        text = str(_join_lines(value, clean))
        return "".join(f"\\{letter}" if letter in "\\`*_[]<>|" else letter for letter in text)
    if field.unit is Unit.SHARE:
        return f"{value:.2%}"
    if field.unit is Unit.NS:
        return f"{value:.3f}"
    if field.unit is Unit.FLOPS:
        return f"{value / 1e9:.3f}"
    return str(value) if isinstance(value, int) else f"{value:.1f}"
