"""The marked range: extending, freezing and clipping."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.ui.lanes.view_state import RangeMark

TIME = st.integers(0, 1000)


@given(TIME, st.lists(st.tuples(TIME, st.integers(1, 50)), max_size=6))
def test_a_live_mark_covers_its_anchor_and_the_cursor(anchor: int, ranges: list[tuple[int, int]]) -> None:
    mark = RangeMark(anchor, anchor + 10, (anchor, anchor + 10), live=True)
    for start, length in ranges:
        mark = mark.extend_to(start, start + length)
        assert (mark.start, mark.end) == (min(anchor, start), max(anchor + 10, start + length))
    frozen = replace(mark, live=False)
    assert frozen.extend_to(5000, 6000) == frozen


def test_a_range_is_clipped_to_the_limits() -> None:
    limits = (100, 200)
    assert RangeMark.from_range(120, 150, limits) == RangeMark(120, 150, (120, 150))
    assert RangeMark.from_range(120, 120, limits) == RangeMark(120, 121, (120, 121))
    assert RangeMark.from_range(0, 999, limits) == RangeMark(100, 200, (100, 200))
    assert RangeMark.from_range(300, 400, limits) is None
    assert RangeMark.from_range(0, 50, limits) is None
