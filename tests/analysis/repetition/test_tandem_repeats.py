"""Test the search for groups that follow themselves, on literal sequences and against a search by definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchprof_tui.analysis.repetition.tandem_repeats import find_tandem_repeats


def find(text: str, min_rounds: int = 3, max_period: int = 4) -> list[tuple[int, str, int]]:
    """Find repeats in a text: (start, group, rounds)."""
    found = find_tandem_repeats(np.array([ord(letter) for letter in text], dtype=np.int64), min_rounds, max_period)
    return [
        (start, text[start : start + period], rounds)
        for start, period, rounds in zip(
            found.start.tolist(), found.period.tolist(), found.rounds.tolist(), strict=True
        )
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("a", []),
        ("abcabd", []),
        ("xabababy", [(1, "ab", 3)]),
        ("ababa", []),  # two whole rounds
        ("abababa", [(0, "ab", 3)]),  # the last round is not whole
        ("aaaaaa", [(0, "a", 6)]),  # not three times "aa"
        ("aabaabaab", [(0, "aab", 3)]),
        ("aaabbbccc", [(0, "a", 3), (3, "b", 3), (6, "c", 3)]),
        ("abcdeabcdeabcde", []),  # longer than the longest period
        ("xyxyxyxyyyyy", [(0, "xy", 4), (8, "y", 4)]),  # the shorter one keeps what is left of it
        ("aaabaaabaaab", [(0, "aaab", 3)]),  # the larger one, not "aaa" three times
    ],
)
def test_repeats(text: str, expected: list[tuple[int, str, int]]) -> None:
    assert find(text) == expected


@settings(max_examples=200, deadline=None)
@given(st.text("ab", max_size=24), st.integers(2, 4))
def test_each_repeat_is_one_and_each_long_run_is_covered(text: str, min_rounds: int) -> None:
    found = find(text, min_rounds)
    covered = [False] * len(text)
    for start, group, rounds in found:
        stop = start + len(group) * rounds
        assert text[start:stop] == group * rounds
        assert rounds >= min_rounds
        assert not any(covered[start:stop])
        covered[start:stop] = [True] * (stop - start)
    for start in range(len(text)):
        for period in range(1, 5):
            stop = start + period * min_rounds
            group = text[start : start + period]
            if stop <= len(text) and text[start:stop] == group * min_rounds:
                assert any(covered[start:stop])
