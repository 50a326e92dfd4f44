"""The label of a problem's own time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.engine.pattern import Finding, fired_answer
from torchprof_tui.analysis.patterns.verdict.tree_model import TimePart, TimeTree
from torchprof_tui.ui.common.own_time_label import describe_own_time

NOTHING: list[int] = []


def finding(pattern_id: str, at_stake: int) -> Finding:
    return Finding(PATTERNS[pattern_id], fired_answer("seen", NOTHING, at_stake), at_stake / 10_000)  # type: ignore[arg-type]


def tree(*times: int) -> TimeTree:
    """Build a tree with `times` of tiny-kernels in dispatch, launch and exposed collectives, of 10 000 ns."""
    labels = ("idle: dispatch", "idle: launch", "collectives without compute")
    parts = [
        TimePart(label, label, 3000, (TimePart("tiny-kernels", "", time),) if time else ())
        for label, time in zip(labels, times, strict=True)
    ]
    return TimeTree((*parts, TimePart("outside", "outside", 1000)), 10_000, 1)


@pytest.mark.parametrize(
    ("at_stake", "times", "expected"),
    [
        (2100, (1400, 700, 0), "dispatch 14 %, launch 7.0 %"),
        (2100, (0, 400, 1700), "collectives without compute 17 %, launch 4.0 %"),
        (2100, (300, 0, 0), "its own: dispatch 3.0 %"),
        (2100, (2900, 0, 0), "part of: dispatch 29 %"),
        (2100, (2100, 4, 0), "dispatch 21 %"),
        (2100, (0, 0, 0), "counted in other entries, or the GPU was busy"),
        (2100, (4, 0, 0), "counted in other entries, or the GPU was busy"),
        (0, (1400, 700, 0), ""),
    ],
)
def test_it_lists_the_parts_largest_first(at_stake: int, times: tuple[int, ...], expected: str) -> None:
    assert describe_own_time(finding("tiny-kernels", at_stake), tree(*times)) == expected


def test_general_patterns_sum_up() -> None:
    assert (
        describe_own_time(finding("overhead-bound", 9000), tree(0, 0, 0))
        == "the sum of the idle time that the CPU causes"
    )
    assert describe_own_time(finding("idle-gap", 9000), tree(0, 0, 0)) == "the sum of all gaps of 10.0 µs or more"
    assert describe_own_time(finding("first-step-wide", 9000), tree(0, 0, 0)) == "the sum of several causes"


def test_over_several_gpus_it_is_their_mean() -> None:
    several = replace(tree(300, 0, 0), device_count=4)
    assert describe_own_time(finding("tiny-kernels", 2100), several) == "mean of 4 GPUs, its own: dispatch 3.0 %"


def test_nothing_is_said_where_the_time_is_not_divided() -> None:
    assert describe_own_time(finding("tiny-kernels", 2100), None) == ""
