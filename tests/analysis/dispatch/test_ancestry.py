"""Questions about ancestors, however deep, against climbing from every place on its own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.analysis.dispatch import ancestry


@pytest.fixture(params=[1, 2, 64], autouse=True)
def levels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """So many are climbed one by one; the rest is found by doubling."""
    monkeypatch.setattr(ancestry, "POINTER_DOUBLING_DEPTH", request.param)
    return int(request.param)


@st.composite
def forests(draw: st.DrawFn) -> np.ndarray:
    """Parents come first; deep ones are as likely as flat ones."""
    size = draw(st.integers(1, 40))
    reach = draw(st.sampled_from([1, 3, 40]))
    return np.array(
        [-1 if k == 0 else draw(st.integers(max(k - reach, -1), k - 1)) for k in range(size)],
        np.int32,
    )


def above(parent: np.ndarray, place: int) -> list[int]:
    """Innermost first, the place itself left out."""
    found = []
    while (place := int(parent[place])) >= 0:
        found.append(place)
    return found


def flags(parent: np.ndarray, number: int) -> np.ndarray:
    return np.array([number >> k & 1 for k in range(len(parent))], np.bool_)


@given(forests(), st.integers(0, 2**40 - 1))
def test_nearest_and_outermost(parent: np.ndarray, number: int) -> None:
    wanted = flags(parent, number)
    places = np.arange(len(parent))
    marked = [[k for k in above(parent, place) if wanted[k]] for place in places]
    assert ancestry.find_nearest_ancestor(parent, places, wanted).tolist() == [ks[0] if ks else -1 for ks in marked]
    assert ancestry.find_outermost_ancestor(parent, places, wanted).tolist() == [ks[-1] if ks else -1 for ks in marked]
    own = [place if wanted[place] else ks[0] if ks else -1 for place, ks in enumerate(marked)]
    assert ancestry.find_nearest_ancestor_or_self(parent, wanted).tolist() == own


@given(forests(), st.integers(0, 2**40 - 1))
def test_sums_depths_and_all_above(parent: np.ndarray, number: int) -> None:
    chosen = flags(parent, number)
    own = np.where(chosen, 3 ** (np.arange(len(parent)) % 9), 0).astype(np.int64)
    total = own.copy()
    for place in range(len(parent)):
        for upper in above(parent, place):
            total[upper] += own[place]
    assert ancestry.sum_subtrees(parent, own).tolist() == total.tolist()
    assert ancestry.include_ancestors(parent, chosen).tolist() == (total > 0).tolist()
    assert ancestry.compute_depths(parent).tolist() == [len(above(parent, place)) for place in range(len(parent))]


@given(forests())
def test_is_above(parent: np.ndarray) -> None:
    size = len(parent)
    upper, lower = np.repeat(np.arange(-1, size), size), np.tile(np.arange(size), size + 1)
    want = [u == k or u in above(parent, k) for u, k in zip(upper.tolist(), lower.tolist(), strict=True)]
    assert ancestry.is_ancestor_or_self(parent, upper, lower.copy()).tolist() == want


@given(forests(), st.data())
def test_the_first_that_lasts(parent: np.ndarray, data: st.DataObject) -> None:
    end = np.array([data.draw(st.integers(0, 5)) for _ in parent], np.int64)
    for place in range(len(parent) - 1, -1, -1):  # what is around ends no earlier
        if parent[place] >= 0:
            end[parent[place]] = max(end[parent[place]], end[place])
    places = np.arange(len(parent))
    times = np.array([data.draw(st.integers(0, 6)) for _ in parent], np.int64)
    want = [
        next((k for k in [place, *above(parent, place)] if end[k] >= times[place]), -1) for place in places.tolist()
    ]
    assert ancestry.find_ancestor_ending_after(parent, end, places, times).tolist() == want


def test_a_million_deep() -> None:
    parent = np.arange(-1, 999_999, dtype=np.int32)
    every = np.arange(1_000_000)
    top = every == 3
    assert (ancestry.find_nearest_ancestor(parent, every, top)[4:] == 3).all()
    assert (ancestry.find_outermost_ancestor(parent, every, top)[4:] == 3).all()
    assert ancestry.sum_subtrees(parent, np.ones(1_000_000, np.int64))[:3].tolist() == [1_000_000, 999_999, 999_998]
    assert ancestry.is_ancestor_or_self(parent, np.full(10, 5), every[:10]).tolist() == [k >= 5 for k in range(10)]
