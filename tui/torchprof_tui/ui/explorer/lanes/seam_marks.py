"""Draw the seams of folded repeats: strokes on the lanes, and on the ruler how many are hidden and their times."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from torchprof_tui.analysis.repetition.repeat_fold import Seam
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.query.viewport import Viewport

SEAM = "╱"
"""A cell of a seam on the lanes and on the ruler."""


def list_seam_columns(viewport: Viewport) -> list[int]:
    """List the columns that a seam fills."""
    if viewport.fold is None:
        return []
    return [x for part in viewport.list_sections() if part.seam >= 0 for x in range(part.first, part.end)]


def find_seam_time(viewport: Viewport, column: int) -> int:
    """Return the hidden time that has its place in a column of a seam; -1 beside the seams."""
    if viewport.fold is None:
        return -1
    for part in viewport.list_sections():
        if part.first <= column < part.end and part.seam >= 0:
            return min(max(viewport.middle(column), part.t0), part.t1 - 1)
    return -1


def format_seam(seam: Seam, width: int) -> str:
    """Format the fullest label that fits: "× 31 · p50 2.1 ms · p95 2.4 ms" to "×31"; or strokes."""
    count, p50, p95 = f"× {seam.count:,}", format_duration(round(seam.p50)), format_duration(round(seam.p95))
    same_unit = p50.partition(" ")[0] if p50.rpartition(" ")[2] == p95.rpartition(" ")[2] else p50
    labels = (
        f" {count} · p50 {p50} · p95 {p95} ",
        f" {count} p50 {same_unit} p95 {p95} ",
        f" {count} p50 {p50} ",
        f" {count} ",
        count.replace(" ", ""),
    )
    text = next((label for label in labels if cell_len(label) <= width), "")
    return text.center(width, SEAM) if text else SEAM * width


def place_seams(viewport: Viewport, seams: Sequence[Seam]) -> list[tuple[int, str]]:
    """Return (first column, text) of each seam on screen, left to right; seams that share a cell have one."""
    return [
        (part.first, format_seam(seams[part.seam], part.end - part.first))
        for part in viewport.list_sections()
        if part.seam >= 0
    ]
