"""The layout of the explorer by screen size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.trace_builder import cpu, kernel, trace
from torchprof_tui.ui.explorer.lanes_area import (
    DOCK_MAX_LINES,
    DOCK_MAX_SHARE,
    DOCK_MIN_LINES,
    compute_layout,
    count_lane_lines,
    too_small_message,
)


@pytest.mark.parametrize(("width", "height"), [(39, 10), (40, 9), (1, 1)])
def test_a_terminal_that_is_too_small_says_what_is_needed(width: int, height: int) -> None:
    assert f"{width}×{height}" in too_small_message(width, height)
    assert "40×10" in too_small_message(width, height)
    assert too_small_message(40, 10) == ""


@given(st.integers(40, 400), st.integers(10, 200), st.integers(1, 2), st.integers(1, 2), st.integers(0, 300))
def test_the_parts_fit_and_leave_room_for_lanes(width: int, height: int, overview: int, ruler: int, lanes: int) -> None:
    layout = compute_layout(width, height, overview, ruler, lanes)
    above = 2 + layout.verdict + layout.overview + layout.ruler
    lane_lines = height - above - layout.dock
    assert lane_lines >= min(lanes, 3)
    assert layout.dock >= (DOCK_MIN_LINES if height >= 15 else 3)
    assert layout.dock <= max(DOCK_MAX_LINES, int(height * DOCK_MAX_SHARE))
    # Panels grow beyond their share only by lines that no lane fills.
    assert lane_lines >= lanes or layout.dock <= DOCK_MAX_LINES


def test_more_room_more_lines() -> None:
    sizes = {height: compute_layout(200, height, 2, 2, 1000) for height in (19, 20, 29, 30)}
    assert [sizes[height].ruler for height in sizes] == [1, 2, 2, 2]
    assert [sizes[height].overview for height in sizes] == [1, 1, 1, 2]
    assert [sizes[height].verdict for height in sizes] == [0, 1, 2, 2]
    assert [compute_layout(width, 24, 1, 1, 9).verdict for width in (80, 259, 260)] == [2, 2, 1]
    asked = compute_layout(80, 24, 1, 2, 1000, is_asked=True)
    assert (asked.dock, compute_layout(80, 24, 1, 2, 1000).dock) == (10, 6)  # nine lines below the title
    assert [compute_layout(width, 40, 1, 1, 9).panels for width in (169, 170, 299, 300)] == [1, 2, 2, 3]
    docks = [compute_layout(200, 60, 2, 2, 10, has_ranks=has_ranks).dock for has_ranks in (False, True)]
    assert docks == [39, 30]  # 65 % of the height where the lanes leave more than that empty; half of it for ranks
    assert compute_layout(200, 60, 2, 2, 1000).dock == 16  # 27 %


def test_lines_of_lanes_are_rows_headings_and_one_to_spare() -> None:
    shown = trace(cpu("a", 0, 10), cpu("b", 2, 5), kernel("k", 3, 4), kernel("k", 3, 4, stream=8))
    groups = {lane.group for lane in shown.lanes}
    assert count_lane_lines(shown, shown) == 2 + 1 + 1 + len(groups) + 1
