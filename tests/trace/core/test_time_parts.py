"""Test how a part of a time is written."""

from __future__ import annotations

import pytest

from torchprof_tui.trace.core.time_format import format_part


@pytest.mark.parametrize(
    ("part", "total", "text"),
    [
        (371_040_000, 383_900_000, "371.0 of 383.9 ms"),
        (80_000, 2_100_000, "80.0 µs of 2.10 ms"),
        (0, 900, "0 of 900 ns"),
        (900, 900_000_000_000, "900 ns of 900.0 s"),  # "ns" ends with the "s" of the total
    ],
)
def test_a_part_shares_the_unit_of_the_whole(part: int, total: int, text: str) -> None:
    assert format_part(part, total) == text
