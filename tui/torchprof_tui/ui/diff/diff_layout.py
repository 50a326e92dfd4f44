"""Share out the lines of the diff screen: the verdict, the lanes of both sides, the panels. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.ui.diff.verdict_lines import VERDICT_LINES

MIN_WIDTH, MIN_HEIGHT = 40, 14
DOCK_SHARE = 0.36
MIN_DOCK, MAX_DOCK = 6, 24
LARGE_DOCK_SHARE = 0.6
MIN_LANES = 2
BESIDE_WIDTH, THREE_WIDTH = 140, 230
"""Widths from which two and three panels stand side by side."""

_FIXED_LINES = 1 + VERDICT_LINES + 2 + 1 + 1
"""Title, verdict, ruler with the steps of A, steps of B, status."""


@dataclass(frozen=True, slots=True)
class DiffLayout:
    """`dock`: lines of the panels; `panels`: how many stand side by side; `lanes`: lines for lanes of A and of B."""

    dock: int
    panels: int
    lanes: tuple[int, int]


def compute_layout(width: int, height: int, is_enlarged: bool, needed: tuple[int, int]) -> DiffLayout:
    """Compute the layout of a screen. `needed`: lines that show all lanes of A and of B; the panels get the others."""
    room = max(height - _FIXED_LINES, 6)
    dock = round(room * (LARGE_DOCK_SHARE if is_enlarged else DOCK_SHARE))
    dock = max(min(dock, room - 4), min(MIN_DOCK, room - 4), 2)
    if not is_enlarged:
        dock = min(dock, MAX_DOCK)
    lanes = room - dock
    all_a, all_b = (max(lines, MIN_LANES) for lines in needed)
    first = min(max(lanes - lanes // 2, lanes - all_b), all_a)
    second = min(lanes - first, all_b)
    panels = 3 if width >= THREE_WIDTH else 2 if width >= BESIDE_WIDTH else 1
    return DiffLayout(room - first - second, panels, (first, second))


def explain_small_screen(width: int, height: int) -> str:
    """Return why a screen is too small, "" if it is not."""
    if width >= MIN_WIDTH and height >= MIN_HEIGHT:
        return ""
    return f"the comparison needs {MIN_WIDTH}x{MIN_HEIGHT} cells; this terminal has {width}x{height}"
