"""Test the indexes over event tables: what overlaps a range, and which events have a name."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.random import default_rng

from tests.helpers.paths import SAMPLES
from tests.helpers.trace_builder import annotation, cpu, runtime, trace
from torchprof_tui.analysis.dispatch.ancestry import find_outermost_ancestor
from torchprof_tui.analysis.patterns.engine.check_scope import range_scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable, OverlapIndex, as_slice
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.launch_owners import find_launch_ancestors
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.trace.core.arrays import I64, argsort_stable, is_in
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import Kind

NAMES = ["train_gpt_eager", "train_gpt_starved", "multi_stream_overlap", "generate_graph"]


@pytest.fixture(params=NAMES)
def checker(request: pytest.FixtureRequest) -> Checker:
    return Checker(load_trace(str(SAMPLES / f"{request.param}.pt.trace.json.gz"), cache=False))


def ranges(checker: Checker) -> list[tuple[int, int]]:
    """List random ranges of a trace, long and short, and some that reach beyond it."""
    t0, t1 = checker.trace.span
    random = default_rng(7)
    ends = random.integers(t0 - 10, t1 + 10, (30, 2))
    short = [
        (int(start), int(start) + int(length)) for start, length in zip(ends[:, 0], range(1, 2000, 67), strict=True)
    ]
    return [(int(start), int(end) + 1) for start, end in np.sort(ends, axis=1)] + short


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 1024, 5000])
def test_blocks_find_what_a_mask_finds(count: int) -> None:
    random = default_rng(count)
    start = np.sort(random.integers(0, 10_000, count))
    start[count // 2 :] = np.sort(random.integers(0, 10_000, count - count // 2))  # a second lane
    end = start + random.integers(0, 40, count)
    end[::97] += 3000
    index = OverlapIndex(start, end)
    for t0, t1 in [*random.integers(-100, 11_000, (60, 2)).tolist(), (4000, 4001), (0, 10_000), (20_000, 30_000)]:
        expected = np.flatnonzero((start < t1) & (np.maximum(end, start + 1) > t0))
        np.testing.assert_array_equal(index.find(t0, t1), expected)


def test_neighbours_are_taken_as_a_slice() -> None:
    assert as_slice(np.array([3, 4, 5])) == slice(3, 6)
    for indexes in (np.array([3, 5]), np.zeros(0, np.int64)):
        assert as_slice(indexes) is indexes
    rows: I64 = np.arange(10)
    table = EventTable(rows, rows * 10, rows * 10 + 5, rows.astype(np.int32))
    assert table.select(rows > 6).row.tolist() == [7, 8, 9]
    assert table.select_overlapping(20, 31).row.tolist() == [2, 3]
    assert table.select_overlapping(6, 8).row.tolist() == []


@pytest.mark.parametrize(("low", "high"), [(0, 5), (-(10**12), 10**12), (-(2**62), 2**62)])
def test_stable_order(low: int, high: int) -> None:
    for count in (0, 1, 2, 3, 1000):
        values = default_rng(count).integers(low, high, count)
        np.testing.assert_array_equal(argsort_stable(values), np.argsort(values, kind="stable"))


def test_rows_among_others() -> None:
    random = default_rng(3)
    for size in (0, 1, 50):
        rows, wanted = random.integers(-1, 400, 300), random.integers(-1, 300, size)
        np.testing.assert_array_equal(is_in(rows, wanted), np.isin(rows, wanted))
        np.testing.assert_array_equal(is_in(rows[:0], wanted), np.zeros(0, np.bool_))


def test_causes_of_all_gaps_clipped_are_those_of_the_clipped_gaps(checker: Checker) -> None:
    finder = checker.gap_finder
    for t0, t1 in ranges(checker):
        gaps = finder.clip(t0, t1)
        for cause in IdleCause:
            for device in checker.tables.devices:
                expected = finder.list_cause_intervals(gaps, cause, device)
                found = finder.find_cause_intervals(cause, device).clip(t0, t1)
                np.testing.assert_array_equal(found.starts, expected.starts)
                np.testing.assert_array_equal(found.ends, expected.ends)


def test_ancestors_of_all_launches_selected_are_those_of_the_scope(checker: Checker) -> None:
    tables = checker.tables
    for t0, t1 in ranges(checker):
        view = checker.view(range_scope(t0, t1))
        launch = view.work.launch
        for found, mask in (
            (find_launch_ancestors(tables, r"aten::clone$", Kind.OP), tables.mark_ops(r"aten::clone$")),
            (find_launch_ancestors(tables, r"aten::\w+"), tables.mark_rows(tables.match_names(r"aten::\w+").row)),
        ):
            expected = np.where(
                launch >= 0, find_outermost_ancestor(view.trace.parent, np.maximum(launch, 0), mask), -1
            )
            np.testing.assert_array_equal(found[view.work_in_scope], expected)


def _make_tables() -> TraceTables:
    names = ["aten::mm", *["aten::add"] * 40, "aten::mul", *["aten::sub"] * 40, "aten::mm"]
    ops = [cpu(name, 10 * index, 5, thread=1 + index % 2) for index, name in enumerate(names)]
    return TraceTables(trace(*ops, annotation("aten::mm", 2000, 5), runtime("cudaMalloc", 3000, 5, 1)))


@pytest.mark.parametrize("pattern", [r"aten::mm$", r"aten::(mm|mul)$", r"aten::add", r"aten::", r"nothing"])
@pytest.mark.parametrize("kinds", [(), (Kind.OP,), (Kind.RUNTIME,), (Kind.OP, Kind.RUNTIME)])
def test_matches_are_those_of_every_single_event(pattern: str, kinds: tuple[Kind, ...]) -> None:
    tables = _make_tables()
    found = tables.match_names(pattern, *kinds)
    wanted = kinds or (Kind.OP, Kind.ANNOTATION)
    names, kind = tables.trace.names, np.asarray(tables.trace.kind)
    expected = [
        row
        for row in range(len(tables.trace))
        if kind[row] in wanted and re.match(pattern, names[int(tables.trace.name[row])])
    ]
    assert found.row.tolist() == expected
    assert found.start.tolist() == tables.trace.start[expected].tolist()
    assert [names[number] for number in found.name.tolist()] == [names[int(tables.trace.name[row])] for row in expected]


@pytest.mark.parametrize("pattern", [r"aten::mm$", r"aten::(mm|mul)$", r"aten::", r"nothing"])
def test_marked_ops_are_those_that_match(pattern: str) -> None:
    tables = _make_tables()
    assert np.flatnonzero(tables.mark_ops(pattern)).tolist() == tables.match_names(pattern, Kind.OP).row.tolist()
