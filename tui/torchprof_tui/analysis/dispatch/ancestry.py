"""Ancestors and subtree sums of many nodes at once, for nesting of any depth.

A forest is its column of parents: int32[n], -1 at the top. Real stacks are a few dozen levels deep, and climbing one
level at a time is fastest. A file may nest a million calls, however, where climbing costs the square of the depth.
Beyond POINTER_DOUBLING_DEPTH levels the functions switch to pointer doubling: each round replaces the ancestor k
levels up by the one 2k levels up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Array, Bool
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

POINTER_DOUBLING_DEPTH = 64
"""Levels climbed one by one. Deeper than most Python stacks; twenty rounds of doubling cost about as much."""


def follow_to_fixpoint(next_index: I32) -> I32:
    """Follow `next_index` from each node to its end: int32[n]. Every path must end in a node that points to itself."""
    while True:
        doubled = next_index[next_index]
        if (doubled == next_index).all():
            return next_index
        next_index = doubled


def find_nearest_ancestor_or_self(parent: I32, mask: Bool) -> I32:
    """Find the innermost node with `mask` among each node and its ancestors: int32[n], -1 for none."""
    size = len(parent)
    end = np.int32(size)  # an extra node that stands for "none"
    next_index = np.where(mask, np.arange(size, dtype=np.int32), np.where(parent >= 0, parent, end))
    nearest = follow_to_fixpoint(np.append(next_index, end).astype(np.int32))[:size]
    return np.where(nearest == end, np.int32(-1), nearest).astype(np.int32)


def find_nearest_ancestor(parent: I32, nodes: Array, mask: Bool) -> I64:
    """Find the innermost proper ancestor with `mask` of each node: int64[k], -1 for none."""
    nearest, active, reached = _climb_levels(parent, nodes, mask, stop_at_first=True)
    if len(active):
        nearest[active] = find_nearest_ancestor_or_self(parent, mask)[reached]
    return nearest


def find_outermost_ancestor(parent: I32, nodes: Array, mask: Bool) -> I64:
    """Find the outermost proper ancestor with `mask` of each node: int64[k], -1 for none."""
    outermost, active, reached = _climb_levels(parent, nodes, mask, stop_at_first=False)
    if not len(active):
        return outermost
    nearest = find_nearest_ancestor_or_self(parent, mask)
    above = np.where(parent >= 0, nearest[np.maximum(parent, 0)], np.int32(-1))
    top = follow_to_fixpoint(np.where(above >= 0, above, np.arange(len(parent), dtype=np.int32)).astype(np.int32))
    remaining = np.where(nearest[reached] >= 0, top[np.maximum(nearest[reached], 0)], -1)
    outermost[active] = np.where(remaining >= 0, remaining, outermost[active])
    return outermost


@record
class _Level:
    """The parents of a column of nodes, equal ones in a row kept once.

    `run` int32[k]: the index of each node's parent in `rows` int32[m]; `is_match` bool[m]: those with the mask;
    `goes_on` bool[m]: those whose parents make the next level.
    """

    run: I32
    rows: I32
    is_match: Bool
    goes_on: Bool


def _climb_levels(parent: I32, nodes: Array, mask: Bool, stop_at_first: bool) -> tuple[I64, I64, I64]:
    """Climb up to POINTER_DOUBLING_DEPTH levels from each node.

    Returns the last ancestor with `mask` (int64[k], -1 for none), the indices of the nodes that are not finished, and
    the ancestor that each of those reached. A node is finished at its first match if `stop_at_first`, else at the top.

    Nodes in the order of their rows have the same parents in a row: each is climbed from once, so that a level costs a
    part of the one below it.
    """
    rows = np.asarray(nodes)
    levels: list[_Level] = []
    while len(rows) and len(levels) < POINTER_DOUBLING_DEPTH:
        above = np.asarray(parent[rows])
        is_first = np.ones(len(above), dtype=np.bool_)
        np.not_equal(above[1:], above[:-1], out=is_first[1:])
        run = np.cumsum(is_first, dtype=np.int32)
        run -= 1
        distinct = above[is_first]
        goes_on = distinct >= 0
        is_match = goes_on & mask[distinct]
        levels.append(_Level(run, distinct, is_match, goes_on & ~is_match if stop_at_first else goes_on))
        rows = distinct[levels[-1].goes_on]
    column = np.full(len(rows), -1, dtype=rows.dtype)
    for level in reversed(levels):
        outer = np.full(len(level.rows), -1, dtype=level.rows.dtype)
        outer[level.goes_on] = column
        column = np.where(level.is_match & (outer < 0), level.rows, outer)[level.run]
    match = column.astype(np.int64)
    if not len(rows):
        return match, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    last = np.arange(len(rows))  # index into `rows`, the highest level; -1 for nodes that are finished
    for level in reversed(levels):
        ends = np.full(len(level.rows), -1, dtype=np.int64)
        ends[level.goes_on] = last
        last = ends[level.run]
    active = np.flatnonzero(last >= 0)
    return match, active, rows[last[active]].astype(np.int64)


def sum_subtrees(parent: I32, values: I64) -> I64:
    """Sum `values` over the subtree of each node, including the node: int64[n]."""
    total: I64 = values.copy()
    node: I64 = np.flatnonzero(values)
    amount = values[node]
    for _ in range(POINTER_DOUBLING_DEPTH):
        above = parent[node].astype(np.int64)
        inside = above >= 0
        node, amount = above[inside], amount[inside]
        if not len(node):
            return total
        np.add.at(total, node, amount)
    total = values.copy()
    ancestor = np.asarray(parent)
    while (inside := ancestor >= 0).any():  # with the ancestor k levels up, `total` covers descendants of depth < k
        amount = total[inside]
        np.add.at(total, ancestor[inside], amount)
        ancestor = np.where(inside, ancestor[np.maximum(ancestor, 0)], -1)
    return total


def include_ancestors(parent: I32, mask: Bool) -> Bool:
    """Select the nodes with `mask` and all their ancestors: bool[n]."""
    included: Bool = mask.copy()
    added: Array = np.flatnonzero(mask)
    for _ in range(POINTER_DOUBLING_DEPTH):
        above = parent[added]
        above = above[above >= 0]
        above = above[~included[above]]
        if not len(above):
            return included
        is_first = np.ones(len(above), np.bool_)  # siblings follow each other; the same one again does no harm
        np.not_equal(above[1:], above[:-1], out=is_first[1:])
        added = above[is_first]
        included[added] = True
    included[sum_subtrees(parent, mask.astype(np.int64)) > 0] = True
    return included


def is_ancestor_or_self(parent: I32, candidates: I32 | I64, nodes: I32 | I64) -> Bool:
    """Test whether `candidates[i]` is `nodes[i]` or an ancestor of it: bool[k]. Children have higher numbers."""
    result: Bool = nodes == candidates
    reached = nodes.copy()
    active = np.flatnonzero(~result & (candidates >= 0))
    for _ in range(POINTER_DOUBLING_DEPTH):
        reached[active] = parent[reached[active]]
        result[active] = reached[active] == candidates[active]
        # Ancestors have lower numbers: beyond the candidate there is no match.
        active = active[reached[active] > candidates[active]]
        if not len(active):
            return result
    first, size = _number_preorder(np.asarray(parent))
    upper, lower = candidates[active], reached[active]
    result[active] = (first[upper] <= first[lower]) & (first[lower] < first[upper] + size[upper])
    return result


def find_ancestor_ending_after(parent: I32, end: I64, nodes: Array, times: I64) -> I64:
    """Find the innermost among each node and its ancestors that ends at `times` or later: int64[k], -1 for none.

    A parent must not end before its child.
    """
    reached: I64 = np.asarray(nodes, dtype=np.int64).copy()
    active = np.flatnonzero(end[reached] < times)
    for _ in range(POINTER_DOUBLING_DEPTH):
        reached[active] = parent[reached[active]]
        active = active[reached[active] >= 0]
        active = active[end[reached[active]] < times[active]]
        if not len(active):
            return reached
    ancestors = [np.asarray(parent)]  # the ancestor 1, 2, 4, … levels up
    while (ancestors[-1] >= 0).any():
        last = ancestors[-1]
        ancestors.append(np.where(last >= 0, last[np.maximum(last, 0)], -1))
    for ancestor in reversed(ancestors):  # climb to the outermost that ends too early
        above = ancestor[reached[active]]
        too_early = (above >= 0) & (end[np.maximum(above, 0)] < times[active])
        reached[active[too_early]] = above[too_early]
    reached[active] = parent[reached[active]]
    return reached


def compute_depths(parent: I32) -> I32:
    """Count the ancestors of each node: int32[n]."""
    return (_sum_to_root(np.asarray(parent), np.ones(len(parent), np.int64)) - 1).astype(np.int32)


def _sum_to_root(parent: I32, values: I64) -> I64:
    """Sum `values` over each node and all its ancestors: int64[n]."""
    total: I64 = values.copy()
    ancestor = parent
    while (inside := ancestor >= 0).any():
        total[inside] += total[ancestor[inside]]
        ancestor = np.where(inside, ancestor[np.maximum(ancestor, 0)], -1)
    return total


def _number_preorder(parent: I32) -> tuple[I64, I64]:
    """Number the nodes so that a subtree is the range of its size from its root on: (numbers, subtree sizes)."""
    size = sum_subtrees(parent, np.ones(len(parent), np.int64))
    order = np.argsort(parent, kind="stable")  # siblings together
    before = np.cumsum(size[order]) - size[order]
    is_first = np.concatenate([[True], parent[order][1:] != parent[order][:-1]])
    group = np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
    offset = np.empty(len(parent), np.int64)
    offset[order] = before - before[group] + (parent[order] >= 0)
    return _sum_to_root(parent, offset), size


def place_siblings(levels: Sequence[I64], parent: I32, weight: I64, amounts: I64, step: Sequence[int]) -> I64:
    """Place siblings side by side, the heaviest first, from `step` after their parent on: int64[n, c], roots from 0 on.

    `amounts` int64[n, c]: the room that each takes. `levels`: the nodes by depth. With the sizes of the subtrees as the
    room, and a step of 1, these are the numbers in preorder.
    """
    placed = np.zeros(amounts.shape, np.int64)
    for members in levels:
        order = members[np.lexsort((-weight[members], parent[members]))]
        above = parent[order]
        before = np.cumsum(amounts[order], axis=0) - amounts[order]
        is_first = np.concatenate([[True], above[1:] != above[:-1]])
        group = np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))
        placed[order] = np.where(above[:, None] >= 0, placed[above] + step, 0) + before - before[group]
    return placed


def nearest_ancestor(trace: Trace, rows: I64 | I32, kind: Kind = Kind.OP) -> I64:
    """Return the innermost ancestor of this kind, -1 for none: int64[k]."""
    return find_nearest_ancestor(trace.parent, rows, np.asarray(trace.kind) == kind)


def place_ends(trace: Trace) -> I64:
    """Put the ends of the events of all lanes one after the other, ns: int64[n], for `mark_covered`."""
    begin, end = trace.span
    places = np.asarray(trace.lane).astype(np.int64)
    places *= 2 * max(int(end) - int(begin), 1)
    places += trace.start
    places += trace.duration
    places -= int(begin)
    return places


_PASSES_PER_SEARCH = 3  # events that a sum passes in the time of a binary search


def mark_covered(ends: I64, rows: Array, mask: Bool) -> Bool:
    """Return which rows end within an earlier event of their lane that has `mask`: bool[k].

    All that have such an ancestor are among them: rows are sorted by lane, then start, and no event ends after its
    parent. Those that have none would climb to the top. `ends`: see `place_ends`.
    """
    owners = np.flatnonzero(mask)
    if not len(owners):
        return np.zeros(len(rows), dtype=np.bool_)
    reach = np.maximum.accumulate(ends[owners])
    if _PASSES_PER_SEARCH * len(rows) > len(mask):
        before = np.cumsum(mask, dtype=np.int32)[rows] - mask[rows] - 1
    else:
        before = owners.searchsorted(rows) - 1
    covered: Bool = (before >= 0) & (ends[rows] <= reach[np.maximum(before, 0)])
    return covered


def mark_with_ancestors(trace: Trace, rows: I64 | I32) -> Bool:
    """Mark these events and all their ancestors: bool[n]."""
    chosen = np.zeros(len(trace), dtype=np.bool_)
    chosen[rows] = True
    return include_ancestors(trace.parent, chosen)
