"""The lines of the diff screen: they sum to the screen, and nobody gets fewer than it can use."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.ui.diff.locked_view import MIN_HEIGHT, MIN_LANES, MIN_WIDTH, compute_layout, explain_small_screen

FIXED_LINES = 8


@given(st.integers(MIN_WIDTH, 400), st.integers(MIN_HEIGHT, 120), st.booleans(), st.integers(1, 90), st.integers(1, 90))
def test_the_lines_sum_to_the_screen(width: int, height: int, is_enlarged: bool, a: int, b: int) -> None:
    layout = compute_layout(width, height, is_enlarged, (a, b))
    assert sum(layout.lanes) + layout.dock + FIXED_LINES == height
    assert min(layout.lanes) >= MIN_LANES
    assert layout.dock >= 2
    if a >= layout.lanes[0] + 2 and b >= layout.lanes[1] + 2:  # neither side has all that it needs
        assert abs(layout.lanes[0] - layout.lanes[1]) <= 1


def test_a_screen_that_is_too_small_is_explained() -> None:
    assert not explain_small_screen(MIN_WIDTH, MIN_HEIGHT)
    assert "39x14" in explain_small_screen(39, 14)
