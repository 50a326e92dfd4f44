"""Which nodes of the dispatch tree are listed: folding and filtering combined. Knows nothing of the screen.

A filter lists the matching nodes and their ancestors, all unfolded. Folding then works within these nodes until the
text of the filter changes. Without a filter, everything is folded as it was before.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.call_tree import DispatchTree
from torchprof_tui.trace.core.arrays import I32, I64, Bool


class FoldState:
    """Folding and filter of one tree.

    `visible_nodes` int32[k]: the nodes to list, in order. `match_count`: nodes that match the filter, -1 without one.
    """

    def __init__(self, tree: DispatchTree, names: list[str]) -> None:
        """Fold a tree. `names`: the strings that the tree's `name` indexes."""
        self._tree = tree
        self._names = [name.lower() for name in names]
        self._folded_unfiltered = tree.collapse_from_depth()  # the folding without a filter
        self._folded = self._folded_unfiltered
        self._matching: Bool | None = None
        self._visible_descendants: I32 | I64 = tree.size - 1  # descendants of each node that the filter keeps
        self.filter = ""
        self.match_count = -1
        self.visible_nodes: I32 = tree.list_visible(self._folded)

    def set_filter(self, text: str) -> None:
        """List the nodes whose name contains `text` (ignoring case) and their ancestors, unfolded; "" lists all."""
        self.filter = text
        if not text:
            self._matching, self._folded = None, self._folded_unfiltered
            self._visible_descendants, self.match_count = self._tree.size - 1, -1
        else:
            lowered = text.lower()
            name_matches = np.array([lowered in name for name in self._names] or [False], np.bool_)
            self._matching = name_matches[self._tree.name] & (self._tree.name >= 0)
            self._folded = np.zeros(len(self._tree), np.bool_)
            self._visible_descendants = self._tree.count_in_subtrees(self._matching) - self._matching
            self.match_count = int(np.count_nonzero(self._matching))
        self._update_visible_nodes()

    def can_fold(self, node: int) -> bool:
        """Return whether the node has descendants that the filter keeps."""
        return bool(self._visible_descendants[node] > 0)

    def is_unfolded(self, node: int) -> bool:
        return self.can_fold(node) and not self._folded[node]

    def unfold(self, node: int) -> None:
        """Unfold a node, and its descendants as long as each has only one child (Python frames that call the next)."""
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
        """Return the index of a node in the list, or of the nearest listed node before it; -1 for none."""
        return int(np.searchsorted(self.visible_nodes, node, side="right")) - 1

    def _update_visible_nodes(self) -> None:
        self.visible_nodes = self._tree.list_visible(self._folded, self._matching)
