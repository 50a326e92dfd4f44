"""The lines of the lanes for any arrangement."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.trace_builder import counter, cpu, kernel, trace
from torchprof_tui.ui.lanes import screen_lines
from torchprof_tui.ui.lanes.screen_lines import (
    MAX_FOLDED_ROWS,
    LaneArrangement,
    LaneLines,
    LineContent,
    folded_rows,
)

SHOWN = trace(
    cpu("a", 0, 10),
    cpu("b", 1, 5),
    cpu("c", 0, 10, thread=200),
    kernel("k", 2, 2),
    kernel("l", 2, 2, stream=9),
    counter("m", 0, v=1),
)
LANES = len(SHOWN.lanes)


def test_headings_then_lanes_then_rows() -> None:
    lines = LaneLines.build(SHOWN, LaneArrangement()).body
    assert [(line.content, line.lane, line.row) for line in lines[:4]] == [
        (LineContent.HEADING, 0, 0),
        (LineContent.ROW, 0, 0),
        (LineContent.ROW, 0, 1),
        (LineContent.ROW, 1, 0),
    ]
    groups = [SHOWN.lanes[line.lane].group for line in lines if line.content is LineContent.HEADING]
    assert groups == list(dict.fromkeys(lane.group for lane in SHOWN.lanes))
    assert [line.content for line in lines if line.lane == LANES - 1][-1] is LineContent.COUNTER


def test_a_group_without_lanes_has_no_heading() -> None:
    lines = LaneLines.build(SHOWN, LaneArrangement(hidden=frozenset({0}), pinned=(1,)))
    assert not any(SHOWN.lanes[line.lane].group == "CPU" for line in lines.body)
    assert [line.lane for line in lines.pinned] == [1]


@given(
    st.sets(st.integers(0, LANES - 1)),
    st.sets(st.integers(0, LANES - 1)),
    st.lists(st.integers(0, LANES - 1), unique=True),
    st.integers(0, 30),
    st.integers(2, 20),
)
def test_every_row_is_where_it_is_said_to_be(
    folded: set[int], hidden: set[int], pinned: list[int], top: int, height: int
) -> None:
    arrangement = LaneArrangement(frozenset(folded), frozenset(hidden), tuple(pinned))
    lines = LaneLines.build(SHOWN, arrangement)
    top = min(top, lines.max_top(height))
    window = lines.visible_lines(top, height)
    assert len(window) <= height
    assert len([line for line in window if line.content is LineContent.RULE]) == bool(lines.pinned)
    seen = set()
    for number, lane in enumerate(SHOWN.lanes):
        for row in range(lane.rows):
            index = lines.line_index(number, row)
            assert (index is None) == (number in hidden)
            if index is None:
                continue
            seen.add(index)
            y = lines.screen_line_index(number, row, top, height)
            if y is not None:
                assert window[y].lane == number
                assert window[y].row == row or window[y].content is LineContent.FOLDED
            if index >= 0:
                revealed = lines.top_to_reveal(index, top, height)
                assert 0 <= revealed <= lines.max_top(height)
                if height - lines.count_fixed_lines(height) > 0:
                    assert lines.screen_line_index(number, row, revealed, height) is not None
    headings = sum(line.content is LineContent.HEADING for line in lines.body)
    assert len(seen) == len(lines.body) - headings + len(lines.pinned)


def test_lines_are_created_only_on_access(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = trace(*(cpu("f", k, 3000 - 2 * k) for k in range(1500)), ns=True)
    made = 0
    original = screen_lines.ScreenLine

    def counted(*fields: Any) -> screen_lines.ScreenLine:
        nonlocal made
        made += 1
        return original(*fields)

    monkeypatch.setattr(screen_lines, "ScreenLine", counted)
    lines = LaneLines.build(deep, LaneArrangement())
    assert len(lines.body) == 1501
    assert lines.line_index(0, 1400) == 1401
    assert [line.row for line in lines.visible_lines(1300, 40)] == list(range(1299, 1339))
    assert lines.body[-1].row == 1499
    assert made == 41


def test_a_folded_lane_reads_a_limited_number_of_rows() -> None:
    deep = trace(*(cpu("f", k, 3000 - 2 * k) for k in range(1500)), ns=True)
    assert folded_rows(deep.lanes[0]) == range(MAX_FOLDED_ROWS)
    assert folded_rows(SHOWN.lanes[0]) == range(SHOWN.lanes[0].rows)
