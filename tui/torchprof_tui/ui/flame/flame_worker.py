"""Fold a trace in a worker for the flame graph, search its frames, and lay them out in cells. Knows no screen.

One row per depth, one box per frame that is a cell wide or more. Narrower siblings are merged into one box at the end
of their row, the rest, which always has a cell: children are sorted by their time, so the narrow ones are neighbours.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
from textual.message import Message

from torchprof_tui.analysis.flame.flame_tree import FlameTree, FoldBy, FoldTime, NoFramesError
from torchprof_tui.analysis.flame.fold import fold_trace
from torchprof_tui.analysis.kernel.names.distinct_labels import label_kernels
from torchprof_tui.analysis.search.name_search import BadPattern, compile_matcher
from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.table.scope_choices import TableScope

READABLE_CELLS = 12
"""Width of the widest frame of a rest that was zoomed into, where all of them would be too narrow otherwise."""


@dataclass(frozen=True, slots=True)
class Zoom:
    """What fills the width: a node, or, with `first_child`, its children from that one on."""

    node: int = 0
    first_child: int = -1


@dataclass(frozen=True, slots=True)
class Box:
    """A frame, or the rest of its siblings, in cells `x` to `x + width`.

    `node`: of a rest the first one. `last`: the node behind the last subtree of the box. `merged`: the siblings of a
    rest, 0 for a frame. `above_zoom`: an ancestor of what fills the width.
    """

    x: int
    width: int
    node: int
    last: int
    merged: int
    total_ns: int
    above_zoom: bool = False


@dataclass(frozen=True, slots=True)
class IcicleLayout:
    """The boxes of each row, from left to right; the row is the depth in the tree."""

    zoom: Zoom
    rows: list[list[Box]] = field(default_factory=list)

    def find_box(self, tree: FlameTree, node: int) -> tuple[int, int]:
        """Find (row, index) of the box of a node, or of the nearest one around it that is drawn."""
        while node > 0:
            depth = int(tree.depth[node])
            if depth < len(self.rows):
                row = self.rows[depth]
                index = bisect_right(row, node, key=lambda box: box.node) - 1
                if index >= 0 and row[index].node <= node < row[index].last:
                    return depth, index
            node = int(tree.parent[node])
        return 0, 0

    def find_at(self, depth: int, x: int) -> int:
        """Find the index of the box at a cell of a row, -1 for none."""
        if not 0 <= depth < len(self.rows):
            return -1
        row = self.rows[depth]
        index = bisect_right(row, x, key=lambda box: box.x) - 1
        return index if index >= 0 and x < row[index].x + row[index].width else -1

    def find_first_child(self, depth: int, index: int) -> int:
        """Find the index of the first box below a box in the next row, -1 for none."""
        box = self.rows[depth][index]
        if box.merged or depth + 1 >= len(self.rows):
            return -1
        below = self.rows[depth + 1]
        found = bisect_right(below, box.node, key=lambda child: child.node)
        return found if found < len(below) and below[found].node < box.last else -1


def lay_out(tree: FlameTree, zoom: Zoom, width: int) -> IcicleLayout:
    """Lay out all rows of a tree for `width` cells."""
    path = [0, *tree.list_path(zoom.node)]
    rows = [
        [Box(0, width, node, node + int(tree.size[node]), 0, int(tree.total_ns[node]), above_zoom=node != zoom.node)]
        for node in path
    ]
    if width < 1 or not tree.total:
        return IcicleLayout(zoom, rows[:1])
    if zoom.first_child >= 0:
        rows[-1] = [replace(rows[-1][0], above_zoom=True)]
        level = _lay_out_rest(tree, zoom, width)
    else:
        level = _lay_out_children(tree, rows[-1][0])
    while level:
        rows.append(level)
        level = [child for box in level if not box.merged for child in _lay_out_children(tree, box)]
    return IcicleLayout(zoom, rows)


def _lay_out_children(tree: FlameTree, box: Box) -> list[Box]:
    return _divide(tree, box.node, box.node + 1, box.total_ns, box.x, box.width)


def _lay_out_rest(tree: FlameTree, zoom: Zoom, width: int) -> list[Box]:
    """Lay out the children from the first one of a zoom on, which gets READABLE_CELLS at least."""
    first, parent = zoom.first_child, zoom.node
    left = int(tree.total_ns[parent]) - int(tree.value_ns[parent])
    span = left - (int(tree.offset_ns[first]) - int(tree.offset_ns[parent]))
    span = min(span, int(tree.total_ns[first]) * max(width // READABLE_CELLS, 1))
    return _divide(tree, parent, first, span, 0, width)


def _divide(tree: FlameTree, parent: int, first: int, span: int, x: int, width: int) -> list[Box]:
    """Divide `width` cells from `x` on, which stand for `span` ns, among the children of `parent` from `first` on."""
    end = parent + int(tree.size[parent])
    boxes: list[Box] = []
    child, before = first, 0
    while child < end:
        total = int(tree.total_ns[child])
        if total * width < span or before + total > span:
            break
        left, right = x + before * width // span, x + (before + total) * width // span
        boxes.append(Box(left, right - left, child, child + int(tree.size[child]), 0, total))
        child += int(tree.size[child])
        before += total
    if child >= end:
        return boxes
    return _add_rest(tree, boxes, child, (x, x + before * width // span, x + width), span, end)


def _add_rest(
    tree: FlameTree, boxes: list[Box], child: int, cells: tuple[int, int, int], span: int, end: int
) -> list[Box]:
    """Merge the children from `child` on into a rest of one cell or more. `cells`: start, first free one, end."""
    start, left, stop = cells
    if left >= stop:  # all cells are taken: the narrowest frame gives one up, or is merged too
        last = boxes.pop()
        left = stop - 1
        if last.width > 1:
            boxes.append(Box(last.x, last.width - 1, last.node, last.last, 0, last.total_ns))
        else:
            child = last.node
    merged, total, node = 0, 0, child
    while node < end:
        merged, total = merged + 1, total + int(tree.total_ns[node])
        node += int(tree.size[node])
    width = min(max(total * (stop - start) // max(span, 1), 1), stop - left)
    return [*boxes, Box(left, width, child, end, merged, total)]


@dataclass(frozen=True, slots=True)
class FrameMatches:
    """The nodes that match a text: `nodes` int64[m] ascending, `mask` bool[n]; `total_ns`: their time, none twice."""

    text: str
    mask: Bool
    nodes: I64
    total_ns: int

    def find_next(self, node: int, distance: int) -> int:
        """Find the next (1) or previous (-1) match from a node, cyclically: its place in `nodes`, -1 for none."""
        if not len(self.nodes):
            return -1
        side: Literal["left", "right"] = "right" if distance > 0 else "left"
        place = int(self.nodes.searchsorted(node, side=side)) + (0 if distance > 0 else -1)
        return place % len(self.nodes)

    def has_match(self, first: int, end: int) -> bool:
        """Return whether one of the nodes `first` to `end - 1` matches."""
        place = int(self.nodes.searchsorted(first))
        return place < len(self.nodes) and int(self.nodes[place]) < end


def search_frames(tree: FlameTree, shown_names: dict[int, str], text: str) -> FrameMatches | BadPattern:
    """Find the nodes whose name contains `text`, or matches `/text/`; "" finds none.

    `shown_names`: by index of a name, what the screen shows instead, which is searched too.
    """
    matches = compile_matcher(text)
    if isinstance(matches, BadPattern):
        return matches
    used, inverse = np.unique(tree.name, return_inverse=True)
    hits = [matches(tree.names[index]) or matches(shown_names.get(index, "")) for index in used.tolist()]
    mask: Bool = np.array(hits, np.bool_)[inverse.reshape(-1)]
    mask[0] = False  # the root is no frame
    nodes = np.flatnonzero(mask)
    return FrameMatches(text, mask, nodes, _sum_outermost(tree, nodes))


def _sum_outermost(tree: FlameTree, nodes: I64) -> int:
    """Sum the time of nodes that are not below another one of them. `nodes` ascending, so in preorder."""
    ends = np.maximum.accumulate(nodes + tree.size[nodes]) if len(nodes) else nodes
    covered = np.zeros(len(nodes), np.bool_)
    covered[1:] = nodes[1:] < ends[:-1]
    return int(tree.total_ns[nodes[~covered]].sum())


class FlameQuery(NamedTuple):
    """The flame graph to show; results for an earlier query are dropped."""

    fold_by: FoldBy
    time: FoldTime
    scope: int


class FlameMade(Message):
    """A trace was folded, or `problem` says why not. `labels`: of GPU work, by index of its name."""

    def __init__(self, query: FlameQuery, tree: FlameTree | None, labels: dict[int, str], problem: str = "") -> None:
        super().__init__()
        self.query, self.tree, self.labels, self.problem = query, tree, labels, problem


def fold_scope(trace: Trace, query: FlameQuery, scope: TableScope) -> FlameMade:
    """Fold the events of a scope, and label the GPU work among them as the other screens do."""
    try:
        tree = fold_trace(trace, query.fold_by, query.time, scope.select_events())
    except NoFramesError as error:
        return FlameMade(query, None, {}, str(error))
    work = np.unique(tree.name[np.isin(tree.kind, [int(kind) for kind in GPU_WORK])]).tolist()
    labels = label_kernels([tree.names[index] for index in work])
    return FlameMade(query, tree, dict(zip(work, map(clean, labels), strict=True)))


@dataclass(frozen=True, slots=True)
class FlameView:
    """What the flame graph shows: which one, its zoom, the search, and the node of the cursor."""

    query: FlameQuery
    zoom: Zoom
    search: str
    node: int
