"""The earlier views of the table, for the key that goes back."""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.analysis.table.profiler_table import GroupBy

MAX_VIEWS = 50
"""Views that are kept; the oldest one is dropped."""


@dataclass(frozen=True, slots=True)
class TableView:
    """What the table shows: which table, its order, its filter, and the row under the cursor (-1 for none)."""

    tab: str
    group_by: GroupBy
    scope: int
    sort_key: str
    descending: bool
    filter: str
    row: int


class ViewHistory:
    """A stack of views. `push` before a change, `pop` to undo it."""

    def __init__(self) -> None:
        self._views: list[TableView] = []

    def push(self, view: TableView) -> None:
        """Keep a view, unless it is the latest one but for its row."""
        if self._views and _without_row(self._views[-1]) == _without_row(view):
            self._views.pop()
        self._views = [*self._views[1 - MAX_VIEWS :], view]

    def pop(self) -> TableView | None:
        """Take the latest view off, None if there is none."""
        return self._views.pop() if self._views else None


def _without_row(view: TableView) -> tuple[str, GroupBy, int, str, bool, str]:
    return view.tab, view.group_by, view.scope, view.sort_key, view.descending, view.filter
