"""Test matching begins and ends against the slow reference, and on the mistakes that real writers make."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import slow_reference
from tests.helpers.slow_reference import Token
from tests.helpers.trace_builder import Entry, begin, end, event, trace
from torchprof_tui.trace.build.begin_end_pairs import match_begin_end

NAMES = ["", "a", "b", "c"]


def paired(tokens: list[Token]) -> tuple[dict[int, int], list[int], list[int]]:
    matched = match_begin_end(
        np.array([token.stack for token in tokens], np.int64),
        np.array([token.time for token in tokens], np.int64),
        np.array([NAMES.index(token.name) for token in tokens], np.int32),
        np.array([token.opens for token in tokens], np.bool_),
        NAMES.index(""),
    )
    pairs = dict(zip(matched.begin.tolist(), matched.end.tolist(), strict=True))
    return pairs, matched.unclosed.tolist(), matched.orphans.tolist()


tokens = st.lists(st.builds(Token, st.integers(0, 2), st.integers(0, 9), st.sampled_from(NAMES), st.booleans()))


@given(tokens)
def test_any_tokens_pair_as_the_rules_say(made: list[Token]) -> None:
    assert paired(made) == slow_reference.pair(made)


@given(st.lists(st.sampled_from([True, True, False]), max_size=40), st.integers(1, 3))
def test_brackets_pair_as_brackets(shape: list[bool], stacks: int) -> None:
    """All stacks are matched at once: every end closes the innermost begin."""
    made: list[Token] = []
    pile: list[int] = []
    expected: dict[int, int] = {}
    for time, opens in enumerate(shape):
        if opens:
            pile.append(len(made))
            made.append(Token(0, time, "a", True))
        elif pile:
            expected[pile.pop()] = len(made)
            made.append(Token(0, time, "a", False))
    many = [Token(stack, token.time, token.name, token.opens) for stack in range(stacks) for token in made]
    pairs, unclosed, lost = paired(many)
    size = len(made)
    assert pairs == {b + size * k: e + size * k for k in range(stacks) for b, e in expected.items()}
    assert unclosed == [b + size * k for k in range(stacks) for b in sorted(pile)]
    assert lost == []


def drawn(*entries: Entry) -> list[tuple[str, int, int]]:
    """(name, start, end) of each event, µs; by start, longest first."""
    made = trace(*entries, format="chrome")
    events = [made.event(k) for k in range(len(made))]
    return [(each.name, each.start // 1000, each.end // 1000) for each in events]


def test_an_end_closes_the_begin_of_its_name_even_below_the_top() -> None:
    """`B` has no end: it is drawn to the end of its thread."""
    entries = [begin("A", 0), begin("B", 1), end("A", 10), event("Z", 10, 1)]
    assert drawn(*entries) == [("A", 0, 10), ("B", 1, 11), ("Z", 10, 11)]


def test_an_end_of_another_name_closes_an_unclaimed_begin() -> None:
    assert drawn(begin("alpha", 0), end("beta", 10)) == [("alpha", 0, 10)]


def test_an_end_before_its_begin_at_the_same_time() -> None:
    entries = [begin("A", 0), end("C", 2), begin("C", 2), end("A", 10)]
    assert drawn(*entries) == [("A", 0, 10), ("C", 2, 2)]


def test_surplus_ends_close_nothing() -> None:
    entries = [begin("alpha", 0), begin("beta", 1), end("beta", 13), end("alpha", 14), end("gamma", 5)]
    made = trace(*entries, format="chrome")
    assert [made.event(k).duration for k in range(2)] == [14_000, 12_000]
    assert made.counts.not_drawn == {"end without begin": 1}


def test_entries_out_of_order() -> None:
    entries = [begin("B", 1), end("B", 9), begin("A", 0), end("A", 10), begin("C", 2), end("C", 8)]
    assert drawn(*entries) == [("A", 0, 10), ("B", 1, 9), ("C", 2, 8)]


def test_the_same_moment_keeps_the_order_of_the_file() -> None:
    names = ["A", "B", "C"]
    entries = [*(begin(name, 0) for name in names), *(end(name, 3) for name in reversed(names))]
    made = trace(*entries, format="chrome")
    assert [(made.event(k).name, made.event(k).row) for k in range(3)] == [("A", 0), ("B", 1), ("C", 2)]


def test_only_begins_last_to_the_end_of_the_trace() -> None:
    entries = [begin("A", 0), begin("B", 1), event("other", 5, 15, tid=7)]
    assert sorted(drawn(*entries)) == [("A", 0, 20), ("B", 1, 20), ("other", 5, 20)]


def test_a_hundred_thousand_ends_in_the_wrong_order() -> None:
    """First in, first out, on one stack: each name is looked up, without a search through the stack."""
    n = 100_000
    found = match_begin_end(
        np.zeros(2 * n, np.int64),
        np.arange(2 * n, dtype=np.int64),
        np.tile(np.arange(n, dtype=np.int32), 2),
        np.arange(2 * n) < n,
        -1,
    )
    assert len(found.unclosed) == len(found.orphans) == 0
    assert dict(zip(found.begin.tolist(), found.end.tolist(), strict=True)) == {k: k + n for k in range(n)}


def wait(phase: str, name: str, start: float, number: object, cat: str = "net") -> Entry:
    return {"ph": phase, "cat": cat, "name": name, "id": number, "pid": 1, "tid": 1, "ts": start}


def test_async_events_pair_by_category_and_id_and_lie_on_rows_of_their_own() -> None:
    entries = [
        wait("b", "request", 0, "x"),
        wait("b", "request", 1, "y"),
        wait("n", "redirect", 2, "x"),
        wait("e", "request", 5, "x"),
        wait("e", "request", 9, "y"),
        wait("e", "request", 9, "z"),
        wait("b", "request", 3, "x", cat="disk"),
    ]
    made = trace(*entries, format="chrome")
    assert [(lane.kind, lane.label, lane.rows, len(lane)) for lane in made.lanes] == [
        ("async", "disk", 1, 1),
        ("async", "net", 3, 3),
    ]
    assert drawn(*entries) == [("request", 3, 9), ("request", 0, 5), ("request", 1, 9), ("redirect", 2, 2)]
    assert made.counts.drawn == 6
    assert made.counts.not_drawn == {"async end without begin": 1}
    assert made.counts.by_category == {}


@pytest.mark.parametrize("step", ["T", "p"])
def test_old_async_events_pair_by_name_too(step: str) -> None:
    entries = [wait("S", "a", 0, 1), wait("S", "b", 1, 1), wait(step, "a", 2, 1), wait("F", "a", 3, 1)]
    assert drawn(*entries) == [("a", 0, 3), ("b", 1, 3), ("a", 2, 2)]
