"""Match the calls below two matched calls where the names below them differ: eager against compiled, cuDNN, MIOpen.

The calls are matched out of their nesting, in passes: the same name, in order and then in any order; calls with the
graph launch that replays their kernels; a product and a sum with the op that computes both; ops with the Triton kernel
whose name lists them; calls that launch work of the same class, in order. What remains is left to the common caller.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from torchprof_tui.analysis.alignment.sequence_alignment import Pairs, align_sequences, pair_by_occurrence
from torchprof_tui.analysis.compare.compared_tree import U64, ComparedTree, simplify_op
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.core.records import record


@record
class NodeGroup:
    """Calls of both sides that correspond as a whole, but not one to one. One side may be empty.

    `is_fused`: all GPU work of one side does what all of the other does; else single kernels may correspond.
    """

    nodes_a: tuple[int, ...]
    nodes_b: tuple[int, ...]
    is_fused: bool = False


@dataclass(slots=True)
class RegionMatch:
    """Every node of the region is in one pair or in one group."""

    pairs: Pairs = field(default_factory=list)
    groups: list[NodeGroup] = field(default_factory=list)


@dataclass(slots=True)
class _Region:
    """Two trees, the nodes of a region that are neither in a pair nor in a group yet, and the match so far."""

    a: ComparedTree
    b: ComparedTree
    left_a: list[int]
    left_b: list[int]
    match: RegionMatch = field(default_factory=RegionMatch)

    def swap(self) -> _Region:
        """Return the same with its sides exchanged."""
        groups = [NodeGroup(group.nodes_b, group.nodes_a, group.is_fused) for group in self.match.groups]
        match = RegionMatch([(j, i) for i, j in self.match.pairs], groups)
        return _Region(self.b, self.a, self.left_b, self.left_a, match)

    def list_working(self) -> tuple[I64, I64]:
        """List the nodes that are left and launch GPU work: int64[...] of each side."""
        left_a, left_b = np.array(self.left_a, np.int64), np.array(self.left_b, np.int64)
        return left_a[self.a.has_work[left_a]], left_b[self.b.has_work[left_b]]

    def take_pairs(self, pairs: Pairs) -> None:
        """Add pairs to the match; their nodes are no longer left."""
        self.match.pairs += pairs
        self._remove({i for i, _ in pairs}, {j for _, j in pairs})

    def take_groups(self, groups: list[NodeGroup]) -> None:
        """Add groups to the match; their nodes are no longer left."""
        self.match.groups += groups
        self._remove(
            {node for group in groups for node in group.nodes_a}, {node for group in groups for node in group.nodes_b}
        )

    def _remove(self, nodes_a: set[int], nodes_b: set[int]) -> None:
        self.left_a = [node for node in self.left_a if node not in nodes_a]
        self.left_b = [node for node in self.left_b if node not in nodes_b]


def match_region(a: ComparedTree, b: ComparedTree, nodes_a: I32, nodes_b: I32) -> RegionMatch:
    """Match the nodes of a region, given in preorder: int32[...] of each side."""
    region = _Region(a, b, nodes_a.tolist(), nodes_b.tolist())
    if len(nodes_a) and len(nodes_b):
        region.take_pairs(_pair_same_names(a, b, nodes_a, nodes_b))
        work_a, work_b = region.list_working()
        moved = pair_by_occurrence(a.label[work_a], b.label[work_b])  # compilers reorder calls
        region.take_pairs([(int(work_a[i]), int(work_b[j])) for i, j in moved])
        for find_groups in (_group_graphs, _group_composites, _group_fused):
            for _ in ("calls of a with single calls of b", "the reverse"):
                if region.left_a and region.left_b:
                    region.take_groups(find_groups(region))
                region = region.swap()
        work_a, work_b = region.list_working()
        classes_a = np.array([a.work_class(node) for node in work_a.tolist()], np.int64)
        classes_b = np.array([b.work_class(node) for node in work_b.tolist()], np.int64)
        alike = align_sequences(classes_a, classes_b, classes_a, classes_b)
        region.take_pairs([(int(work_a[i]), int(work_b[j])) for i, j in alike])
    for with_work in (True, False):
        left_a = tuple(node for node in region.left_a if a.has_work[node] == with_work)
        left_b = tuple(node for node in region.left_b if b.has_work[node] == with_work)
        if left_a or left_b:
            region.match.groups.append(NodeGroup(left_a, left_b))
    return region.match


def _pair_same_names(a: ComparedTree, b: ComparedTree, nodes_a: I32, nodes_b: I32) -> Pairs:
    """Pair calls of the same name in order: first those that launch GPU work, then the others between them."""
    at_a, at_b = np.flatnonzero(a.has_work[nodes_a]), np.flatnonzero(b.has_work[nodes_b])
    anchors = [
        (int(at_a[i]), int(at_b[j]))
        for i, j in _align_nodes(a, b, nodes_a[at_a], nodes_b[at_b], a.work_digests, b.work_digests)
    ]
    pairs = list(anchors)
    before_a = before_b = 0
    for end_a, end_b in [*anchors, (len(nodes_a), len(nodes_b))]:
        between_a = np.arange(before_a, end_a)[~a.has_work[nodes_a[before_a:end_a]]]
        between_b = np.arange(before_b, end_b)[~b.has_work[nodes_b[before_b:end_b]]]
        if len(between_a) and len(between_b):
            aligned = _align_nodes(a, b, nodes_a[between_a], nodes_b[between_b], a.digests, b.digests)
            pairs += [(int(between_a[i]), int(between_b[j])) for i, j in aligned]
        before_a, before_b = end_a + 1, end_b + 1
    return [(int(nodes_a[i]), int(nodes_b[j])) for i, j in pairs]


def _align_nodes(a: ComparedTree, b: ComparedTree, nodes_a: I32, nodes_b: I32, digests_a: U64, digests_b: U64) -> Pairs:
    """Align nodes by label, preferring equal digests."""
    labels_a, labels_b = a.label[nodes_a], b.label[nodes_b]
    # A digest of GPU work does not cover the label: combine them.
    refined_a = digests_a[nodes_a] ^ (labels_a.astype(np.uint64) << np.uint64(40))
    refined_b = digests_b[nodes_b] ^ (labels_b.astype(np.uint64) << np.uint64(40))
    return align_sequences(labels_a, labels_b, refined_a, refined_b)


def _group_graphs(region: _Region) -> list[NodeGroup]:
    """Group each launch of a CUDA or HIP graph in b with the calls of a that launch its kernels one by one.

    A call belongs to the graph that has its first matched kernel; one without any to the graph of the call before it.
    """
    a, b = region.a, region.b
    graphs = [node for node in region.left_b if b.has_work[node] and "GraphLaunch" in b.name_of(node)]
    calls = [node for node in region.left_a if a.has_work[node]]
    if not graphs or not calls:
        return []
    rows_a = [(row, node) for node in calls for row in a.work_rows(node)]
    rows_b = [(row, node) for node in graphs for row in b.work_rows(node)]
    labels_a = a.work_label[[row for row, _ in rows_a]]
    labels_b = b.work_label[[row for row, _ in rows_b]]
    graph_of: dict[int, int] = {}
    for i, j in align_sequences(labels_a, labels_b, labels_a, labels_b):
        graph_of.setdefault(rows_a[i][1], rows_b[j][1])
    members: dict[int, list[int]] = {graph: [] for graph in graphs}
    graph = next(iter(graph_of.values()), graphs[0])
    for node in calls:
        graph = graph_of.get(node, graph)
        members[graph].append(node)
    return [NodeGroup(tuple(nodes), (graph,)) for graph, nodes in members.items() if nodes]


_COMPOSITES = {"addmm": ("mm", "add"), "baddbmm": ("bmm", "add"), "addmv": ("mv", "add")}
"""Ops that compute a product and a sum in one kernel."""


def _group_composites(region: _Region) -> list[NodeGroup]:
    """Group a product and the next sum of a with an op of b that computes both."""
    a, b = region.a, region.b
    groups = []
    available = [(node, simplify_op(a.name_of(node))) for node in region.left_a if a.has_work[node]]
    for composite in region.left_b:
        parts = _COMPOSITES.get(simplify_op(b.name_of(composite)))
        if parts is None:
            continue
        product = next((k for k, (_, name) in enumerate(available) if name == parts[0]), None)
        if product is None:
            continue
        total = next((k for k in range(product + 1, len(available)) if available[k][1] == parts[1]), None)
        if total is None:
            continue
        groups.append(NodeGroup((available[product][0], available[total][0]), (composite,), is_fused=True))
        available = [item for k, item in enumerate(available) if k not in (product, total)]
    return groups


def _group_fused(region: _Region) -> list[NodeGroup]:
    """Group all calls of each Triton kernel of b with the ops of a that its name lists.

    Where several kernels list an op, it belongs to the nearest one, by the number of calls matched before either.
    """
    a, b = region.a, region.b
    calls_of_kernel = _find_fused_kernels(b, region.left_b)
    if not calls_of_kernel:
        return []
    anchors = region.match.pairs
    anchors_a, anchors_b = np.sort([i for i, _ in anchors]), np.sort([j for _, j in anchors])
    positions = [np.searchsorted(anchors_b, calls) for calls in calls_of_kernel.values()]
    kernels_of_op: dict[str, set[int]] = {}
    for k, name in enumerate(calls_of_kernel):
        for op in decode_kernel_name(name).fused:
            kernels_of_op.setdefault(simplify_op(op), set()).add(k)
    members: dict[int, list[int]] = {}
    for node in region.left_a:
        if not a.has_work[node]:
            continue
        fitting = set().union(*(kernels_of_op.get(name, set()) for name in _list_op_names(a, node)))
        if fitting:
            position = int(np.searchsorted(anchors_a, node))
            nearest = min(fitting, key=lambda k: (_measure_distance(positions[k], position), k))
            members.setdefault(nearest, []).append(node)
    calls = list(calls_of_kernel.values())
    return [NodeGroup(tuple(nodes), tuple(calls[k]), is_fused=True) for k, nodes in sorted(members.items())]


def _measure_distance(positions: I64, position: int) -> int:
    """Return the distance of a position to the nearest of ascending `positions`."""
    index = int(np.searchsorted(positions, position))
    return min(abs(int(near) - position) for near in positions[max(index - 1, 0) : index + 1])


def _find_fused_kernels(tree: ComparedTree, nodes: list[int]) -> dict[str, list[int]]:
    """Find the Triton kernels among calls whose name lists ops: the calls of each kernel."""
    calls: dict[str, list[int]] = {}
    for node in nodes:
        for row in tree.work_rows(node):
            name = tree.work_name(row)
            if name.startswith("triton") and decode_kernel_name(name).fused:
                calls.setdefault(name, []).append(node)
                break
    return calls


_CALLERS_LISTED = 3
"""Callers whose names count for an op: `aten::to › aten::_to_copy › aten::copy_` is `_to_copy` in a Triton name."""


def _list_op_names(tree: ComparedTree, node: int) -> set[str]:
    """List the names of a call and of its nearest callers, as in a Triton kernel's name."""
    names = set()
    for _ in range(_CALLERS_LISTED):
        if node <= 0:
            break
        names.add(simplify_op(tree.name_of(node)))
        node = int(tree.tree.parent[node])
    return names
