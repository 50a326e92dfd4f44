"""The lines of a time tree: those at the top sum to the scope, and the trees of ranks add up."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.verdict.tree_model import (
    OTHER,
    OUTSIDE,
    UNKNOWN_PART_IDS,
    TimePart,
    TimeTree,
    merge_trees,
    select_tree_lines,
)


def part(part_id: str, time: int, *inner: TimePart) -> TimePart:
    return TimePart(part_id, f"label of {part_id}", time, inner)


def tree(*parts: TimePart, devices: int = 1) -> TimeTree:
    return TimeTree(parts, sum(each.time for each in parts), devices)


def test_shares_are_of_the_steps_as_those_of_the_verdict() -> None:
    """A trace of which a part lies outside the steps: the tree divides the steps alone, as the verdict does."""
    shown = tree(part("host", 910_000), part("compute", 90_000), part(OUTSIDE, 1_000_000))
    assert [(line.id, line.share) for line in select_tree_lines(shown)] == [("host", 0.91), ("compute", 0.09)]
    assert shown.outside_note == ", without 1.00 ms label of outside"
    alone = tree(part(OUTSIDE, 1000))
    assert [(line.id, line.share) for line in select_tree_lines(alone)] == [(OUTSIDE, 1.0)]
    assert alone.outside_note == ""


@st.composite
def trees(draw: st.DrawFn) -> TimeTree:
    times = draw(st.lists(st.integers(1, 10**9), min_size=1, max_size=15))
    parts = []
    for number, time in enumerate(times):
        inner_times = draw(st.lists(st.integers(0, time), max_size=4))
        inner = [part(f"inner{k}", t // max(len(inner_times), 1)) for k, t in enumerate(inner_times)]
        parts.append(part(f"part{number}", time, *inner))
    return tree(*parts, devices=draw(st.integers(1, 4)))


def test_small_parts_are_one_line_and_inner_ones_are_indented() -> None:
    shown = select_tree_lines(
        tree(
            part("a", 700, part("pattern", 400, part("deeper", 300)), part("tiny", 4)),
            part("b", 292),
            part("c", 4),
            part("d", 4),
        )
    )
    assert [(line.depth, line.id, line.time) for line in shown] == [
        (0, "a", 700), (1, "pattern", 400), (2, "deeper", 300), (0, "b", 292), (0, OTHER, 8),
    ]  # fmt: skip
    assert [line.label for line in shown] == [
        "label of a",
        "pattern",
        "deeper",
        "label of b",
        "other (label of c and 1 more)",
    ]


def test_ranks_without_a_gpu_are_not_called_gpus() -> None:
    def merge(*each: TimeTree) -> str:
        merged = merge_trees(each)
        assert merged is not None
        return merged.mean_note

    of_cpu = TimeTree((part("a", 5),), 5, 1, "ranks")
    assert (merge(of_cpu, of_cpu), merge(tree(part("a", 5), devices=2)), merge(of_cpu)) == (
        ", mean of 2 ranks", ", mean of 2 GPUs", "",
    )  # fmt: skip


def test_inner_lines_keep_room_where_there_are_many_parts() -> None:
    parts = [part(f"p{k}", 100 - k) for k in range(20)]
    shown = select_tree_lines(tree(*parts, part("big", 5000, part("x", 4000), part("y", 500), part("z", 400))), 12)
    assert len(shown) == 12
    assert [line.id for line in shown if line.depth] == ["x", "y", "z"]


@given(trees(), st.integers(2, 14))
def test_the_lines_at_the_top_sum_to_the_scope(shown: TimeTree, max_lines: int) -> None:
    lines = select_tree_lines(shown, max_lines)
    assert len(lines) <= max_lines
    top = [line for line in lines if line.depth == 0]
    total = sum(Fraction(line.time) for line in top)
    assert abs(total - Fraction(shown.total, shown.device_count)) < 1
    assert abs(sum(line.share for line in top) - 1) < 1e-9
    assert all(line.share >= 0.005 for line in lines if line.id != OTHER)
    kept = {line.id for line in top}
    # None that is larger than a line is hidden in "other".
    smallest = min((each.time for each in shown.parts if each.id in kept), default=0)
    assert all(each.time <= smallest for each in shown.parts if each.id not in kept)


@given(st.lists(trees(), min_size=1, max_size=3))
def test_merged_trees_sum_to_all_of_them(several: list[TimeTree]) -> None:
    merged = merge_trees(several)
    assert merged is not None
    assert merged.total == sum(each.total for each in several) == sum(each.time for each in merged.parts)
    assert merged.device_count == sum(each.device_count for each in several)
    for each in merged.parts:
        assert each.time == sum(one.time for one_tree in several for one in one_tree.parts if one.id == each.id)
        assert sum(inner.time for inner in each.parts) <= each.time


def test_no_trees_are_no_tree() -> None:
    assert merge_trees([]) is None


def test_what_is_not_known_is_listed_last_in_every_tree() -> None:
    assert {OUTSIDE, IdleCause.UNKNOWN.id, IdleCause.LEAD_IN.id} == UNKNOWN_PART_IDS
    merged = merge_trees([tree(part("dispatch", 10), part(OUTSIDE, 90)), tree(part("sync", 50), part(OUTSIDE, 50))])
    assert merged is not None
    assert [each.id for each in merged.parts] == ["sync", "dispatch", OUTSIDE]
