"""Test ancestor queries at any depth against climbing from each node separately."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.analysis.dispatch import ancestry


@pytest.fixture(params=[1, 2, 64], autouse=True)
def levels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Levels climbed one by one; the rest uses pointer doubling."""
    monkeypatch.setattr(ancestry, "POINTER_DOUBLING_DEPTH", request.param)
    return int(request.param)


@st.composite
def forests(draw: st.DrawFn) -> np.ndarray:
    """Forests in which parents precede children; deep and flat ones are equally likely."""
    size = draw(st.integers(1, 40))
    reach = draw(st.sampled_from([1, 3, 40]))
    return np.array(
        [-1 if k == 0 else draw(st.integers(max(k - reach, -1), k - 1)) for k in range(size)],
        np.int32,
    )


def list_ancestors(parent: np.ndarray, node: int) -> list[int]:
    """List the proper ancestors of a node, innermost first."""
    ancestors = []
    while (node := int(parent[node])) >= 0:
        ancestors.append(node)
    return ancestors


def flags(parent: np.ndarray, number: int) -> np.ndarray:
    return np.array([number >> k & 1 for k in range(len(parent))], np.bool_)


@given(forests(), st.integers(0, 2**40 - 1))
def test_nearest_and_outermost(parent: np.ndarray, number: int) -> None:
    mask = flags(parent, number)
    nodes = np.arange(len(parent))
    marked = [[k for k in list_ancestors(parent, node) if mask[k]] for node in nodes]
    assert ancestry.find_nearest_ancestor(parent, nodes, mask).tolist() == [ks[0] if ks else -1 for ks in marked]
    assert ancestry.find_outermost_ancestor(parent, nodes, mask).tolist() == [ks[-1] if ks else -1 for ks in marked]
    nearest_or_self = [node if mask[node] else ks[0] if ks else -1 for node, ks in enumerate(marked)]
    assert ancestry.find_nearest_ancestor_or_self(parent, mask).tolist() == nearest_or_self


@given(forests(), st.integers(0, 2**40 - 1))
def test_sums_depths_and_ancestors(parent: np.ndarray, number: int) -> None:
    mask = flags(parent, number)
    values = np.where(mask, 3 ** (np.arange(len(parent)) % 9), 0).astype(np.int64)
    total = values.copy()
    for node in range(len(parent)):
        for upper in list_ancestors(parent, node):
            total[upper] += values[node]
    assert ancestry.sum_subtrees(parent, values).tolist() == total.tolist()
    assert ancestry.include_ancestors(parent, mask).tolist() == (total > 0).tolist()
    assert ancestry.compute_depths(parent).tolist() == [
        len(list_ancestors(parent, node)) for node in range(len(parent))
    ]


@given(forests())
def test_is_ancestor_or_self(parent: np.ndarray) -> None:
    size = len(parent)
    upper, lower = np.repeat(np.arange(-1, size), size), np.tile(np.arange(size), size + 1)
    expected = [u == k or u in list_ancestors(parent, k) for u, k in zip(upper.tolist(), lower.tolist(), strict=True)]
    assert ancestry.is_ancestor_or_self(parent, upper, lower.copy()).tolist() == expected


@given(forests(), st.data())
def test_nearest_ancestor_ending_after_a_time(parent: np.ndarray, data: st.DataObject) -> None:
    end = np.array([data.draw(st.integers(0, 5)) for _ in parent], np.int64)
    for node in range(len(parent) - 1, -1, -1):  # a parent ends no earlier than its children
        if parent[node] >= 0:
            end[parent[node]] = max(end[parent[node]], end[node])
    nodes = np.arange(len(parent))
    times = np.array([data.draw(st.integers(0, 6)) for _ in parent], np.int64)
    expected = [
        next((k for k in [node, *list_ancestors(parent, node)] if end[k] >= times[node]), -1) for node in nodes.tolist()
    ]
    assert ancestry.find_ancestor_ending_after(parent, end, nodes, times).tolist() == expected


def test_a_hundred_thousand_deep() -> None:
    depth = 100_000
    parent = np.arange(-1, depth - 1, dtype=np.int32)
    every = np.arange(depth)
    top = every == 3
    assert (ancestry.find_nearest_ancestor(parent, every, top)[4:] == 3).all()
    assert (ancestry.find_outermost_ancestor(parent, every, top)[4:] == 3).all()
    assert ancestry.sum_subtrees(parent, np.ones(depth, np.int64))[:3].tolist() == [depth, depth - 1, depth - 2]
    assert ancestry.is_ancestor_or_self(parent, np.full(10, 5), every[:10]).tolist() == [k >= 5 for k in range(10)]
