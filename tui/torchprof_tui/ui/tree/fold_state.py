"""Which nodes of the dispatch tree are listed: folding and searching combined.

A search lists the matching nodes and their ancestors, all unfolded. Folding then works within these nodes until the
text of the search changes. Without a search, everything is folded as it was before.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from torchprof_tui.analysis.dispatch.call_tree import DispatchTree
from torchprof_tui.analysis.search.name_search import BadPattern, compile_matcher
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.core.records import record


@record
class FoldSnapshot:
    """The folding and the search of a tree at one time, and the node under the cursor."""

    folded: Bool
    folded_unfiltered: Bool
    filter: str
    node: int


class FoldState:
    """Folding and search of one tree.

    `visible_nodes` int32[k]: the nodes to list, in order. `matching_nodes` int64[m]: the nodes that match the search,
    whether they are listed or folded away; `match_count`: their number, -1 without a search.
    """

    def __init__(self, tree: DispatchTree, names: list[str], shown_names: list[str] | None = None) -> None:
        """Fold a tree. `names`: the strings that the tree's `name` indexes; `shown_names`: as the screen shows them."""
        self._tree, self._shown_names = tree, names if shown_names is None else shown_names
        self._names = names
        self._folded_unfiltered = tree.collapse_from_depth()  # the folding without a filter
        self._folded = self._folded_unfiltered
        self._matching: Bool | None = None
        self._visible_descendants: I32 | I64 = tree.size - 1  # descendants of each node that the filter keeps
        self.filter = ""
        self.match_count = -1
        self.matching_nodes: I64 = np.zeros(0, np.int64)
        self.visible_nodes: I32 = tree.list_visible(self._folded)

    def set_filter(self, text: str) -> str:
        """List the nodes whose name matches and their ancestors, unfolded; "" lists all.

        `text` is contained in the name, recorded or shortened, or is `/a regular expression/`; a capital makes it
        case-sensitive. Returns what is wrong with it, else "".
        """
        matches = compile_matcher(text)
        if isinstance(matches, BadPattern):
            return matches.message
        self.filter = text
        if not text:
            self._matching, self._folded = None, self._folded_unfiltered
            self._visible_descendants, self.match_count = self._tree.size - 1, -1
            self.matching_nodes = np.zeros(0, np.int64)
        else:
            hits = (matches(name) or matches(shown) for name, shown in zip(self._names, self._shown_names, strict=True))
            name_matches = np.array([*hits] or [False], np.bool_)
            self._matching = name_matches[self._tree.name] & (self._tree.name >= 0)
            self._folded = np.zeros(len(self._tree), np.bool_)
            self._visible_descendants = self._tree.count_in_subtrees(self._matching) - self._matching
            self.matching_nodes = np.flatnonzero(self._matching)
            self.match_count = len(self.matching_nodes)
        self._update_visible_nodes()
        return ""

    def count_filtered(self) -> int:
        """Count the nodes that the search keeps, matches and their ancestors, folded away or not."""
        return (
            len(self._tree) if self._matching is None else int((self._tree.count_in_subtrees(self._matching) > 0).sum())
        )

    def find_match(self, node: int, distance: int) -> int:
        """Find the next (1) or previous (-1) match from a node, cyclically: its place in `matching_nodes`, or -1."""
        if not len(self.matching_nodes):
            return -1
        side: Literal["left", "right"] = "right" if distance > 0 else "left"
        place = int(self.matching_nodes.searchsorted(node, side=side)) + (0 if distance > 0 else -1)
        return place % len(self.matching_nodes)

    def reveal(self, node: int) -> None:
        """Unfold the ancestors of a node."""
        parent = int(self._tree.parent[node])
        while parent >= 0:
            self._folded[parent] = False
            parent = int(self._tree.parent[parent])
        self._update_visible_nodes()

    def take_snapshot(self, node: int) -> FoldSnapshot:
        """Keep the folding, the search and the node under the cursor for `restore`."""
        return FoldSnapshot(self._folded.copy(), self._folded_unfiltered.copy(), self.filter, node)

    def restore(self, snapshot: FoldSnapshot) -> None:
        """Fold and search as at the time of a snapshot."""
        self._folded_unfiltered = snapshot.folded_unfiltered.copy()
        self.set_filter(snapshot.filter)
        if snapshot.filter:
            self._folded = snapshot.folded.copy()
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
