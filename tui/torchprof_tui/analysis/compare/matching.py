"""Match the call trees of two recordings, and the GPU work of the matched calls.

Calls of the same name below matched calls are matched in order. Where the names below two matched calls differ, those
two are the lowest common callers of what differs; see region_matching.py. GPU work of two matched calls is matched by
name in order, then by decoded class in order; the rest corresponds as a whole.

Shapes are in the file, not in the columns: only those of ambiguous siblings are read, and only so many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.alignment.sequence_alignment import Pairs, align_sequences
from torchprof_tui.analysis.compare.compared_tree import U64, ComparedTree, SharedLabels, mix_bits
from torchprof_tui.analysis.compare.op_tree import (
    MAX_NODES,
    Side,
    build_op_tree,
    list_annotations,
    select_events,
)
from torchprof_tui.analysis.compare.region_matching import match_region
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.arrays import I32, I64, Bool, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries

MAX_SIBLINGS = 500  # children of one call whose shapes are read

MAX_READS = 40
"""Calls whose children's shapes are read: each read parses a few hundred KB of the file, a few milliseconds."""


class InputDigests:
    """The digests of subtrees of both sides, refined by input shapes where that decides the alignment."""

    def __init__(self, a: ComparedTree, b: ComparedTree, trace_a: Trace, trace_b: Trace) -> None:
        self._sides = ((a, trace_a), (b, trace_b))
        self._number_of_shape: dict[str, int] = {}
        self._reads_left = MAX_READS

    def refine(self, children_a: I32, children_b: I32) -> tuple[U64, U64]:
        """Return the digests of two lists of siblings: uint64[...] each."""
        (a, _), (b, _) = self._sides
        plain = a.digests[children_a], b.digests[children_b]
        if self._reads_left <= 0 or max(len(children_a), len(children_b)) > MAX_SIBLINGS:
            return plain
        values_a, counts_a = np.unique(a.label[children_a], return_counts=True)
        values_b, counts_b = np.unique(b.label[children_b], return_counts=True)
        _, at_a, at_b = np.intersect1d(values_a, values_b, assume_unique=True, return_indices=True)
        if (counts_a[at_a] == counts_b[at_b]).all():  # no label occurs another number of times on either side
            return plain
        self._reads_left -= 1
        numbers = [
            self._number_shapes(trace, tree, children)
            for (tree, trace), children in zip(self._sides, (children_a, children_b), strict=True)
        ]
        if numbers[0] is None or numbers[1] is None:
            self._reads_left = 0
            return plain
        refined = [
            digest ^ mix_bits(number) for digest, number in zip(plain, numbers, strict=True) if number is not None
        ]
        # With another batch size no shape occurs on both sides: then they decide nothing.
        has_common = len(np.intersect1d(refined[0], refined[1])) > 0
        return (refined[0], refined[1]) if has_common else plain

    def _number_shapes(self, trace: Trace, tree: ComparedTree, nodes: I32) -> U64 | None:
        """Number the input shapes of each node's first call, 0 for none; None where no file can be read or has shapes.

        Shapes of captured ops are read from the capture.
        """
        numbers = np.zeros(len(nodes), np.uint64)
        source = tree.tree.source[nodes]
        try:
            for number in sorted_unique(source).tolist():
                members = np.flatnonzero(source == number)
                file = trace if number < 0 else tree.tree.sources[number]
                events = (tree.tree.event if number < 0 else tree.tree.source_event)[nodes[members]]
                for index, entry in read_entries(file, events):
                    args = entry.get("args")
                    dims = args.get("Input Dims") if isinstance(args, dict) else None
                    if dims:
                        known = self._number_of_shape.setdefault(str(dims), len(self._number_of_shape) + 1)
                        numbers[members[index]] = known
        except (OSError, LookupError):
            return None
        return numbers if numbers.any() else None


@record
class MatchedGroup:
    """A group of calls, or of rows of GPU work, and the lowest common callers `caller_a`, `caller_b`, nodes."""

    members_a: tuple[int, ...]
    members_b: tuple[int, ...]
    caller_a: int
    caller_b: int
    is_fused: bool = False  # see NodeGroup


@record
class MatchedPairs:
    """k pairs, int32[k] each; `caller_a` and `caller_b`: the lowest common callers of pairs out of their nesting, -1
    for pairs that are matched in their place."""

    a: I32
    b: I32
    caller_a: I32
    caller_b: I32


@record(slots=False)
class TreeMatch:
    """Every node of either tree is in one pair or one group of `calls`, every row of GPU work in one of `work`."""

    a: ComparedTree
    b: ComparedTree
    calls: MatchedPairs
    call_groups: list[MatchedGroup]
    work: MatchedPairs
    work_groups: list[MatchedGroup]
    has_same_work: Bool  # bool[pairs of calls]: the same names of GPU work in the same order


def match_trees(side_a: Side, side_b: Side) -> TreeMatch:
    """Match the steps of two recordings. `match_trees(b, a)` is its mirror image."""
    a, b = build_compared_trees(side_a, side_b)
    # Of two equally good alignments one is taken: match in an order that does not depend on which side is first.
    if _order_key(a) > _order_key(b):
        match = _match(b, a, InputDigests(b, a, side_b.trace, side_a.trace))
        calls, work = (MatchedPairs(each.b, each.a, each.caller_b, each.caller_a) for each in (match.calls, match.work))
        call_groups, work_groups = (
            [
                MatchedGroup(each.members_b, each.members_a, each.caller_b, each.caller_a, each.is_fused)
                for each in groups
            ]
            for groups in (match.call_groups, match.work_groups)
        )
        return TreeMatch(match.b, match.a, calls, call_groups, work, work_groups, match.has_same_work)
    return _match(a, b, InputDigests(a, b, side_a.trace, side_b.trace))


def build_compared_trees(side_a: Side, side_b: Side) -> tuple[ComparedTree, ComparedTree]:
    """Build the call trees of both sides: the same levels, calls merged on both or neither, and shared labels."""
    selected = select_events(side_a), select_events(side_b)
    shared = list_annotations(side_a, selected[0]) & list_annotations(side_b, selected[1])
    first = build_op_tree(side_a, selected[0], shared)
    second = build_op_tree(side_b, selected[1], shared)
    if max(len(tree) + len(tree.work.node) for tree in (first, second)) > MAX_NODES:
        first = build_op_tree(side_a, selected[0], shared, is_merged=True)
        second = build_op_tree(side_b, selected[1], shared, is_merged=True)
    labels = SharedLabels()
    return (
        ComparedTree.build(first, side_a.trace.names, labels),
        ComparedTree.build(second, side_b.trace.names, labels),
    )


def _order_key(tree: ComparedTree) -> tuple[object, ...]:
    """A key that orders two trees, equal for trees with the same names in the same places."""
    names, work_names = tree.tree.labels, tree.names
    return (
        len(tree.tree),
        len(tree.tree.work.node),
        tree.tree.size.tolist(),
        [names[label] for label in tree.tree.label.tolist()],
        [work_names[name] for name in tree.tree.work.name.tolist()],
        tree.tree.work.node.tolist(),
    )


def _match(a: ComparedTree, b: ComparedTree, inputs: InputDigests) -> TreeMatch:
    """Match two trees from the top: the children of each matched pair, then what remains below it as a region."""
    digests_a, digests_b = a.digests, b.digests
    in_place: list[tuple[I32, I32]] = []
    moved: list[tuple[int, int, int, int]] = []
    groups: list[MatchedGroup] = []
    stack = [(0, 0)]
    while stack:
        i, j = stack.pop()
        if digests_a[i] == digests_b[j]:
            size = int(a.tree.size[i])
            in_place.append((np.arange(i, i + size, dtype=np.int32), np.arange(j, j + size, dtype=np.int32)))
            continue
        in_place.append((np.array([i], np.int32), np.array([j], np.int32)))
        children_a, children_b = a.children_of(i), b.children_of(j)
        digests = inputs.refine(children_a, children_b)
        pairs = align_sequences(a.label[children_a], b.label[children_b], *digests)
        stack.extend((int(children_a[x]), int(children_b[y])) for x, y in pairs)
        left_a = _expand(a, np.delete(children_a, [x for x, _ in pairs]))
        left_b = _expand(b, np.delete(children_b, [y for _, y in pairs]))
        if len(left_a) or len(left_b):
            region = match_region(a, b, left_a, left_b)
            moved += [(x, y, i, j) for x, y in region.pairs]
            groups += [MatchedGroup(group.nodes_a, group.nodes_b, i, j, group.is_fused) for group in region.groups]
    calls = _collect_pairs(in_place, moved)
    has_same_work = a.work_digests[calls.a] == b.work_digests[calls.b]
    work, work_groups = _match_work(a, b, calls, has_same_work, groups)
    return TreeMatch(a, b, calls, groups, work, work_groups, has_same_work)


def _expand(tree: ComparedTree, nodes: I32) -> I32:
    """Return the nodes with all their descendants, in preorder: int32[k]."""
    parts = [np.arange(node, node + int(tree.tree.size[node]), dtype=np.int32) for node in nodes.tolist()]
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def _collect_pairs(in_place: list[tuple[I32, I32]], moved: list[tuple[int, int, int, int]]) -> MatchedPairs:
    columns = np.array(moved, np.int32).reshape(-1, 4)
    first = [pair[0] for pair in in_place] + [columns[:, 0]]
    second = [pair[1] for pair in in_place] + [columns[:, 1]]
    none = np.full(sum(len(pair[0]) for pair in in_place), -1, np.int32)
    return MatchedPairs(
        np.concatenate(first),
        np.concatenate(second),
        np.concatenate([none, columns[:, 2]]),
        np.concatenate([none, columns[:, 3]]),
    )


def _match_work(
    a: ComparedTree, b: ComparedTree, calls: MatchedPairs, has_same_work: Bool, call_groups: list[MatchedGroup]
) -> tuple[MatchedPairs, list[MatchedGroup]]:
    """Match the GPU work of matched calls, and that of groups of calls as a whole."""
    same = np.flatnonzero(has_same_work & a.has_work[calls.a])
    rows_a, rows_b = _list_rows(a, calls.a[same]), _list_rows(b, calls.b[same])
    moved: list[tuple[int, int, int, int]] = []
    groups: list[MatchedGroup] = []
    known: dict[tuple[bytes, bytes], tuple[Pairs, list[int], list[int]]] = {}
    for index in np.flatnonzero(~has_same_work).tolist():
        i, j = int(calls.a[index]), int(calls.b[index])
        at_a, at_b = a.work_rows(i), b.work_rows(j)
        key = (a.work_label[at_a.start : at_a.stop].tobytes(), b.work_label[at_b.start : at_b.stop].tobytes())
        if key not in known:
            known[key] = _align_work(a, b, at_a, at_b)
        pairs, left_a, left_b = known[key]
        # Work of calls with different names is below their common caller.
        if calls.caller_a[index] >= 0 and a.label[i] != b.label[j]:
            i, j = int(calls.caller_a[index]), int(calls.caller_b[index])
        moved += [(at_a.start + x, at_b.start + y, i, j) for x, y in pairs]
        if left_a or left_b:
            rest_a, rest_b = tuple(at_a.start + x for x in left_a), tuple(at_b.start + y for y in left_b)
            groups.append(MatchedGroup(rest_a, rest_b, i, j))
    for group in call_groups:
        pairs, rest = _match_group_work(a, b, group)
        moved += [(x, y, group.caller_a, group.caller_b) for x, y in pairs]
        if rest.members_a or rest.members_b:
            groups.append(rest)
    return _collect_pairs([(rows_a, rows_b)], moved), groups


def _match_group_work(a: ComparedTree, b: ComparedTree, group: MatchedGroup) -> tuple[Pairs, MatchedGroup]:
    """Match the GPU work of a group of calls: (pairs of rows, the rest as a group of rows)."""
    rows_a = [row for node in group.members_a for row in a.work_rows(node)]
    rows_b = [row for node in group.members_b for row in b.work_rows(node)]
    pairs: Pairs = []
    if rows_a and rows_b and not group.is_fused:
        aligned, left_a, left_b = _align_work(a, b, rows_a, rows_b)
        pairs = [(rows_a[x], rows_b[y]) for x, y in aligned]
        rows_a, rows_b = [rows_a[x] for x in left_a], [rows_b[y] for y in left_b]
    return pairs, replace(group, members_a=tuple(rows_a), members_b=tuple(rows_b))


def _list_rows(tree: ComparedTree, nodes: I32) -> I32:
    """List the rows of GPU work of nodes, node by node: int32[k]."""
    first, last = tree.tree.work.first[nodes], tree.tree.work.first[nodes + 1]
    counts = (last - first).astype(np.int64)
    rows: I64 = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return rows.astype(np.int32)


def _align_work(
    a: ComparedTree, b: ComparedTree, rows_a: Sequence[int], rows_b: Sequence[int]
) -> tuple[Pairs, list[int], list[int]]:
    """Align rows of GPU work by name, then by class: (pairs, the rest of either side), indices into the rows."""
    labels_a, labels_b = a.work_label[list(rows_a)], b.work_label[list(rows_b)]
    pairs = align_sequences(labels_a, labels_b, labels_a, labels_b)
    left_a, left_b = _complement(len(rows_a), pairs, 0), _complement(len(rows_b), pairs, 1)
    classes_a = _list_classes(a, [rows_a[x] for x in left_a])
    classes_b = _list_classes(b, [rows_b[y] for y in left_b])
    pairs += [(left_a[x], left_b[y]) for x, y in align_sequences(classes_a, classes_b, classes_a, classes_b)]
    return pairs, _complement(len(rows_a), pairs, 0), _complement(len(rows_b), pairs, 1)


def _complement(length: int, pairs: Pairs, side: int) -> list[int]:
    paired = {pair[side] for pair in pairs}
    return [index for index in range(length) if index not in paired]


def _list_classes(tree: ComparedTree, rows: list[int]) -> I64:
    return np.array([decode_kernel_name(tree.work_name(row)).kernel_class for row in rows], np.int64)
