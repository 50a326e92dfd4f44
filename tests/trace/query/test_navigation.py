"""Test every query from event to event against a search over all events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.trace_builder import cpu, kernel, step, trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query import navigation

ENTRIES = st.lists(
    st.one_of(
        st.builds(cpu, st.sampled_from("abc"), st.integers(0, 40), st.integers(0, 20), st.sampled_from([1, 2])),
        st.builds(kernel, st.sampled_from("ab"), st.integers(0, 40), st.integers(0, 9)),
    ),
    min_size=1,
    max_size=25,
)


def made_of(entries: list) -> Trace:
    return trace(*entries, ns=True)


def end(made: Trace, event: int) -> int:
    return int(made.start[event]) + max(int(made.duration[event]), 1)


def distance(made: Trace, event: int, time: int) -> int:
    """Distance of a time to the nearest nanosecond of an event."""
    return min(abs(ns - time) for ns in range(int(made.start[event]), end(made, event)))


@given(ENTRIES)
def test_the_neighbours_in_a_row(entries: list) -> None:
    made = made_of(entries)
    for event in range(len(made)):
        row = [
            other
            for other in range(len(made))
            if made.lane[other] == made.lane[event] and made.row[other] == made.row[event]
        ]
        position = row.index(event)
        for offset in (-2, -1, 0, 1, 2):
            expected = row[position + offset] if 0 <= position + offset < len(row) else -1
            assert navigation.find_row_neighbour(made, made.row_index, event, offset) == expected


@given(ENTRIES, st.integers(-5, 70))
def test_children_and_the_nearest_of_them(entries: list, time: int) -> None:
    made = made_of(entries)
    for event in range(len(made)):
        below = [other for other in range(len(made)) if made.parent[other] == event]
        assert navigation.children(made, event).tolist() == below
        check_nearest(made, below, time, navigation.nearest_child(made, event, time))


@given(ENTRIES, st.integers(-5, 70))
def test_the_nearest_outermost_event_of_a_lane(entries: list, time: int) -> None:
    made = made_of(entries)
    for number, lane in enumerate(made.lanes):
        outermost = [event for event in range(lane.first, lane.last) if made.parent[event] < 0]
        check_nearest(made, outermost, time, navigation.nearest_on_lane(made, number, time))


def check_nearest(made: Trace, candidates: list[int], time: int, found: int) -> None:
    best = max(candidates, key=lambda event: (-distance(made, event, time), event), default=-1)
    assert found == best


def steps_of(made: Trace, *numbers: int) -> list[int]:
    return [made.steps[number].number if number >= 0 else -1 for number in numbers]


def test_steps_at_and_beside_a_time() -> None:
    made = trace(cpu("first", 0, 1), step(3, 10, 20), step(4, 30, 20), step(5, 60, 10), ns=True)
    at = [navigation.step_at(made.steps, time) for time in (5, 10, 29, 30, 55, 69, 70)]
    assert steps_of(made, *at) == [-1, 3, 3, 4, -1, 5, -1]
    later = [navigation.find_adjacent_step(made.steps, time, later=True) for time in (5, 10, 29, 30, 55, 60, 80)]
    assert steps_of(made, *later) == [3, 4, 4, 5, 5, -1, -1]
    earlier = [navigation.find_adjacent_step(made.steps, time, later=False) for time in (5, 10, 29, 30, 55, 60, 80)]
    assert steps_of(made, *earlier) == [-1, -1, -1, 3, 4, 4, 5]


def test_of_steps_that_overlap_the_one_that_started_last_counts() -> None:
    made = trace(step(1, 0, 10, thread=1), step(2, 4, 10, thread=2), step(3, 20, 10, thread=1), ns=True)
    assert steps_of(made, *(navigation.step_at(made.steps, time) for time in (2, 5, 12))) == [1, 2, 2]
    assert steps_of(
        made,
        navigation.find_adjacent_step(made.steps, 5, later=False),
        navigation.find_adjacent_step(made.steps, 5, later=True),
    ) == [
        1,
        3,
    ]


def test_a_trace_without_steps() -> None:
    made = trace(cpu("a", 0, 1))
    assert navigation.step_at(made.steps, 0) == -1
    assert navigation.find_adjacent_step(made.steps, 0, later=True) == -1
    assert navigation.find_adjacent_step(made.steps, 0, later=False) == -1


@given(ENTRIES, st.integers(0, 60))
def test_the_innermost_event_is_reached_child_by_child(entries: list, time: int) -> None:
    made = made_of(entries)
    for event in range(len(made)):
        innermost = event
        while (child := navigation.nearest_child(made, innermost, time)) >= 0 and made.start[child] <= time < end(
            made, child
        ):
            innermost = child
        assert navigation.innermost_at(made, event, time) == innermost
