"""Read the annotations that torch 2.14 and later write into the args of replayed kernels.

`mark_kernels("name")` and `mark_kernels({...})` tag the nodes of a graph while it is captured; the exported trace has
the fields of the annotation in the args of each kernel with that `graph node id` (docs: torch.cuda.graph_annotations).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from torchprof_tui.analysis.graphs.replays import Replays
from torchprof_tui.trace.core.arrays import I32, Bool
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries

_LABEL_KEYS = ("module_fqn", "name", "str")
"""Fields that name what a node belongs to, the most precise first."""


@dataclass(frozen=True, slots=True)
class NodeAnnotations:
    """`index` int32[W]: into `texts` for each piece of replayed work; 0 stands for none."""

    index: I32
    texts: tuple[str, ...]

    def text_of(self, work_index: int) -> str:
        """Return the annotation of one piece of work, "" for none."""
        return self.texts[int(self.index[work_index])]

    @property
    def has_text(self) -> Bool:
        """Which pieces of work are annotated: bool[W]."""
        has_text: Bool = self.index > 0
        return has_text


def read_node_annotations(trace: Trace, replays: Replays) -> NodeAnnotations:
    """Read the annotation of each graph node from one of its kernels. Only traces with graph node ids have any."""
    index = np.zeros(len(replays.work), np.int32)
    column = trace.args.get("graph_node")
    if column is None:
        return NodeAnnotations(index, ("",))
    node = column.values_at(replays.work, 0).astype(np.int64)
    nodes, first, inverse = np.unique(node, return_index=True, return_inverse=True)
    texts = {"": 0}
    text_of_node = np.zeros(len(nodes), np.int32)
    with contextlib.suppress(OSError, LookupError):  # the file is gone or has changed
        for position, entry in read_entries(trace, replays.work[first]):
            if nodes[position] > 0:
                text = _find_label(entry.get("args"))
                text_of_node[position] = texts.setdefault(text, len(texts))
    return NodeAnnotations(text_of_node[inverse].astype(np.int32), tuple(texts))


def _find_label(args: Any) -> str:
    if not isinstance(args, dict):
        return ""
    for key in _LABEL_KEYS:
        value = args.get(key)
        if isinstance(value, str) and value:
            return value
    return ""
