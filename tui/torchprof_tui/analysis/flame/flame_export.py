"""Write a flame graph in the formats of other programs: folded stacks and speedscope's JSON.

Folded stacks are Brendan Gregg's format, which `flamegraph.pl`, inferno and speedscope read: a line for each path with
time of its own, its frames from the outermost separated by semicolons, then a space and the time. As
`prof.export_stacks` does, but in ns and for all time; GPU work is a frame too.

speedscope's format: https://www.speedscope.app/file-format-schema.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from torchprof_tui import __version__
from torchprof_tui.analysis.dispatch.frame_names import parse_frame
from torchprof_tui.analysis.flame.flame_tree import FlameTree
from torchprof_tui.trace.core.printable import clean

SPEEDSCOPE_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def iterate_folded_lines(tree: FlameTree) -> Iterator[str]:
    """Yield a line, with its newline, for each node with time of its own: `outermost;…;innermost ns`."""
    for path, value in _iterate_paths(tree, [_fold_name(name) for name in _list_labels(tree)]):
        yield f"{';'.join(path)} {value}\n"


def build_speedscope(tree: FlameTree, name: str) -> dict[str, Any]:
    """Build the document of a sampled profile in ns; the weights sum to the tree's total."""
    indexes: dict[str, int] = {}
    labels = _list_labels(tree)
    numbers = [indexes.setdefault(label, len(indexes)) for label in labels]
    samples, weights = [], []
    for path, value in _iterate_paths(tree, numbers):
        samples.append(list(path))
        weights.append(value)
    profile = {
        "type": "sampled",
        "name": name,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": tree.total,
        "samples": samples,
        "weights": weights,
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
    """Format the document of `build_speedscope` as JSON."""
    return json.dumps(build_speedscope(tree, name), ensure_ascii=False, separators=(",", ":")) + "\n"


def _list_labels(tree: FlameTree) -> list[str]:
    """List the name of each node as text without control characters."""
    used, inverse = np.unique(tree.name, return_inverse=True)
    texts = [clean(tree.names[index]) for index in used.tolist()]
    return [texts[index] for index in inverse.reshape(-1).tolist()]


def _iterate_paths(tree: FlameTree, labels: list[Any]) -> Iterator[tuple[list[Any], int]]:
    """Yield (labels from below the root, ns) of each node with time of its own. The list changes afterwards."""
    path: list[Any] = []
    for node, (depth, value) in enumerate(zip(tree.depth.tolist(), tree.value_ns.tolist(), strict=True)):
        if node == 0:
            continue
        del path[depth - 1 :]
        path.append(labels[node])
        if value:
            yield path, value


def _fold_name(name: str) -> str:
    """Replace what separates frames and lines in folded stacks; an empty name would be no frame."""
    return name.replace(";", ":") or "(no name)"


def _describe_frame(name: str) -> dict[str, Any]:
    """Describe a frame for speedscope, with the file and the line of a Python frame."""
    frame = parse_frame(name)
    if frame is None:
        return {"name": name}
    return {"name": name, "file": frame.file, **({} if frame.line is None else {"line": frame.line})}
