"""Alignment of two sequences: the longest where that is affordable, always ascending pairs of equal labels."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.analysis.alignment import sequence_alignment
from torchprof_tui.analysis.alignment.sequence_alignment import Pairs, align_sequences, pair_by_occurrence

Element = tuple[int, int]  # label, digest of one of that label


def align(a: list[Element], b: list[Element]) -> Pairs:
    labels = [np.array([label for label, _ in side], np.int64) for side in (a, b)]
    digests = [np.array([100 * label + digest for label, digest in side], np.int64) for side in (a, b)]
    return align_sequences(labels[0], labels[1], digests[0], digests[1])


def count_longest(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """The length of the longest common subsequence of labels, by recursion."""

    @cache
    def longest(i: int, j: int) -> int:
        if i == len(a) or j == len(b):
            return 0
        paired = 1 + longest(i + 1, j + 1) if a[i] == b[j] else 0
        return max(longest(i + 1, j), longest(i, j + 1), paired)

    return longest(0, 0)


sequences = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=8)


@given(sequences, sequences)
def test_alignment_is_the_longest(a: list[Element], b: list[Element]) -> None:
    pairs = align(a, b)
    assert_valid(pairs, a, b)
    assert len(pairs) == count_longest(tuple(label for label, _ in a), tuple(label for label, _ in b))


def assert_valid(pairs: Pairs, a: list[Element], b: list[Element]) -> None:
    assert all(a[i][0] == b[j][0] for i, j in pairs)
    assert all(first[0] < second[0] and first[1] < second[1] for first, second in pairwise(pairs))


@given(sequences, sequences)
def test_bounded_alignment_is_valid(a: list[Element], b: list[Element]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequence_alignment, "MAX_CELLS", 2)
        assert_valid(align(a, b), a, b)


def test_equal_digests_decide_between_equal_labels() -> None:
    assert align([(0, 0), (1, 0)], [(1, 0), (0, 0), (0, 1), (1, 0)]) in ([(0, 1), (1, 3)],)
    assert align([(0, 5)], [(0, 1), (0, 5), (0, 2)]) == [(0, 1)]


def test_long_sequences_are_split_at_elements_that_occur_once() -> None:
    a: list[Element] = [(k % 7, k) for k in range(3000)]
    b = [element for element in a if element[1] % 3]  # a third is missing, and the ends are equal
    assert len(align(a, b)) == len(b)


def test_long_sequences_without_unique_elements_are_paired_by_occurrence() -> None:
    a: list[Element] = [(k % 7, 0) for k in range(3000)]
    b: list[Element] = [(k % 5, 1) for k in range(3000)]
    pairs = align(a, b)
    assert_valid(pairs, a, b)
    assert len(pairs) > 100


def test_pairs_by_occurrence_need_no_order() -> None:
    left, right = np.array([1, 2, 1]), np.array([2, 1, 3, 1])
    assert pair_by_occurrence(left, right) == [(0, 1), (1, 0), (2, 3)]
