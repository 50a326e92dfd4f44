"""Search the frames of a flame graph by name."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.flame.flame_tree import FlameTree
from torchprof_tui.analysis.search.name_search import BadPattern, compile_matcher
from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.core.records import record


@record
class FrameMatches:
    """The nodes that match a text: `nodes` int64[m] ascending, `mask` bool[n]; `total_ns`: their time, none twice."""

    text: str
    mask: Bool
    nodes: I64
    total_ns: int

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
    # The time of matches below another match is part of that one's; in preorder these follow it.
    ends = np.maximum.accumulate(nodes + tree.size[nodes]) if len(nodes) else nodes
    covered = np.zeros(len(nodes), np.bool_)
    covered[1:] = nodes[1:] < ends[:-1]
    return FrameMatches(text, mask, nodes, int(tree.total_ns[nodes[~covered]].sum()))
