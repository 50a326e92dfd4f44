"""Sort and filter the rows of a sheet, and keep earlier views."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from torchprof_tui.analysis.search.name_search import BadPattern, is_case_sensitive
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.table.sheets import Sheet
from torchprof_tui.trace.core.arrays import I64


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
        """Key of the column that the rows are sorted by."""
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
