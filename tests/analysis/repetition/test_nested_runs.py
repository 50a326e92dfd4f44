"""Test the search for nested repetitions on made sequences: what was built is found, and nothing in random ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.helpers.long_run import scale_examples
from torchprof_tui.analysis.repetition.nested_runs import NestedRun, find_nested_runs
from torchprof_tui.trace.core.arrays import I64

LAYER = [3, 1, 4, 1, 5, 9, 2, 6]
TAIL = [20, 21, 3, 22]


def find(values: list[int]) -> list[NestedRun]:
    return find_nested_runs(np.array(values, dtype=np.int64))


def bounds_of(values: list[int]) -> list[list[int]]:
    return [run.bounds.tolist() for run in find(values)]


def tokens(count: int, layers: int, layer: list[int] = LAYER, tail: list[int] = TAIL) -> list[int]:
    return (layer * layers + tail) * count


def test_tokens_and_the_layers_in_each() -> None:
    runs = find([90, 91, *tokens(5, 4), 92])
    assert [(run.depth, run.parent, len(run)) for run in runs] == [(0, -1, 5), *[(1, 0, 4)] * 5]
    assert runs[0].bounds.tolist() == [2, 38, 74, 110, 146, 182]
    assert runs[2].bounds.tolist() == [38, 46, 54, 62, 70]


@pytest.mark.long
@settings(max_examples=scale_examples(4), deadline=None)
@given(
    layer=st.lists(st.integers(0, 9), min_size=5, max_size=24).filter(lambda found: len(set(found)) > 4),
    tail=st.lists(st.integers(20, 29), min_size=4, max_size=16).filter(lambda found: len(set(found)) > 2),
    layers=st.integers(4, 12),
    count=st.integers(4, 12),
    before=st.integers(0, 20),
    after=st.integers(0, 20),
)
@example(layer=[0, 1, 2, 3, 4], tail=[20, 21, 22, 20], layers=4, count=4, before=0, after=0)
def test_what_was_built_is_found(
    layer: list[int], tail: list[int], layers: int, count: int, before: int, after: int
) -> None:
    """Sequences of prefix + (layer × L + tail) × N + suffix are recovered exactly."""
    prefix, suffix = list(range(100, 100 + before)), list(range(200, 200 + after))
    found = bounds_of([*prefix, *tokens(count, layers, layer, tail), *suffix])
    period = len(layer) * layers + len(tail)
    starts = [before + number * period for number in range(count + 1)]
    assert starts in found
    for start in starts[:-1]:
        inner = [run for run in found if run[0] == start and run[-1] == start + len(layer) * layers]
        assert inner
        assert any(len(run) - 1 == layers for run in inner)


@pytest.mark.parametrize("names", [1, 2, 5, 60, 3000])
@pytest.mark.parametrize("size", [0, 1, 2, 5, 100, 20_000])
def test_random_sequences_have_no_repetition(names: int, size: int) -> None:
    for seed in range(5):
        values = np.random.default_rng(seed).integers(0, names, size)
        assert not find_nested_runs(values.astype(np.int64))


def test_a_kernel_that_repeats_itself_is_no_repetition() -> None:
    assert not find([7] * 1000)
    assert all(len(run) == 5 for run in find(([1, 2, 3, 4, 5, 6, 7, 8] + [9] * 40) * 5))


def test_two_repetitions_count_only_if_they_are_most_of_the_sequence() -> None:
    step = list(range(40))
    assert bounds_of(step * 2) == [[0, 40, 80]]
    assert not find([*step, *step, *range(100, 200)])


def test_two_requests_are_found_around_their_tokens() -> None:
    runs = find([*range(50, 60), *tokens(6, 4)] * 2)
    assert sorted((run.depth, len(run)) for run in runs) == sorted([(0, 2), (1, 6), (1, 6), *[(2, 4)] * 12])


def test_twice_sixteen_tokens_without_anything_between_are_thirty_two() -> None:
    assert {len(run) for run in find(tokens(32, 4)) if run.depth == 0} == {32}


class TestVariation:
    """Repetitions that are not all the same."""

    def test_a_kernel_that_changes_with_the_length_of_the_cache(self) -> None:
        values = tokens(40, 4)
        changed = [33 if value == 22 and index > len(values) // 2 else value for index, value in enumerate(values)]
        changed = [34 if value == 9 and index > len(values) // 3 else value for index, value in enumerate(changed)]
        outer = [run for run in find(changed) if run.depth == 0]
        assert [run.bounds.tolist() for run in outer] == [list(range(0, 36 * 41, 36))]

    def test_a_kernel_more_from_some_token_on(self) -> None:
        values = [*tokens(20, 4), *tokens(20, 4, tail=[20, 21, 35, 3, 22])]
        outer = [run for run in find(values) if run.depth == 0]
        assert [len(run) for run in outer] == [40]
        assert int(outer[0].bounds[-1]) == len(values)

    def test_the_layers_of_a_first_token_that_has_more_before_them(self) -> None:
        values = [*range(60, 75), *tokens(12, 4)]
        assert [run.bounds.tolist() for run in find(values) if run.depth == 0] == [list(range(15, 15 + 36 * 13, 36))]

    def test_a_first_layer_that_differs_at_its_begin(self) -> None:
        layers = [40, 41, *LAYER[2:], *LAYER * 6]
        runs = find([80, 81, *layers, 82, 83])
        assert [run.bounds.tolist() for run in runs] == [[2, 10, 18, 26, 34, 42, 50, 58]]

    def test_layers_of_two_kinds_by_turns(self) -> None:
        other = [3, 1, 4, 1, 5, 10, 11, 2, 6, 7, 8]
        same = [3, 1, 4, 1, 5, 9, 2, 6, 7, 8]
        runs = find([80, *(same + other) * 8, 81])
        assert [len(run) for run in runs] == [16]

    def test_noise_leaves_most_of_a_long_sequence_in_one_run(self) -> None:
        rng = np.random.default_rng(0)
        layer, tail = rng.integers(0, 40, 15).tolist(), rng.integers(0, 60, 18).tolist()
        values: I64 = np.array(tokens(300, 36, layer, tail))
        is_noise = rng.random(len(values)) < 0.002
        values[is_noise] = rng.integers(0, 60, int(is_noise.sum()))
        runs = find_nested_runs(values)
        outer = [run for run in runs if run.depth == 0]
        assert [len(run) for run in outer] == [300]
        assert sum(len(run) == 36 for run in runs) >= 290


def test_layers_of_many_tokens_are_not_joined_over_a_tail_that_is_like_a_layer() -> None:
    tail = [*LAYER[:5], 20, 21, *LAYER[5:], 22]
    runs = find(tokens(10, 6, LAYER, tail))
    assert [len(run) for run in runs if run.depth == 0] == [10]
    assert {len(run) for run in runs if run.depth == 1} == {6}


def test_runs_lie_in_the_repetitions_of_their_parent() -> None:
    for run, parent in ((run, runs[run.parent]) for runs in [find(tokens(9, 5))] for run in runs if run.parent >= 0):
        place = int(parent.bounds.searchsorted(run.start, side="right")) - 1
        assert parent.bounds[place] <= run.start < run.stop <= parent.bounds[place + 1]
