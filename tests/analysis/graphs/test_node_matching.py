"""Interleave two streams: against all interleavings of short ones."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.analysis.graphs.node_matching import FORBIDDEN, match_two_streams, score_calls


def enumerate_calls(first: list[int], second: list[int], scores: np.ndarray) -> tuple[list[int], list[int]]:
    """Try every interleaving: the call of each kernel that all best ones agree on, else -1."""
    n, m = len(first), len(second)
    best = FORBIDDEN // 2
    found: list[tuple[list[int], list[int]]] = []
    for chosen in combinations(range(n + m), n):
        rest = [call for call in range(n + m) if call not in chosen]
        pairs = [*zip(first, chosen, strict=True), *zip(second, rest, strict=True)]
        score = sum(int(scores[kind, call]) for kind, call in pairs)
        if score > best:
            best, found = score, []
        if score == best:
            found.append((list(chosen), rest))
    if not found:
        return [-1] * n, [-1] * m
    sides = [[agreed[side] for agreed in found] for side in (0, 1)]
    return tuple([calls[0] if len(set(calls)) == 1 else -1 for calls in zip(*side, strict=True)] for side in sides)  # type: ignore[return-value]


@given(
    first=st.lists(st.integers(0, 2), min_size=1, max_size=5),
    second=st.lists(st.integers(0, 2), min_size=1, max_size=4),
    data=st.data(),
)
def test_the_calls_are_those_that_all_best_interleavings_agree_on(
    first: list[int], second: list[int], data: st.DataObject
) -> None:
    size = len(first) + len(second)
    row = st.lists(st.sampled_from([0, 1, 2, FORBIDDEN]), min_size=size, max_size=size)
    scores = np.array([data.draw(row) for _ in range(3)], np.int64)
    calls = match_two_streams(np.array(first), np.array(second), scores)
    assert tuple(each.tolist() for each in calls) == enumerate_calls(first, second, scores)


def test_names_of_kernels_suit_their_ops() -> None:
    kernels = ["void at::native::vectorized_elementwise_kernel<8, at::native::cos_kernel_cuda>", "softmax_warp_forward"]
    ops = ["aten::cos", "aten::_softmax", "aten::mul", ""]
    assert score_calls(kernels, ops).tolist() == [[2, 0, 0, 0], [0, 2, 0, 0]]


def test_a_product_suits_every_op_that_multiplies() -> None:
    names = ["nvjet_sm90_hsh_64x64_64x13_4x2_h_bz_bias_TNT"]
    assert score_calls(names, ["aten::addmm", "aten::add", "aten::bmm"]).tolist() == [[2, 0, 2]]
