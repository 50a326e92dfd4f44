"""The table's earlier views."""

from __future__ import annotations

from collections import deque

from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.ui.table.sheet_rows import TableView, push_view

VIEW = TableView("kernels", GroupBy.NAME, 0, "total", True, "", 3)


def test_another_view_is_kept() -> None:
    other = VIEW._replace(sort_key="avg")
    views = deque([VIEW])
    push_view(views, other)
    assert list(views) == [VIEW, other]


def test_a_view_with_another_row_replaces_the_one_before() -> None:
    views: deque[TableView] = deque()
    push_view(views, VIEW)
    push_view(views, VIEW._replace(row=9))
    assert list(views) == [VIEW._replace(row=9)]


def test_the_oldest_views_are_dropped() -> None:
    views: deque[TableView] = deque(maxlen=3)
    for scope in range(5):
        push_view(views, VIEW._replace(scope=scope))
    assert [view.scope for view in views] == [2, 3, 4]
