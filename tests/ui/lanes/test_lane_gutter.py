"""Labels of counters: the value at the cursor, and the largest one where there is room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.helpers.trace_builder import counter, cpu, trace
from torchprof_tui.ui.lanes.lane_gutter import Gutter, split_heading

MS = 1_000_000


@pytest.mark.parametrize(
    ("time", "width", "expected"),
    [
        (2 * MS, 40, "  Power (W) 300 ≤ 412.5"),
        (5 * MS, 40, "  Power (W) 412.5 ≤ 412.5"),
        (9 * MS, 40, "  Power (W) 412.5 ≤ 412.5"),
        (2 * MS, 18, "  Power (W) 300"),
        (0, 40, "  Power (W) ≤ 412.5"),
    ],
)
def test_a_counter_shows_its_value_at_the_cursor(time: int, width: int, expected: str) -> None:
    made = trace(
        cpu("op", 0, 10_000), counter("Power (W)", 1000, **{"": 300.0}), counter("Power (W)", 5000, **{"": 412.5})
    )
    gutter = Gutter(made)
    lane = made.counters[0].lane
    gutter.set_cursor(time)
    assert gutter._format_counter(lane, width) == expected


def test_without_a_cursor_a_counter_shows_its_largest_value() -> None:
    made = trace(cpu("op", 0, 10_000), counter("Power (W)", 1000, **{"": 300.0}))
    assert Gutter(made)._format_counter(made.counters[0].lane, 40) == "  Power (W) ≤ 300"


def test_a_heading_that_is_wider_than_the_labels_goes_on_over_the_lanes() -> None:
    shown = trace(cpu("a", 0, 10))
    shown.lanes[0] = replace(shown.lanes[0], group="GPU 0 NVIDIA H100 80GB HBM3")
    assert split_heading(shown, 0, 16) == ("GPU 0 NVIDIA H10", "0 80GB HBM3 ")
    assert split_heading(shown, 0, 40) == ("GPU 0 NVIDIA H100 80GB HBM3 ", "")
