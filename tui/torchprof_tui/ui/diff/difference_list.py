"""The listed rows of a comparison: differences by size, then unchanged rows; a filter and a cursor. Knows no widget."""

from __future__ import annotations

from torchprof_tui.analysis.compare.descriptions import describe_row, list_largest_changes
from torchprof_tui.analysis.compare.matched_rows import By, ComparedRow, ComparedRows, RowStatus
from torchprof_tui.analysis.search.name_search import BadPattern, compile_matcher

GROUPINGS: tuple[By, ...] = ("op", "kernel", "module", "class")


class DifferenceList:
    """`rows`: those listed, the largest change first. `cursor`: an index, -1 before the first difference is shown.

    A difference is a change of time, or other names at the same place; `n` goes through them, or through what is found.
    """

    def __init__(self) -> None:
        self.by: By = "op"
        self.matched: ComparedRows | None = None
        self.filter = ""
        self.rows: list[ComparedRow] = []
        self.cursor = -1
        self._all: list[ComparedRow] = []
        self._difference_count = 0

    def set_rows(self, matched: ComparedRows) -> None:
        """Set the rows of a comparison; the filter stays."""
        self.by, self.matched, self.cursor = matched.by, matched, -1
        largest = list_largest_changes(matched)
        listed = set(map(id, largest))
        rest = [row for row in matched.rows if id(row) not in listed]
        renamed = [row for row in rest if row.status is not RowStatus.MATCHED]
        self._all = [*largest, *renamed, *(row for row in rest if row.status is RowStatus.MATCHED)]
        self._difference_count = len(largest) + len(renamed)
        self._apply_filter()

    @property
    def count(self) -> int:
        """Number of rows that `move` goes through: the differences, or the rows that the filter finds."""
        return len(self.rows) if self.filter else self._difference_count

    @property
    def on_gpu(self) -> bool:
        """Whether a side has GPU work; else rows are compared by CPU self time."""
        return self.matched is None or self.matched.total.on_gpu

    @property
    def current(self) -> ComparedRow | None:
        return self.rows[self.cursor] if 0 <= self.cursor < len(self.rows) else None

    def set_filter(self, text: str) -> str:
        """List only rows with this text. Returns what is wrong with it (all are listed then), else ""."""
        row = self.current
        self.filter = text
        problem = self._apply_filter()
        self.cursor = self.rows.index(row) if row in self.rows else min(self.cursor, 0)
        return problem

    def _apply_filter(self) -> str:
        self.rows = self._all
        if not self.filter:
            return ""
        matches = compile_matcher(self.filter)
        if isinstance(matches, BadPattern):
            return matches.message
        self.rows = [
            row for row in self._all if any(map(matches, (row.name_a, row.name_b, describe_row(row, self.by))))
        ]
        return ""

    def move(self, distance: int) -> bool:
        """Move the cursor, from the last difference to the first. Returns whether there is one."""
        if self.count:
            first = -1 if distance > 0 else 0
            self.cursor = (min(max(self.cursor, first), self.count) + distance) % self.count
        return bool(self.count)

    def move_within(self, distance: int) -> bool:
        """Move the cursor without going round. Returns whether it moved."""
        cursor = min(max(self.cursor + distance, 0), len(self.rows) - 1)
        is_moved = cursor != self.cursor and bool(self.rows)
        self.cursor = cursor if self.rows else -1
        return is_moved
