"""Format a time tree as lines of text."""

from __future__ import annotations

from torchprof_tui.analysis.patterns.verdict.tree_lines import MAX_LINES, select_tree_lines
from torchprof_tui.analysis.patterns.verdict.tree_model import TimeTree
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
