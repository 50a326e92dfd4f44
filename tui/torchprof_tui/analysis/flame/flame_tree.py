"""The tree of a flame graph: one node per path of frames, with the time of all events on that path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from torchprof_tui.trace.core.arrays import I32, I64, U8


class FoldBy(Enum):
    """What the frames of a flame graph are."""

    STACK = "stack"  # Python frames, as with_stack records them
    MODULE = "module"  # calls of an nn.Module
    OP = "op"  # annotations, ops and runtime calls, as they nest


class FoldTime(Enum):
    """The time that a flame graph adds up."""

    GPU = "gpu"  # durations of kernels, copies and memsets
    CPU = "cpu"  # time of the events on CPU threads, without what is nested in them


class NoFramesError(Exception):
    """The trace lacks what a flame graph is made of; the text says so and how to record it."""


@dataclass(frozen=True)
class FlameTree:
    """Arrays over n nodes in preorder, heaviest child first; a subtree is the range of its size. Times in ns.

    Node 0 is the root: all of the time. `name`: index into `names`. `kind`: of the first event. `value_ns`: the time
    that belongs to the node itself; the values sum to `total_ns[0]`, which is the self time of the scope. `total_ns`:
    of the subtree. `offset_ns`: of all that is left of the node in an icicle, where children begin at their parent's
    left edge. `count`: events on this path that have time in the scope, themselves or below. `first_event`: the
    earliest of them, -1 for the root. `missing_ns`: time that no frame was recorded for; it has nodes of its own.
    """

    parent: I32  # -1 for the root
    depth: I32
    size: I32
    name: I32
    kind: U8
    value_ns: I64
    total_ns: I64
    offset_ns: I64
    count: I64
    first_event: I32
    names: list[str]
    missing_ns: int
    fold_by: FoldBy
    time: FoldTime

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def total(self) -> int:
        """All time of the scope, ns."""
        return int(self.total_ns[0])

    def label(self, node: int) -> str:
        """Return the name of a node, as recorded."""
        return self.names[int(self.name[node])]

    def iterate_children(self, node: int) -> Iterator[int]:
        """Iterate over the children of a node, heaviest first."""
        child, end = node + 1, node + int(self.size[node])
        while child < end:
            yield child
            child += int(self.size[child])

    def list_path(self, node: int) -> list[int]:
        """List the nodes from below the root to this node."""
        path: list[int] = []
        while node > 0:
            path.append(node)
            node = int(self.parent[node])
        return path[::-1]
