"""What the dispatch tree lists: what is folded, what a filter finds, and how the two go together. No screen in here.

A filter unfolds all that leads to what it finds. From there on folding works in what it lists, until its text changes;
without a filter everything is folded as it was before.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.call_tree import DispatchTree
from torchprof_tui.trace.core.arrays import I32, I64, Bool


class TreeFolds:
    """`listed` int32[k]: the nodes to show, in order. `found`: how many the filter finds, -1 without one."""

    def __init__(self, tree: DispatchTree, names: list[str]) -> None:
        """`names`: what the tree's `name` counts in."""
        self._tree = tree
        self._names = [name.lower() for name in names]
        self._kept = tree.first_look()  # as it is without a filter
        self._shut = self._kept
        self._matching: Bool | None = None
        self._beneath: I32 | I64 = tree.size - 1  # nodes below each that the filter leaves
        self.filter = ""
        self.found = -1
        self.listed: I32 = tree.visible(self._shut)

    def filter_by(self, text: str) -> None:
        """Only nodes with this in their name, whatever its case, and what leads there, unfolded; all nodes for ""."""
        self.filter = text
        if not text:
            self._matching, self._shut, self._beneath, self.found = None, self._kept, self._tree.size - 1, -1
        else:
            wanted = text.lower()
            of_name = np.array([wanted in name for name in self._names] or [False], np.bool_)
            self._matching = of_name[self._tree.name] & (self._tree.name >= 0)
            self._shut = np.zeros(len(self._tree), np.bool_)
            self._beneath = self._tree.within(self._matching) - self._matching
            self.found = int(np.count_nonzero(self._matching))
        self._list()

    def can_fold(self, node: int) -> bool:
        """Whether there is something beneath it to be listed."""
        return bool(self._beneath[node] > 0)

    def is_open(self, node: int) -> bool:
        return self.can_fold(node) and not self._shut[node]

    def open(self, node: int) -> None:
        """Unfold, and below it as long as there is but one way on: frames of Python that only call the next."""
        size = self._tree.size
        self._shut[node] = False
        while size[node] > 1 and size[node + 1] == size[node] - 1:
            node += 1
            self._shut[node] = False
        self._list()

    def close(self, node: int) -> None:
        self._shut[node] = True
        self._list()

    def toggle(self, node: int) -> None:
        self._shut[node] = not self._shut[node]
        self._list()

    def all(self, opened: bool) -> None:
        self._shut[:] = False if opened else self._tree.first_look(0)
        self._list()

    def place_of(self, node: int) -> int:
        """Where a node is listed, or else the nearest one before it that is; -1 for none."""
        return int(np.searchsorted(self.listed, node, side="right")) - 1

    def _list(self) -> None:
        self.listed = self._tree.visible(self._shut, self._matching)
