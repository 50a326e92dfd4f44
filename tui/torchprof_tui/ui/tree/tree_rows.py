"""Measures of the tree's rows: which columns fit, how far a node is indented, and its style."""

from __future__ import annotations

from rich.style import Style

from torchprof_tui.ui.common.event_styles import Palette

NUMBER_CELLS, SELF_CELLS, GPU_CELLS = 54, 12, 21
"""Cells of all columns of numbers; of the self time among them, which narrow terminals leave out; and of the two of the
GPU, which a trace without GPU work leaves out instead."""

SELF_MIN_WIDTH = 100
"""Width from which the self time is shown."""

MAX_INDENT, MIN_LABEL_CELLS = 40, 22
"""Limit of the indentation, and cells that it leaves to the label; deeper nodes are marked with "…" and their depth."""


def select_row_style(palette: Palette, selected: bool, is_root: bool) -> Style:
    """Select the style of a row's label."""
    return palette.active if selected else palette.heading if is_root else palette.text


def shows_self_time(width: int, has_gpu: bool) -> bool:
    """Return whether the self time has a column: where there is room, or no columns of the GPU."""
    return width >= SELF_MIN_WIDTH or not has_gpu


def count_name_cells(width: int, has_gpu: bool = True) -> int:
    """Count the cells that the columns of numbers leave to the name."""
    left_out = (0 if shows_self_time(width, has_gpu) else SELF_CELLS) + (0 if has_gpu else GPU_CELLS)
    return max(width - NUMBER_CELLS + left_out, 12)


def format_indent(depth: int, name_cells: int) -> str:
    """Format the indentation of a node; where the node is deeper than it can show, "…" and the depth."""
    limit = min(MAX_INDENT, max(name_cells - MIN_LABEL_CELLS, 4))
    return " " * depth if depth <= limit else f"…{depth}".ljust(limit)
