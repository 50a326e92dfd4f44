"""What the dispatch tree lists: what is folded, what a filter finds, and how the two go together. No screen in here.

A filter unfolds all that leads to what it finds. From there on folding works in what it lists, until its text changes;
without a filter everything is folded as it was before.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.call_tree import DispatchTree
from torchprof_tui.trace.core.arrays import I32, I64, Bool


class FoldState:
    """`listed` int32[k]: the nodes to show, in order. `found`: how many the filter finds, -1 without one."""

    def __init__(self, tree: DispatchTree, names: list[str]) -> None:
        """`names`: what the tree's `name` counts in."""
        self._tree = tree
        self._names = [name.lower() for name in names]
        self._folded_unfiltered = tree.collapse_from_depth()  # as it is without a filter
        self._folded = self._folded_unfiltered
        self._matching: Bool | None = None
        self._visible_descendants: I32 | I64 = tree.size - 1  # nodes below each that the filter leaves
        self.filter = ""
        self.match_count = -1
        self.visible_nodes: I32 = tree.list_visible(self._folded)

    def set_filter(self, text: str) -> None:
        """Only nodes with this in their name, whatever its case, and what leads there, unfolded; all nodes for ""."""
        self.filter = text
        if not text:
            self._matching, self._folded, self._visible_descendants, self.match_count = (
                None,
                self._folded_unfiltered,
                self._tree.size - 1,
                -1,
            )
        else:
            wanted = text.lower()
            of_name = np.array([wanted in name for name in self._names] or [False], np.bool_)
            self._matching = of_name[self._tree.name] & (self._tree.name >= 0)
            self._folded = np.zeros(len(self._tree), np.bool_)
            self._visible_descendants = self._tree.count_in_subtrees(self._matching) - self._matching
            self.match_count = int(np.count_nonzero(self._matching))
        self._update_visible_nodes()

    def can_fold(self, node: int) -> bool:
        """Whether there is something beneath it to be listed."""
        return bool(self._visible_descendants[node] > 0)

    def is_unfolded(self, node: int) -> bool:
        return self.can_fold(node) and not self._folded[node]

    def unfold(self, node: int) -> None:
        """Unfold, and below it as long as there is but one way on: frames of Python that only call the next."""
        size = self._tree.size
        self._folded[node] = False
        while size[node] > 1 and size[node + 1] == size[node] - 1:
            node += 1
            self._folded[node] = False
        self._update_visible_nodes()

    def fold(self, node: int) -> None:
        self._folded[node] = True
        self._update_visible_nodes()

    def toggle(self, node: int) -> None:
        self._folded[node] = not self._folded[node]
        self._update_visible_nodes()

    def set_all_folds(self, unfolded: bool) -> None:
        self._folded[:] = False if unfolded else self._tree.collapse_from_depth(0)
        self._update_visible_nodes()

    def index_of(self, node: int) -> int:
        """Where a node is listed, or else the nearest one before it that is; -1 for none."""
        return int(np.searchsorted(self.visible_nodes, node, side="right")) - 1

    def _update_visible_nodes(self) -> None:
        self.visible_nodes = self._tree.list_visible(self._folded, self._matching)
