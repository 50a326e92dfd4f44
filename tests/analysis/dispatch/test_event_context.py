"""Test the context of an event against direct counting."""

from __future__ import annotations

import statistics

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.long_run import scale_examples
from tests.helpers.trace_builder import Entry, cpu, trace
from torchprof_tui.analysis.dispatch.event_context import (
    compute_same_name_statistics,
    find_sibling_position,
    read_event_context,
)


@st.composite
def entries(draw: st.DrawFn) -> list[Entry]:
    return [
        cpu(
            draw(st.sampled_from("abc")),
            draw(st.integers(0, 30)),
            draw(st.integers(0, 30)),
            thread=draw(st.integers(1, 2)),
        )
        for _ in range(draw(st.integers(1, 25)))
    ]


@settings(max_examples=scale_examples(2))
@given(entries())
def test_against_a_slow_count(given_entries: list[Entry]) -> None:
    shown = trace(*given_entries)
    all_events = [shown.event(number) for number in range(len(shown))]
    for event in all_events:
        parent = event.parent
        siblings = [
            other.index
            for other in all_events
            if shown.lane[other.index] == shown.lane[event.index] and (other.parent == parent)
        ]
        found = find_sibling_position(shown, event.index)
        assert (found.nth, found.sibling_count) == (siblings.index(event.index) + 1, len(siblings))
        assert found.offset == event.start - (parent.start if parent else 0)
        if parent is None or not parent.duration:
            assert found.share is None
        else:
            assert found.share == event.duration / parent.duration

        same_name = sorted((other.start, other.index) for other in all_events if other.name == event.name)
        same = compute_same_name_statistics(shown, event.index)
        durations = [shown.event(index).duration for _, index in same_name]
        assert (same.nth, same.count) == (same_name.index((event.start, event.index)) + 1, len(same_name))
        assert (same.shortest, same.longest, same.total) == (min(durations), max(durations), sum(durations))
        assert same.median == statistics.median(durations)


def test_an_unreadable_file_is_reported_in_one_line() -> None:
    found = read_event_context(trace(cpu("a", 0, 1)), 0)
    assert found.args == {}
    assert found.args_error
    assert "\n" not in found.args_error
