"""What stands above an event, and how much beneath it, for many at once, however deep they are nested.

A forest is its column of parents: int32[n], -1 at the top. Real stacks are some dozens deep, and climbing a level at
a time is the fastest way up. A file may nest a million calls, though, and then as many levels cost their square; so
beyond LEVELS every place learns who is twice as far above it, again and again, until all have arrived.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Array, Bool, sorted_unique

POINTER_DOUBLING_DEPTH = 64
"""Climbed one by one. Deeper than most Python stacks; twenty rounds of doubling cost about as much."""


def follow_to_fixpoint(next_index: I32) -> I32:
    """int32[n]: where following `step` from each place ends; every path must end in a place that steps to itself."""
    while True:
        further = next_index[next_index]
        if (further == next_index).all():
            return next_index
        next_index = further


def find_nearest_ancestor_or_self(parent: I32, mask: Bool) -> I32:
    """int32[n]: of each place itself and those above it, the innermost that is wanted; -1 where none is."""
    size = len(parent)
    end = np.int32(size)  # a place of its own that stands for "none"
    step = np.where(mask, np.arange(size, dtype=np.int32), np.where(parent >= 0, parent, end))
    found = follow_to_fixpoint(np.append(step, end).astype(np.int32))[:size]
    return np.where(found == end, np.int32(-1), found).astype(np.int32)


def find_nearest_ancestor(parent: I32, nodes: Array, mask: Bool) -> I64:
    """int64[k]: of those above each place, itself left out, the innermost that is wanted; -1 where none is."""
    found, alive, at = _climb_levels(parent, nodes, mask, stop_at_first=True)
    if len(alive):
        found[alive] = find_nearest_ancestor_or_self(parent, mask)[at]
    return found


def find_outermost_ancestor(parent: I32, nodes: Array, mask: Bool) -> I64:
    """int64[k]: of those above each place, itself left out, the outermost that counts; -1 where none does."""
    found, alive, at = _climb_levels(parent, nodes, mask, stop_at_first=False)
    if not len(alive):
        return found
    inner = find_nearest_ancestor_or_self(parent, mask)
    above = np.where(parent >= 0, inner[np.maximum(parent, 0)], np.int32(-1))
    top = follow_to_fixpoint(np.where(above >= 0, above, np.arange(len(parent), dtype=np.int32)).astype(np.int32))
    outer = np.where(inner[at] >= 0, top[np.maximum(inner[at], 0)], -1)
    found[alive] = np.where(outer >= 0, outer, found[alive])
    return found


def _climb_levels(parent: I32, nodes: Array, mask: Bool, stop_at_first: bool) -> tuple[I64, I64, I64]:
    """LEVELS up from each place: the last wanted one met, int64[k], -1 for none; the places that have not arrived, and
    where they stand. `to_first`: the first wanted one is where to arrive, else the top."""
    found = np.full(len(nodes), -1, dtype=np.int64)
    alive = np.arange(len(nodes))
    at = np.asarray(nodes, dtype=np.int64)
    for _ in range(POINTER_DOUBLING_DEPTH):
        at = parent[at].astype(np.int64)
        alive, at = alive[at >= 0], at[at >= 0]
        hit = mask[at]
        found[alive[hit]] = at[hit]
        if stop_at_first:
            alive, at = alive[~hit], at[~hit]
        if not len(alive):
            break
    return found, alive, at


def sum_subtrees(parent: I32, values: I64) -> I64:
    """int64[n]: the sum of `own` over each place and all beneath it."""
    total: I64 = values.copy()
    below: I64 = np.flatnonzero(values)
    amount = values[below]
    for _ in range(POINTER_DOUBLING_DEPTH):
        above = parent[below].astype(np.int64)
        inside = above >= 0
        below, amount = above[inside], amount[inside]
        if not len(below):
            return total
        np.add.at(total, below, amount)
    total = values.copy()
    far = np.asarray(parent)
    while (inside := far >= 0).any():  # `total` is over what is less far beneath than `far` is above
        amount = total[inside]
        np.add.at(total, far[inside], amount)
        far = np.where(inside, far[np.maximum(far, 0)], -1)
    return total


def include_ancestors(parent: I32, mask: Bool) -> Bool:
    """bool[n]: the chosen places, and all above them."""
    found: Bool = mask.copy()
    fresh: Array = np.flatnonzero(mask)
    for _ in range(POINTER_DOUBLING_DEPTH):
        above = parent[fresh]
        above = above[above >= 0]
        fresh = sorted_unique(above[~found[above]])
        if not len(fresh):
            return found
        found[fresh] = True
    found[sum_subtrees(parent, mask.astype(np.int64)) > 0] = True
    return found


def is_ancestor_or_self(parent: I32, candidates: I32 | I64, nodes: I32 | I64) -> Bool:
    """bool[k]: whether `above[i]` is `places[i]` itself or stands above it. Numbers ascend from parent to child."""
    found: Bool = nodes == candidates
    climbing = nodes.copy()
    alive = np.flatnonzero(~found & (candidates >= 0))
    for _ in range(POINTER_DOUBLING_DEPTH):
        climbing[alive] = parent[climbing[alive]]
        found[alive] = climbing[alive] == candidates[alive]
        # What has climbed past `above` cannot meet it any more.
        alive = alive[climbing[alive] > candidates[alive]]
        if not len(alive):
            return found
    first, size = _number_preorder(np.asarray(parent))
    upper, lower = candidates[alive], climbing[alive]
    found[alive] = (first[upper] <= first[lower]) & (first[lower] < first[upper] + size[upper])
    return found


def find_ancestor_ending_after(parent: I32, end: I64, nodes: Array, times: I64) -> I64:
    """int64[k]: each place itself or the innermost above it that ends at its time or later; -1 for none.

    Ends must not fall from child to parent.
    """
    at: I64 = np.asarray(nodes, dtype=np.int64).copy()
    alive = np.flatnonzero(end[at] < times)
    for _ in range(POINTER_DOUBLING_DEPTH):
        at[alive] = parent[at[alive]]
        alive = alive[at[alive] >= 0]
        alive = alive[end[at[alive]] < times[alive]]
        if not len(alive):
            return at
    leaps = [np.asarray(parent)]  # who stands 1, 2, 4, … above
    while (leaps[-1] >= 0).any():
        far = leaps[-1]
        leaps.append(np.where(far >= 0, far[np.maximum(far, 0)], -1))
    for leap in reversed(leaps):  # to the last that ends before
        there = leap[at[alive]]
        short = (there >= 0) & (end[np.maximum(there, 0)] < times[alive])
        at[alive[short]] = there[short]
    at[alive] = parent[at[alive]]
    return at


def compute_depths(parent: I32) -> I32:
    """int32[n]: how many places stand above each."""
    return (_sum_to_root(np.asarray(parent), np.ones(len(parent), np.int64)) - 1).astype(np.int32)


def _sum_to_root(parent: I32, values: I64) -> I64:
    """int64[n]: the sum of `own` over each place and all above it."""
    total: I64 = values.copy()
    far = parent
    while (inside := far >= 0).any():
        total[inside] += total[far[inside]]
        far = np.where(inside, far[np.maximum(far, 0)], -1)
    return total


def _number_preorder(parent: I32) -> tuple[I64, I64]:
    """(a number for each place, how many are beneath it and itself): those have the numbers from its own on."""
    size = sum_subtrees(parent, np.ones(len(parent), np.int64))
    order = np.argsort(parent, kind="stable")  # siblings together
    before = np.cumsum(size[order]) - size[order]
    fresh = np.concatenate([[True], parent[order][1:] != parent[order][:-1]])
    run = np.maximum.accumulate(np.where(fresh, np.arange(len(order)), 0))
    step = np.empty(len(parent), np.int64)
    step[order] = before - before[run] + (parent[order] >= 0)
    return _sum_to_root(parent, step), size
