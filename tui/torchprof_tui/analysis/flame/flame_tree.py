"""The tree of a flame graph: one node per path of frames, with the time of all events on that path.

It is written in two formats of other programs. Folded stacks are Brendan Gregg's format, which `flamegraph.pl`,
inferno and speedscope read: a line for each path with time of its own, its frames from the outermost separated by
semicolons, then a space and the time. As `prof.export_stacks` does, but in ns and for all time; GPU work is a frame.

speedscope's format: https://www.speedscope.app/file-format-schema.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from typing import Any

import numpy as np

from torchprof_tui import __version__
from torchprof_tui.analysis.dispatch.frame_names import parse_frame
from torchprof_tui.trace.core.arrays import I32, I64, U8
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.records import record


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


@record(slots=False)
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
        return self.names[int(self.name[node])]

    def list_path(self, node: int) -> list[int]:
        """List the nodes from below the root to this node."""
        path: list[int] = []
        while node > 0:
            path.append(node)
            node = int(self.parent[node])
        return path[::-1]


SPEEDSCOPE_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def iterate_folded_lines(tree: FlameTree) -> Iterator[str]:
    """Yield a line, with its newline, for each node with time of its own: `outermost;…;innermost ns`."""
    # A semicolon separates the frames of folded stacks; an empty name would be no frame.
    for path, value in _iterate_paths(tree, [name.replace(";", ":") or "(no name)" for name in _list_labels(tree)]):
        yield f"{';'.join(path)} {value}\n"


def build_speedscope(tree: FlameTree, name: str) -> dict[str, Any]:
    """Build the document of a sampled profile in ns; the weights sum to the tree's total."""
    indexes: dict[str, int] = {}
    numbers = [indexes.setdefault(label, len(indexes)) for label in _list_labels(tree)]
    found = [(list(path), value) for path, value in _iterate_paths(tree, numbers)]
    profile = {
        "type": "sampled",
        "name": name,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": tree.total,
        "samples": [path for path, _ in found],
        "weights": [value for _, value in found],
    }
    return {
        "$schema": SPEEDSCOPE_SCHEMA,
        "shared": {"frames": [_describe_frame(label) for label in indexes]},
        "profiles": [profile],
        "name": name,
        "activeProfileIndex": 0,
        "exporter": f"torchprof-tui@{__version__}",
    }


def format_speedscope(tree: FlameTree, name: str) -> str:
    return json.dumps(build_speedscope(tree, name), ensure_ascii=False, separators=(",", ":")) + "\n"


def _list_labels(tree: FlameTree) -> list[str]:
    """List the name of each node as text without control characters."""
    used, inverse = np.unique(tree.name, return_inverse=True)
    texts = [clean(tree.names[index]) for index in used.tolist()]
    return [texts[index] for index in inverse.reshape(-1).tolist()]


def _iterate_paths(tree: FlameTree, labels: list[Any]) -> Iterator[tuple[list[Any], int]]:
    """Yield (labels from below the root, ns) of each node with time of its own. The list changes afterwards."""
    path: list[Any] = []
    for label, depth, value in zip(labels[1:], tree.depth[1:].tolist(), tree.value_ns[1:].tolist(), strict=True):
        del path[depth - 1 :]
        path.append(label)
        if value:
            yield path, value


def _describe_frame(name: str) -> dict[str, Any]:
    """Describe a frame for speedscope, with the file and the line of a Python frame."""
    frame = parse_frame(name)
    if frame is None:
        return {"name": name}
    return {"name": name, "file": frame.file, **({} if frame.line is None else {"line": frame.line})}
