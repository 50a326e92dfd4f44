"""The table's earlier views."""

from __future__ import annotations

from dataclasses import replace

from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.ui.table.row_listing import MAX_VIEWS, TableView, ViewHistory

VIEW = TableView("kernels", GroupBy.NAME, 0, "total", True, "", 3)


def test_views_come_back_latest_first() -> None:
    history = ViewHistory()
    assert history.pop() is None
    other = replace(VIEW, sort_key="avg")
    history.push(VIEW)
    history.push(other)
    assert [history.pop(), history.pop(), history.pop()] == [other, VIEW, None]


def test_a_view_with_another_row_replaces_the_one_before() -> None:
    history = ViewHistory()
    history.push(VIEW)
    history.push(replace(VIEW, row=9))
    assert [history.pop(), history.pop()] == [replace(VIEW, row=9), None]


def test_the_oldest_views_are_dropped() -> None:
    history = ViewHistory()
    for scope in range(MAX_VIEWS + 5):
        history.push(replace(VIEW, scope=scope))
    views = []
    while (view := history.pop()) is not None:
        views.append(view.scope)
    assert views == list(range(MAX_VIEWS + 4, 4, -1))
