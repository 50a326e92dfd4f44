"""Align two sequences of keys: a longest common subsequence, with bounded cost.

Two elements may be paired where their labels are equal; between alignments with as many pairs, that with more equal
digests (the subtrees below them are equal) is taken. Equal ends are paired first. A remaining rectangle of up to
`MAX_CELLS` is solved exactly by dynamic programming (Wagner and Fischer, 1974); a larger one is split at elements that
occur once on both sides (patience diff), and what then is still too large is paired by order of occurrence.
"""

from __future__ import annotations

import bisect

import numpy as np

from torchprof_tui.trace.core.arrays import I64, Array

MAX_CELLS = 1_000_000  # cells of one table: 4 MB, and a few milliseconds

_LABEL_WEIGHT = 1024
"""Weight of a pair with equal labels; equal digests add 1. A table has at most 1,000 pairs: the most pairs win, and
equal digests decide between as many."""

Pairs = list[tuple[int, int]]


def align_sequences(labels_a: I64, labels_b: I64, digests_a: Array, digests_b: Array) -> Pairs:
    """Align two sequences: pairs of indices, ascending in both. Where `digests` are equal, `labels` must be."""
    pairs: Pairs = []
    _align_range((labels_a, labels_b, digests_a, digests_b), (0, len(labels_a), 0, len(labels_b)), pairs, True)
    pairs.sort()
    return pairs


_Sequences = tuple[I64, I64, Array, Array]


def _align_range(keys: _Sequences, bounds: tuple[int, int, int, int], pairs: Pairs, split: bool) -> None:
    """Align `a[first_a:last_a]` with `b[first_b:last_b]` and append the pairs."""
    labels_a, labels_b, digests_a, digests_b = keys
    first_a, last_a, first_b, last_b = bounds
    common = _count_equal(digests_a[first_a:last_a], digests_b[first_b:last_b])
    pairs.extend((first_a + k, first_b + k) for k in range(common))
    first_a, first_b = first_a + common, first_b + common
    common = _count_equal(digests_a[first_a:last_a][::-1], digests_b[first_b:last_b][::-1])
    pairs.extend((last_a - 1 - k, last_b - 1 - k) for k in range(common))
    last_a, last_b = last_a - common, last_b - common
    rows, columns = last_a - first_a, last_b - first_b
    if not rows or not columns:
        return
    if rows * columns <= MAX_CELLS:
        _solve_exactly(keys, (first_a, last_a, first_b, last_b), pairs)
        return
    if not split:
        in_order = _keep_ascending(pair_by_occurrence(labels_a[first_a:last_a], labels_b[first_b:last_b]))
        pairs.extend((first_a + i, first_b + j) for i, j in in_order)
        return
    # elements that occur once on both sides, in the longest run that ascends on both
    values_a, index_a, count_a = np.unique(digests_a[first_a:last_a], return_index=True, return_counts=True)
    values_b, index_b, count_b = np.unique(digests_b[first_b:last_b], return_index=True, return_counts=True)
    common_values = np.intersect1d(values_a[count_a == 1], values_b[count_b == 1], assume_unique=True)
    once_a = index_a[np.searchsorted(values_a, common_values)]
    once_b = index_b[np.searchsorted(values_b, common_values)]
    order = np.argsort(once_a)
    anchors = _keep_ascending(list(zip(once_a[order].tolist(), once_b[order].tolist(), strict=True)))
    at_a, at_b = first_a, first_b
    for i, j in [*anchors, (rows, columns)]:
        gap = (at_a, first_a + i, at_b, first_b + j)
        if gap[0] < gap[1] and gap[2] < gap[3]:
            _align_range(keys, gap, pairs, False)
        if i < rows:
            pairs.append((first_a + i, first_b + j))
        at_a, at_b = first_a + i + 1, first_b + j + 1


def _count_equal(left: Array, right: Array) -> int:
    length = min(len(left), len(right))
    different = np.flatnonzero(left[:length] != right[:length])
    return int(different[0]) if len(different) else length


def _solve_exactly(keys: _Sequences, bounds: tuple[int, int, int, int], pairs: Pairs) -> None:
    """Append the heaviest common subsequence of a rectangle, by dynamic programming."""
    first_a, last_a, first_b, last_b = bounds
    labels_a, labels_b = keys[0][first_a:last_a], keys[1][first_b:last_b]
    digests_a, digests_b = keys[2][first_a:last_a], keys[3][first_b:last_b]
    rows, columns = len(labels_a), len(labels_b)
    best = np.zeros((rows + 1, columns + 1), np.int32)  # best[i, j]: of the first i and the first j elements
    for i in range(rows):
        weight = _LABEL_WEIGHT * (labels_b == labels_a[i]) + (digests_b == digests_a[i])
        candidate = np.where(weight > 0, best[i, :-1] + weight, 0)
        np.maximum.accumulate(np.maximum(best[i, 1:], candidate), out=best[i + 1, 1:])
    i, j = rows, columns
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((first_a + i, first_b + j))


def pair_by_occurrence(left: I64, right: I64) -> Pairs:
    """Pair the k-th occurrence of each label with its k-th occurrence on the other side, in any order."""
    positions: dict[int, list[int]] = {}
    for index, label in enumerate(right.tolist()):
        positions.setdefault(label, []).append(index)
    used: dict[int, int] = {}
    pairs: Pairs = []
    for index, label in enumerate(left.tolist()):
        number = used.get(label, 0)
        if number < len(positions.get(label, ())):
            used[label] = number + 1
            pairs.append((index, positions[label][number]))
    return pairs


def _keep_ascending(pairs: Pairs) -> Pairs:
    """Keep a longest run of pairs, ascending in the first index, that also ascends in the second."""
    ends: list[int] = []  # the smallest last second index of a run of each length
    at: list[int] = []
    previous = [-1] * len(pairs)
    for number, (_, second) in enumerate(pairs):
        length = bisect.bisect_left(ends, second)
        if length:
            previous[number] = at[length - 1]
        if length == len(ends):
            ends.append(second)
            at.append(number)
        else:
            ends[length], at[length] = second, number
    kept: Pairs = []
    number = at[-1] if at else -1
    while number >= 0:
        kept.append(pairs[number])
        number = previous[number]
    return kept[::-1]
