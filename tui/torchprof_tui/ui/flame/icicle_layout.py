"""Lay out the frames of a flame graph in cells.

One row per depth, one box per frame that is a cell wide or more. Narrower siblings are merged into one box at the end
of their row, the rest, which always has a cell: children are sorted by their time, so the narrow ones are neighbours.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field, replace

from torchprof_tui.analysis.flame.flame_tree import FlameTree
from torchprof_tui.trace.core.records import record

READABLE_CELLS = 12
"""Width of the widest frame of a rest that was zoomed into, where all of them would be too narrow otherwise."""


@record
class Zoom:
    """What fills the width: a node, or, with `first_child`, its children from that one on."""

    node: int = 0
    first_child: int = -1


@record
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


@record
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
        # the children from the first one on, which gets READABLE_CELLS at least
        first, parent = zoom.first_child, zoom.node
        left = int(tree.total_ns[parent]) - int(tree.value_ns[parent])
        span = left - (int(tree.offset_ns[first]) - int(tree.offset_ns[parent]))
        span = min(span, int(tree.total_ns[first]) * max(width // READABLE_CELLS, 1))
        level = _divide(tree, parent, first, span, 0, width)
    else:
        level = _lay_out_children(tree, rows[-1][0])
    while level:
        rows.append(level)
        level = [child for box in level if not box.merged for child in _lay_out_children(tree, box)]
    return IcicleLayout(zoom, rows)


def _lay_out_children(tree: FlameTree, box: Box) -> list[Box]:
    return _divide(tree, box.node, box.node + 1, box.total_ns, box.x, box.width)


def _divide(tree: FlameTree, parent: int, first: int, span: int, x: int, width: int) -> list[Box]:
    """Divide `width` cells from `x` on, which stand for `span` ns, among the children of `parent` from `first` on.

    The narrow ones at the end are merged into a rest of one cell or more.
    """
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
    left, stop = x + before * width // span, x + width
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
    width = min(max(total * width // max(span, 1), 1), stop - left)
    return [*boxes, Box(left, width, child, end, merged, total)]
