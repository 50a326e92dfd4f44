"""Which rows of a sheet are listed, and in which order: sorted by a column, filtered by a text. No screen in here."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.search.name_search import BadPattern
from torchprof_tui.analysis.table.sheets import Sheet
from torchprof_tui.trace.core.arrays import I64

NO_ROWS: I64 = np.zeros(0, np.int64)


class RowListing:
    """`order` int64[k]: rows of the sheet, top to bottom. Each tab remembers the column that it was sorted by."""

    def __init__(self, sort_keys: dict[str, str]) -> None:
        """`sorted_by`: tab -> the key of the column that it is sorted by at first."""
        self._sort_keys = dict(sort_keys)
        self._tab = ""
        self.sheet: Sheet | None = None
        self.order = NO_ROWS
        self.descending = True
        self.filter = ""

    @property
    def sort_key(self) -> str:
        """Of the column that sorts what is listed."""
        return self._sort_keys.get(self._tab, "")

    def set_sheet(self, tab: str, sheet: Sheet | None) -> None:
        """Another sheet, of a tab; None where there is nothing to list. `relist` puts it in order."""
        self._tab, self.sheet, self.order = tab, sheet, NO_ROWS
        if sheet is not None and self.sort_key not in {field.key for field in sheet.fields}:
            self._sort_keys[tab] = sheet.fields[-1].key

    def sort_and_filter(self) -> str:
        """Sort and filter anew. Returns what is wrong with the filter, "" for nothing; then all rows are listed."""
        if self.sheet is None:
            return ""
        numeric = isinstance(self.sheet.columns[self.sort_key], np.ndarray)
        order = self.sheet.sort_rows(self.sort_key, None if self.descending else not numeric)
        matching = self.sheet.filter_rows(self.filter)
        if isinstance(matching, BadPattern):
            self.order = order
            return matching.message
        self.order = order[matching[order]]
        return ""

    def cycle_sort_column(self, distance: int) -> None:
        """By another column, so many to the right, around the ends; the usual way up."""
        if self.sheet is not None:
            keys = [field.key for field in self.sheet.fields]
            self._sort_keys[self._tab] = keys[(keys.index(self.sort_key) + distance) % len(keys)]
            self.descending = True

    def row_at(self, index: int) -> int:
        """The row of the sheet at a place of the list, -1 in an empty one."""
        return int(self.order[index]) if len(self.order) else -1

    def index_of(self, row: int) -> int:
        """Where a row of the sheet is listed, -1 where it is not."""
        place = np.flatnonzero(self.order == row)
        return int(place[0]) if len(place) else -1
