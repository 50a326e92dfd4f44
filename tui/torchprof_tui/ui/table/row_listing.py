"""Sort and filter the rows of a sheet. Knows nothing of the screen."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.search.name_search import BadPattern
from torchprof_tui.analysis.table.sheets import Sheet
from torchprof_tui.trace.core.arrays import I64

NO_ROWS: I64 = np.zeros(0, np.int64)


class RowListing:
    """The listed rows: `order` int64[k], rows of the sheet from top to bottom. Each tab keeps its sort column."""

    def __init__(self, sort_keys: dict[str, str]) -> None:
        """Sort each tab at first by its column in `sort_keys`: tab → the column's key."""
        self._sort_keys = dict(sort_keys)
        self._tab = ""
        self.sheet: Sheet | None = None
        self.order = NO_ROWS
        self.descending = True
        self.filter = ""

    @property
    def sort_key(self) -> str:
        """Key of the column that the rows are sorted by."""
        return self._sort_keys.get(self._tab, "")

    def set_sheet(self, tab: str, sheet: Sheet | None) -> None:
        """Set the sheet of a tab, None for nothing to list. Call `sort_and_filter` afterwards."""
        self._tab, self.sheet, self.order = tab, sheet, NO_ROWS
        keys = [] if sheet is None else [field.key for field in sheet.fields]
        if keys and self.sort_key not in keys:
            self._sort_keys[tab] = "self_cpu" if "self_cpu" in keys else keys[-1]

    def sort_and_filter(self) -> str:
        """Compute `order`. Returns an error message if the filter is invalid (all rows are listed then), else ""."""
        if self.sheet is None:
            return ""
        is_numeric = isinstance(self.sheet.columns[self.sort_key], np.ndarray)
        order = self.sheet.sort_rows(self.sort_key, None if self.descending else not is_numeric)
        matching = self.sheet.filter_rows(self.filter)
        if isinstance(matching, BadPattern):
            self.order = order
            return matching.message
        self.order = order[matching[order]]
        return ""

    def cycle_sort_column(self, distance: int) -> None:
        """Sort by the column `distance` to the right, cyclically, in its default direction."""
        if self.sheet is not None:
            keys = [field.key for field in self.sheet.fields]
            self._sort_keys[self._tab] = keys[(keys.index(self.sort_key) + distance) % len(keys)]
            self.descending = True

    def row_at(self, index: int) -> int:
        """Return the row of the sheet at an index of the list, -1 if the list is empty."""
        return int(self.order[index]) if len(self.order) else -1

    def index_of(self, row: int) -> int:
        """Return the index of a row of the sheet in the list, -1 if it is not listed."""
        indices = np.flatnonzero(self.order == row)
        return int(indices[0]) if len(indices) else -1
