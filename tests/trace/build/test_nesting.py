"""Test rows, parents and self time against the slow reference, on lanes of every shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.helpers import slow_reference
from tests.helpers.long_run import keep_some
from torchprof_tui.trace.build import nesting, pushed_events
from torchprof_tui.trace.build.nesting import divide_lanes
from torchprof_tui.trace.build.pushed_events import RowAllocator
from torchprof_tui.trace.core import arrays, thread_tasks

Lane = list[tuple[int, int]]  # (start, duration)


def nested(lanes: list[Lane], flat: list[bool] | None = None) -> tuple[list[int], list[int], list[int]]:
    """Rows, parents and self times of sorted lanes, as `nesting` computes them."""
    events = [event for lane in lanes for event in lane]
    first = np.cumsum([0, *(len(lane) for lane in lanes)])
    start = np.array([start for start, _ in events], np.int64)
    duration = np.array([duration for _, duration in events], np.int64)
    found = nesting.nest_lanes(first, np.array(flat or [False] * len(lanes), np.bool_), start, duration)
    if not any(flat or []):
        assert nesting.find_parents(first, start, duration).tolist() == found.parent.tolist()
    return found.row.tolist(), found.parent.tolist(), nesting.compute_self_durations(found, start, duration).tolist()


def expected(lanes: list[Lane], flat: list[bool] | None = None) -> tuple[list[int], list[int], list[int]]:
    rows: list[int] = []
    parents: list[int] = []
    own: list[int] = []
    for lane, level in zip(lanes, flat or [False] * len(lanes), strict=True):
        found = slow_reference.nest(lane, level)
        base = len(rows)
        rows += found.row
        parents += [parent + base if parent >= 0 else -1 for parent in found.parent]
        own += found.self_duration
    return rows, parents, own


def in_order(lane: Lane) -> Lane:
    return sorted(lane, key=lambda event: (event[0], -event[1]))


def a_lane(most: int, longest: int, size: int = 40) -> st.SearchStrategy[Lane]:
    return st.lists(st.tuples(st.integers(0, most), st.integers(0, longest)), max_size=size).map(in_order)


anything = st.one_of(a_lane(12, 6), a_lane(40, 40), a_lane(1000, 30), a_lane(10**15, 10**15, 12))
"""Crowded, crossing, mostly apart, and far apart."""


@given(
    st.lists(anything, max_size=5).flatmap(
        lambda lanes: st.tuples(st.just(lanes), st.lists(st.booleans(), min_size=len(lanes), max_size=len(lanes)))
    ),
    st.sampled_from([1, 50, 1 << 20]),
)
def test_lanes_nest_by_the_rule(made: tuple[list[Lane], list[bool]], together: int) -> None:
    lanes, flat = made
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "_PART_EVENTS", together)
        assert nested(lanes, flat) == expected(lanes, flat)


@st.composite
def a_tree(draw: st.DrawFn) -> Lane:
    """A lane that nests cleanly but for a few intervals laid across it, as steps lie across Python frames."""
    lane: Lane = []

    def grow(start: int, end: int, depth: int) -> None:
        lane.append((start, end - start))
        if depth and end - start > 4:
            cuts = sorted(draw(st.lists(st.integers(start, end), max_size=6)))
            for low, high in zip(cuts[::2], cuts[1::2], strict=False):
                grow(low, high, depth - 1)

    grow(0, 4000, 4)
    across = draw(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 1500)), max_size=5))
    return in_order(lane + across)


@given(st.lists(a_tree(), min_size=1, max_size=3))
def test_a_clean_lane_with_a_few_crossings(lanes: list[Lane]) -> None:
    assert nested(lanes) == expected(lanes)


@given(anything, st.booleans())
def test_no_row_holds_two_events_at_once(lane: Lane, flat: bool) -> None:
    rows, _, own = nested([lane], [flat])
    last: dict[int, int] = {}
    for (start, duration), row in zip(lane, rows, strict=True):
        assert last.get(row, -1) <= start
        last[row] = start + max(duration, 1)
    assert all(0 <= self_duration <= duration for self_duration, (_, duration) in zip(own, lane, strict=True))


@given(
    st.lists(st.one_of(anything, a_tree()), max_size=4).flatmap(
        lambda lanes: st.tuples(st.just(lanes), st.lists(st.booleans(), min_size=len(lanes), max_size=len(lanes)))
    ),
    st.sampled_from([1, 2, 5, 20]),
)
def test_lanes_nest_by_the_rule_in_parts_of_any_size(made: tuple[list[Lane], list[bool]], size: int) -> None:
    lanes, flat = made
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "_PART_EVENTS", size)
        patch.setattr(thread_tasks, "count_cores", lambda: 3)
        patch.setattr(thread_tasks, "MIN_SLICE_SIZE", 1)
        patch.setattr(thread_tasks, "_BLOCK", 1)
        patch.setattr(arrays, "_BLOCK_SIZE", 2)
        assert nested(lanes, flat) == expected(lanes, flat)


def test_frames_that_are_open_all_the_time_do_not_keep_a_lane_together() -> None:
    lane: Lane = [(0, 10_000), (1, 9_990), (2, 4_000), *((10 * k, 5) for k in range(1, 300)), (5_000, 100), (6_000, 9)]
    start, duration = np.array(in_order(lane), np.int64).T
    parts = divide_lanes(np.array([0, len(lane)]), np.array([False]), start, duration, 20)
    assert int(np.diff(parts.first).max()) < 60
    assert nested([in_order(lane)]) == expected([in_order(lane)])


def test_enclosing_frames_are_looked_through_up_to_a_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each level, a frame holds four events, one after the other, and the frame of the next level."""
    lane: Lane = []
    for level in range(5):
        lane += [(100 * level, 1000 - 200 * level), *((100 * level + 10 * k, 10) for k in range(1, 5))]
    start, duration = np.array(in_order(lane), np.int64).T
    for depth, bounds in enumerate([[0], [0, 1, 3, 5], [0, 1, 3, 5, 6, 8, 10], [0, 1, 3, 5, 6, 8, 10, 11, 13, 15]]):
        monkeypatch.setattr(nesting, "_MAX_DEPTH", depth)
        parts = divide_lanes(np.array([0, len(lane)]), np.array([False]), start, duration, 2)
        assert parts.first.tolist() == [*bounds, len(lane)]
        rows = [(bound + 4) // 5 for bound in bounds]
        assert (parts.row.tolist(), parts.parent.tolist()) == (rows, [5 * row - 5 if row else -1 for row in rows])


def test_lanes_are_batched_up_to_a_size() -> None:
    first = np.array([0, 3, 5, 5, 9, 20, 21])
    assert list(nesting._batch_lanes(first, 5)) == [slice(0, 3), slice(3, 4), slice(4, 5), slice(5, 6)]
    assert list(nesting._batch_lanes(first, 9)) == [slice(0, 4), slice(4, 5), slice(5, 6)]
    assert list(nesting._batch_lanes(np.array([0]), 5)) == []


@pytest.mark.parametrize("beyond", [1, 2])
def test_an_event_that_ends_one_nanosecond_later_is_not_contained(beyond: int) -> None:
    assert nested([[(0, 5), (3, 2)]]) == ([0, 1], [-1, 0], [3, 2])
    assert nested([[(0, 5), (3, 2 + beyond)]]) == ([0, 1], [-1, -1], [5, 2 + beyond])


def test_the_first_of_equals_is_the_outer_one() -> None:
    assert nested([[(0, 10), (0, 10), (0, 10)]]) == ([0, 1, 2], [-1, 0, 1], [0, 0, 10])


def test_a_mark_is_nested_in_open_events_and_not_in_ended_ones() -> None:
    assert nested([[(0, 10), (5, 0), (10, 0)]]) == ([0, 1, 0], [-1, 0, -1], [10, 0, 0])


def test_steps_that_cross_frames_do_not_pile_up() -> None:
    """Each step opens inside the frame that closed the one before: the rows stay few, however many steps."""
    lane: Lane = [(0, 100_000)]
    for k in range(50):
        at = 1000 * (k + 1)
        lane += [(at - 20, 40), (at - 15, 30), (at - 10, 20), (at, 999), (at + 100, 500), (at + 200, 300)]
    rows, parents, _ = nested([in_order(lane)])
    assert (rows, parents) == expected([in_order(lane)])[:2]
    assert max(rows) == 6


def test_events_that_overlap_on_a_stream_spill_to_further_rows() -> None:
    stream = [(0, 10), (5, 10), (8, 1), (9, 10), (20, 1)]
    assert nested([stream], [True]) == ([0, 1, 2, 2, 0], [-1] * 5, [10, 10, 1, 10, 1])


@pytest.mark.parametrize("flat", keep_some([False, True], 1))
def test_everything_crosses_everything(flat: bool) -> None:
    """A hundred thousand events, each crossing all before it: rows as many as events, time not squared."""
    n = 100_000
    rows, parents, own = nested([[(k, n + k) for k in range(n)]], [flat])
    assert rows == list(range(n))
    assert set(parents) == {-1}
    assert own[0] == n


@pytest.mark.parametrize("crossing_share", [0.0, 0.02, 0.2, 1.0])
def test_events_in_free_rows_need_not_be_looked_at(monkeypatch: pytest.MonkeyPatch, crossing_share: float) -> None:
    """Rows are the same whether only events in held rows are placed, in rounds, or all that may be pushed down."""
    random = np.random.default_rng(7)
    lane: Lane = [(0, 10**6)]
    for start in range(0, 200_000, 50):
        lane += [(start, 45), (start + 2, 20), (start + 3, 4), (start + 10, 8), (start + 30, 10), (start + 32, 3)]
        if random.random() < crossing_share:
            lane += [(start + int(random.integers(0, 45)), int(random.integers(20, 3000)))]
    lanes = [in_order(lane)]
    rounds = nested(lanes)
    monkeypatch.setattr(pushed_events, "_MAX_ROUNDS", 0)
    assert rounds == nested(lanes)


@pytest.mark.parametrize("n", [1 << 16, (1 << 16) + 1, 1_000_000])
def test_very_deep(n: int) -> None:
    start = np.arange(n, dtype=np.int64)
    found = nesting.nest_lanes(np.array([0, n]), np.array([False]), start, 2 * n - 2 * start)
    assert np.array_equal(found.row, start)
    assert np.array_equal(found.parent, start - 1)


def test_a_hundred_thousand_lanes_and_times_that_do_not_fit_end_to_end() -> None:
    n = 100_000
    first = np.arange(0, 2 * n + 1, 2)
    start = np.tile(np.array([0, 5], np.int64), n)
    duration = np.tile(np.array([2**61, 3], np.int64), n)
    found = nesting.nest_lanes(first, np.zeros(n, np.bool_), start, duration)
    assert np.array_equal(found.row, np.tile([0, 1], n))
    assert np.array_equal(found.parent, np.where(start == 5, np.arange(2 * n) - 1, -1))


def test_nothing_at_all() -> None:
    assert nested([]) == ([], [], [])
    assert nested([[], []]) == ([], [], [])


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30), st.booleans()), max_size=60))
@example([(2, 5, False), (3, 1, True), (3, 5, False), (4, 5, False), (9, 9, True), (8, 1, False), (16, 1, False)])
def test_held_rows_against_a_dict(calls: list[tuple[int, int, bool]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pushed_events, "_FIRST_ROWS", 2)
        held = RowAllocator()
    ends: dict[int, int] = {}
    for now, (row, length, hold) in enumerate(calls):
        if hold:
            held.hold_row(row, now + length)
            ends[row] = now + length
        free = row
        while ends.get(free, -1) > now:
            free += 1
        assert held.find_free_row(row, now) == free
