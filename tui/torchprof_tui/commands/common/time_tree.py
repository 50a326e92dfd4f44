"""Format a time tree as lines of text, and as JSON."""

from __future__ import annotations

from typing import Any

from torchprof_tui.analysis.patterns.engine.registry import registered_patterns
from torchprof_tui.analysis.patterns.verdict.time_tree import COMPUTE, TimePart, TimeTree
from torchprof_tui.analysis.patterns.verdict.tree_lines import MAX_LINES, select_tree_lines
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.number_format import format_share

_INDENT = 2
_SHARE_CELLS, _TIME_CELLS = 6, 9


def format_time_tree(tree: TimeTree, max_lines: int = MAX_LINES) -> list[str]:
    """Format the largest parts of a tree, one line each: share, time, cause; what lies inside a part is indented."""
    lines = []
    for line in select_tree_lines(tree, max_lines):
        indent = " " * (_INDENT * line.depth)
        numbers = f"{format_share(line.share):>{_SHARE_CELLS}}  {format_duration(line.time):>{_TIME_CELLS}}"
        lines.append(f"{indent}{numbers}  {clean(line.label)}")
    return lines


def format_device_count(tree: TimeTree) -> str:
    """Format over how many devices the times of a tree are the mean, "" for one."""
    return f", mean of {tree.device_count} GPUs" if tree.device_count > 1 else ""


def time_tree_as_json(tree: TimeTree | None) -> list[dict[str, Any]]:
    """Build the list `causes`; `us` is the mean of the devices, so that the top level sums to the scope's length."""
    if tree is None:
        return []
    return [
        {
            "cause": part.id,
            "label": part.label,
            **_numbers_as_json(tree, part),
            "contains": [_inner_part_as_json(tree, inner, part.id == COMPUTE) for inner in part.parts],
        }
        for part in tree.parts
    ]


def _inner_part_as_json(tree: TimeTree, part: TimePart, is_class: bool) -> dict[str, Any]:
    kind = "class" if is_class else "pattern" if part.id in registered_patterns() else "op"
    inner = [_inner_part_as_json(tree, each, False) for each in part.parts]
    return {kind: part.id, **_numbers_as_json(tree, part), **({"contains": inner} if inner else {})}


def _numbers_as_json(tree: TimeTree, part: TimePart) -> dict[str, float]:
    return {"us": part.time / tree.device_count / 1000, "share": round(tree.share(part), 6)}
