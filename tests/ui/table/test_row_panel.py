"""Test how the panel of a row of the table divides its width."""

from __future__ import annotations

import pytest
from rich.style import Style

from torchprof_tui.ui.common.painted_widget import Lines
from torchprof_tui.ui.table.row_panel import COLUMN_GAP, _mark_cell, _share_width

ROOM = 100


def block(cells: int) -> Lines:
    return [[("x" * cells, Style.null())]]


@pytest.mark.parametrize(
    ("needs", "shares"),
    [
        ((10, 20, 30), [33, 33, 33]),  # thirds, so that columns stay in place from row to row
        ((10, 20, 50), [16, 26, 56]),  # no name is cut beside unused room
        ((10, 90, 70), [10, 45, 45]),  # the widest are cut alike
    ],
)
def test_columns_follow_what_they_hold(needs: tuple[int, ...], shares: list[int]) -> None:
    assert _share_width([block(cells) for cells in needs], ROOM + 2 * COLUMN_GAP) == shares


@pytest.mark.parametrize("width", [60, 78, 118])
def test_the_mark_of_an_instance_stands_below_its_cell(width: int) -> None:
    label = "instance 37: 91.3 µs at 15.394530 ms"
    for cell in range(width - 2):
        marked, hint = _mark_cell(cell, label, width)
        assert marked.index("▲") == cell
        assert label in marked
        if width > 2 * len(label):
            assert len(marked) + len(hint) <= width
    assert _mark_cell(0, label, width)[1]
