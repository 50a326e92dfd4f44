"""The rows of a sheet: sorted and filtered, kept as earlier views, and formatted with the columns that fit."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

import numpy as np
from rich.cells import cell_len

from torchprof_tui.analysis.search.name_search import BadPattern, is_case_sensitive
from torchprof_tui.analysis.table import export
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.table.sheets import Field, Sheet, Unit
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.child_screen import write_new_file
from torchprof_tui.ui.common.event_styles import Palette
from torchprof_tui.ui.common.name_display import clean, shorten, truncate
from torchprof_tui.ui.common.number_format import format_share, format_value
from torchprof_tui.ui.common.painted_widget import TextRun


class TableView(NamedTuple):
    """What the table shows: which table, its order, its filter, and the row under the cursor (-1 for none)."""

    tab: str
    group_by: GroupBy
    scope: int
    sort_key: str
    descending: bool
    filter: str
    row: int


def push_view(views: deque[TableView], view: TableView) -> None:
    """Keep a view for the key that goes back, unless it is the latest one but for its row."""
    if views and views[-1][:-1] == view[:-1]:
        views.pop()
    views.append(view)


NO_ROWS: I64 = np.zeros(0, np.int64)


class RowListing:
    """The listed rows: `order` int64[k], rows of the sheet from top to bottom. Each tab keeps its sort column.

    The first `work_count` rows are of work; annotations follow below a line of their own.
    """

    def __init__(self, sort_keys: dict[str, str]) -> None:
        """Sort each tab at first by its column in `sort_keys`: tab → the column's key."""
        self._sort_keys = dict(sort_keys)
        self._tab = ""
        self.sheet: Sheet | None = None
        self.order = NO_ROWS
        self.work_count = 0  # rows before the annotations
        self.descending = True
        self.filter = ""

    @property
    def sort_key(self) -> str:
        return self._sort_keys.get(self._tab, "")

    def set_sheet(self, tab: str, sheet: Sheet | None) -> None:
        """Set the sheet of a tab, None for nothing to list. Call `sort_and_filter` afterwards."""
        self._tab, self.sheet, self.order, self.work_count = tab, sheet, NO_ROWS, 0
        keys = [] if sheet is None else [field.key for field in sheet.fields]
        if keys and self.sort_key not in keys:
            self._sort_keys[tab] = "self_cpu" if "self_cpu" in keys else keys[-1]

    def sort_and_filter(self) -> str:
        """Compute `order`. Returns an error message if the filter is invalid (all rows are listed then), else ""."""
        if self.sheet is None:
            return ""
        is_numeric = isinstance(self.sheet.columns[self.sort_key], np.ndarray)
        order, work_count = self.sheet.sort_work_first(self.sort_key, None if self.descending else not is_numeric)
        matching = self.sheet.filter_rows(self.filter)
        if isinstance(matching, BadPattern):
            self.order, self.work_count = order, work_count
            return matching.message
        self.order = order[matching[order]]
        self.work_count = int(np.count_nonzero(matching[order[:work_count]]))
        return ""

    def cycle_sort_column(self, distance: int) -> None:
        """Sort by the column `distance` to the right, cyclically, in its default direction."""
        if self.sheet is not None:
            keys = [field.key for field in self.sheet.fields]
            self.sort_by(keys[(keys.index(self.sort_key) + distance) % len(keys)])

    def sort_by(self, key: str, descending: bool = True) -> None:
        """Sort by a column of the sheet; `descending`: in its default direction."""
        self._sort_keys[self._tab], self.descending = key, descending

    def restore(self, tab: str, sort_key: str, descending: bool, filter: str) -> None:  # noqa: A002
        """Return to an earlier order and filter of a tab; its sheet is set afterwards."""
        if sort_key:
            self._sort_keys[tab] = sort_key
        self.descending, self.filter = descending, filter

    @property
    def has_section(self) -> bool:
        """Whether a line separates the rows of work from those of annotations."""
        return 0 < self.work_count < len(self.order)

    @property
    def line_count(self) -> int:
        """Number of lines: the rows, and the line between work and annotations."""
        return len(self.order) + self.has_section

    def row_at(self, index: int) -> int:
        """Return the row of the sheet at a line of the list, -1 for the line between sections or an empty list."""
        if self.has_section and index >= self.work_count:
            if index == self.work_count:
                return -1
            index -= 1
        return int(self.order[index]) if len(self.order) else -1

    def index_of(self, row: int) -> int:
        """Return the line of a row of the sheet in the list, -1 if it is not listed."""
        indices = np.flatnonzero(self.order == row)
        if not len(indices):
            return -1
        index = int(indices[0])
        return index + (self.has_section and index >= self.work_count)


def format_summary(listing: RowListing, group_by: GroupBy, scope: str, totals: str) -> str:
    """Format the rows listed, the grouping ("" for names), the scope, the filter and the totals."""
    assert listing.sheet is not None
    grouping = "" if group_by is GroupBy.NAME else f" by {group_by.value}"
    parts = [f"{len(listing.order):,} of {len(listing.sheet):,} rows{grouping}", scope]
    if listing.filter:
        case = " (case-sensitive)" if is_case_sensitive(listing.filter) else ""
        parts.append(f"filter {listing.filter!r}{case}")
    return " · ".join([*parts, totals] if totals else parts)


NAME_MIN_CELLS = 24
MIN_TEXT_LIMIT, MAX_TEXT_LIMIT, TEXT_SHARE = 18, 40, 4
"""Cells of a text column, at most: a quarter of the width, within these limits. Texts that are longer are cut."""

_SAMPLED_TEXTS = 2_000  # distinct texts of a column that its width is computed from

_UNIT_CELLS = {
    Unit.COUNT: 4,
    Unit.NUMBER: 9,
    Unit.NS: 11,
    Unit.SHARE: 8,
    Unit.BYTES: 11,
    Unit.GB_S: 9,
    Unit.FLOPS: 9,
    Unit.TFLOPS: 9,
}
"""Cells of a column of numbers, with two between it and the one before; counts: at least."""

_GAP_CELLS = 2
_EVALUATION_PREFIX = "autograd::engine::evaluate_function: "


@record
class ColumnLayout:
    """The columns that fit into a width, each with its cells; the first is the name, which gets the remaining cells.

    `hidden`: the number of columns that do not fit.
    """

    fields: tuple[Field, ...]
    cells: tuple[int, ...]
    hidden: int = 0


def fit_columns(sheet: Sheet, width: int, sort_key: str) -> ColumnLayout:
    """Choose columns from left to right while NAME_MIN_CELLS remain for the name; the sort column is always kept.

    So is its share, or the column that it is the share of, where they fit.
    """
    name_field, *fields = sheet.fields
    text_limit = min(max(width // TEXT_SHARE, MIN_TEXT_LIMIT), MAX_TEXT_LIMIT)
    cells = {field.key: _column_cells(sheet, field, text_limit) for field in fields}
    available = width - 2 - NAME_MIN_CELLS
    partners = (sort_key, sort_key.removesuffix("_share"), f"{sort_key}_share")
    by_priority = sorted(
        fields, key=lambda field: partners.index(field.key) if field.key in partners else len(partners)
    )
    kept: set[str] = set()
    for field in by_priority:
        base = field.key.removesuffix("_share")
        if base in cells and base not in (*kept, field.key) and field.key != sort_key:
            continue  # a share is meaningless without the column that it refers to
        if field.key != sort_key and cells[field.key] > available:
            break  # what remains is for the name: a later column would stand without those before it
        kept.add(field.key)
        available -= cells[field.key]
    shown = [field for field in fields if field.key in kept]
    used = sum(cells[field.key] for field in shown)
    name_cells = max(width - 2 - used, 8)
    return ColumnLayout(
        (name_field, *shown), (name_cells, *(cells[field.key] for field in shown)), len(fields) - len(shown)
    )


def _column_cells(sheet: Sheet, field: Field, text_limit: int) -> int:
    """Return the cells of a column: for its longest text or number, and its title with the arrow of the sort column."""
    title_cells = cell_len(field.title) + 2 + _GAP_CELLS
    column = sheet.columns[field.key]
    if field.unit is Unit.TEXT:
        distinct = list(dict.fromkeys(map(str, column)))[:_SAMPLED_TEXTS]
        longest = max((cell_len(clean(text.replace("\n", " < "))) for text in distinct), default=0)
        return max(min(longest, text_limit) + _GAP_CELLS + 1, title_cells)
    content_cells = _UNIT_CELLS[field.unit]
    if field.unit is Unit.COUNT and len(column):
        content_cells = max(content_cells, len(f"{int(np.nan_to_num(column).max()):,}") + _GAP_CELLS)
    return max(content_cells, title_cells)


def format_header(layout: ColumnLayout, sort_key: str, descending: bool, palette: Palette) -> list[TextRun]:
    """Format the titles of the columns, with an arrow at the sort column; behind the name, how many do not fit."""
    runs: list[TextRun] = [("  ", palette.muted)]
    for column, (field, cells) in enumerate(zip(layout.fields, layout.cells, strict=True)):
        arrow = (" ▼" if descending else " ▲") if field.key == sort_key else ""
        separator = _text_separator(layout, column)
        title = separator + truncate(field.title + arrow, cells - len(separator))
        if column == 0 and layout.hidden:
            mark = f"({layout.hidden} more column{'s' * (layout.hidden > 1)} →)"
            if cell_len(title) + cell_len(mark) + 3 <= cells:
                title += " " * (cells - cell_len(title) - cell_len(mark) - 2) + mark
        padding = " " * (cells - cell_len(title))
        text = title + padding if field.unit is Unit.TEXT else padding + title
        runs.append((text, palette.strong if arrow else palette.muted))
    return runs


def find_column(layout: ColumnLayout, x: int) -> Field | None:
    """Return the column whose title is drawn at cell `x` of a row, None for none."""
    left = 2
    for field, cells in zip(layout.fields, layout.cells, strict=True):
        if left <= x < left + cells:
            return field
        left += cells
    return None


def format_section(title: str, width: int, palette: Palette) -> list[TextRun]:
    """Format the line between two sections of rows."""
    text = truncate(f"── {title} ", width)
    return [(text + "─" * max(width - cell_len(text), 0), palette.line)]


def format_row(sheet: Sheet, row: int, layout: ColumnLayout, palette: Palette, selected: bool) -> list[TextRun]:
    """Format one row. Text from the trace is cleaned here."""
    runs: list[TextRun] = [("▶ " if selected else "  ", palette.cursor)]
    name_style = palette.active if selected else palette.text
    for column, (field, cells) in enumerate(zip(layout.fields, layout.cells, strict=True)):
        style = name_style if column == 0 else palette.text
        value = sheet.displays[row] if field.key == "name" else sheet.columns[field.key][row]
        if field.unit is Unit.TEXT:
            separator = _text_separator(layout, column)
            text = clean(str(value).replace("\n", " < "))
            available = cells - 1 - len(separator)
            if cell_len(text) > available:
                text = _fit_name(text, available) if column == 0 else truncate(text, available)
            text = separator + text
            runs.append((text + " " * (cells - cell_len(text)), style))
        else:
            runs.append((f"{format_cell(value, field.unit):>{cells}}", style))
    return runs


def _fit_name(name: str, width: int) -> str:
    """Shorten and cut a (cleaned) name to `width` cells, so that it still differs from others.

    An autograd node and its evaluation keep different names; a kernel keeps the brackets that tell it apart.
    """
    if name.startswith(_EVALUATION_PREFIX):
        return truncate(f"evaluate {name.removeprefix(_EVALUATION_PREFIX)}", width)
    head, bracket, addition = name.rpartition(" (")
    if name.endswith(")") and head and cell_len(addition) + 1 <= width // 2:
        return f"{truncate(head, width - cell_len(addition) - 2)}{bracket}{addition}"
    return truncate(shorten(name), width)


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


def write_sheet(sheet: Sheet, order: I64, name: str) -> tuple[str, bool]:
    """Write rows `order` int64[k] of a sheet to a new file that the user named; see `write_new_file`."""
    rows = order.tolist()
    formatters = {
        ".csv": lambda: export.to_csv(sheet, rows, clean),
        ".json": lambda: export.to_json(sheet, rows),
        ".md": lambda: export.to_markdown(sheet, rows, clean),
    }
    return write_new_file(name, formatters, f"{len(order):,} rows")
