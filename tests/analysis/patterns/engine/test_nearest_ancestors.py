"""Test ancestors against walking up one event at a time."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.trace_builder import annotation, cpu, kernel, runtime, trace
from torchprof_tui.analysis.dispatch.ancestry import mark_with_ancestors, nearest_ancestor
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace


def ancestors_of(shown: Trace, event: int) -> list[int]:
    """All ancestors, innermost first."""
    ancestors = []
    while (event := int(shown.parent[event])) >= 0:
        ancestors.append(event)
    return ancestors


@pytest.fixture(scope="module")
def shown() -> Trace:
    """A trace with random nesting: ranges and ops split at random points, and launches between them."""
    chance = np.random.default_rng(5)
    entries = []

    def fill(start: int, end: int, depth: int) -> None:
        if end - start < 4 or depth > 7:
            return
        entries.append((annotation if chance.random() < 0.4 else cpu)(f"at {depth}", start, end - start))
        middle = int(chance.integers(start + 1, end))
        fill(start + 1, middle, depth + 1)
        fill(middle, end - 1, depth + 1)

    for number in range(8):
        fill(number * 100, number * 100 + 90, 0)
        entries.append(runtime("cudaLaunchKernel", number * 100 + 91, 2, corr=number + 1))
        entries.append(kernel("k", number * 100 + 95, 2, corr=number + 1))
    return trace(*entries)


def test_nearest_and_outermost_are_what_climbing_finds(shown: Trace) -> None:
    every = np.arange(len(shown))
    ops = np.asarray(shown.kind) == Kind.OP
    inner, outer = nearest_ancestor(shown, every), TraceTables(shown).outermost_ancestor(every, ops)
    ranges = nearest_ancestor(shown, every, Kind.ANNOTATION)
    for event in range(len(shown)):
        op_ancestors = [ancestor for ancestor in ancestors_of(shown, event) if ops[ancestor]]
        assert inner[event] == (op_ancestors[0] if op_ancestors else -1)
        assert outer[event] == (op_ancestors[-1] if op_ancestors else -1)
        range_ancestors = [
            ancestor for ancestor in ancestors_of(shown, event) if shown.kind[ancestor] == Kind.ANNOTATION
        ]
        assert ranges[event] == (range_ancestors[0] if range_ancestors else -1)
    assert len(np.unique(inner)) > 10  # the tree is deep enough to tell the two apart
    assert (inner != outer).any()


@pytest.mark.parametrize("stride", [1, 3, 11, 1000])
def test_tables_find_the_ancestors_of_few_marked_events(shown: Trace, stride: int) -> None:
    every, marked, tables = np.arange(len(shown)), np.arange(len(shown)) % stride == 0, TraceTables(shown)
    climbed = [[above for above in ancestors_of(shown, event) if marked[above]] for event in range(len(shown))]
    assert tables.innermost_ancestor(every, marked).tolist() == [found[0] if found else -1 for found in climbed]
    assert tables.outermost_ancestor(every, marked).tolist() == [found[-1] if found else -1 for found in climbed]


def test_with_ancestors_marks_each_event_and_all_above_it(shown: Trace) -> None:
    chosen = np.flatnonzero(np.arange(len(shown)) % 7 == 3)
    expected = {event for row in chosen.tolist() for event in (row, *ancestors_of(shown, row))}
    assert set(np.flatnonzero(mark_with_ancestors(shown, chosen)).tolist()) == expected
    assert len(chosen) < len(expected) < len(shown)


def test_of_no_events_there_is_nothing_above(shown: Trace) -> None:
    none = np.zeros(0, np.int64)
    assert len(nearest_ancestor(shown, none)) == 0
    assert len(TraceTables(shown).outermost_ancestor(none, np.ones(len(shown), np.bool_))) == 0
    assert not mark_with_ancestors(shown, none).any()
