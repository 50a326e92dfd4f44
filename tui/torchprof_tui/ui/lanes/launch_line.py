"""The link line from a launch to its GPU work, with an arrow at the edge of the screen where one end is off screen.

Pure geometry. The line never covers a bar, so it is routed where bars hide the least of it.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.trace.core.records import record

DOWN, ACROSS = "┊", "┄"
TO_LEFT, TO_RIGHT, TO_ABOVE, TO_BELOW = "◀", "▶", "▲", "▼"


@record
class LinkEnd:
    """An end of the line in cells. `x` may be off screen; `y` is a screen line, None where the row is scrolled off
    screen, which `above` tells from below."""

    x: int
    y: int | None
    above: bool = False


def route_link(
    launch: LinkEnd, work: LinkEnd, occupied: Bool, rule_lines: Collection[int] = frozenset()
) -> dict[tuple[int, int], str]:
    """Return the glyphs of the link line by (line, column).

    `occupied` bool[height, width]: cells where a bar would hide it. `rule_lines`: screen lines with a rule over the
    full width, on which a horizontal part would not be seen.
    """
    cells: dict[tuple[int, int], str] = {}
    height, width = occupied.shape
    if launch.y is not None and work.y is not None and 0 <= launch.x < width and 0 <= work.x < width:
        _draw_elbow(cells, launch, work, occupied, rule_lines)
        return cells
    for visible, hidden in ((launch, work), (work, launch)):
        if visible.y is None or not 0 <= visible.x < width:
            continue
        if hidden.x >= width:
            cells[visible.y, width - 1] = TO_RIGHT
        elif hidden.x < 0:
            cells[visible.y, 0] = TO_LEFT
        elif hidden.y is None:
            edge, glyph = (0, TO_ABOVE) if hidden.above else (height - 1, TO_BELOW)
            step = 1 if edge > visible.y else -1
            cells.update({(y, hidden.x): DOWN for y in range(visible.y + step, edge, step)})
            cells[edge, hidden.x] = glyph
    return cells


def _draw_elbow(
    cells: dict[tuple[int, int], str], launch: LinkEnd, work: LinkEnd, occupied: Bool, rule_lines: Collection[int]
) -> None:
    """Draw down from the launch, across on a line between the two, and down to the work; upwards likewise."""
    assert launch.y is not None
    assert work.y is not None
    step = 1 if work.y > launch.y else -1
    between = range(launch.y + step, work.y, step)
    if not between:
        return
    if work.x == launch.x:
        cells.update({(y, work.x): DOWN for y in between})
        return
    turn = _choose_turn_line(between, launch.x, work.x, occupied, rule_lines)
    right, down = work.x > launch.x, step > 0
    cells.update({(y, launch.x): DOWN for y in range(launch.y + step, turn, step)})
    cells[turn, launch.x] = ("╰" if right else "╯") if down else ("╭" if right else "╮")
    cells.update({(turn, x): ACROSS for x in range(min(launch.x, work.x) + 1, max(launch.x, work.x))})
    cells[turn, work.x] = ("╮" if right else "╭") if down else ("╯" if right else "╰")
    cells.update({(y, work.x): DOWN for y in range(turn + step, work.y, step)})


def _choose_turn_line(between: range, from_x: int, to_x: int, occupied: Bool, rule_lines: Collection[int]) -> int:
    """Choose the screen line of the horizontal part: the one where bars hide the fewest cells of the whole line.

    Corners count twice, because a line with a hidden corner seems to lead to the bar that hides it. Of equal lines,
    prefer one without a rule, then the one nearest to the work.
    """
    lines = np.array(between)
    hidden_before = np.concatenate([[0], np.cumsum(occupied[lines, from_x])])
    hidden_after = np.concatenate([[0], np.cumsum(occupied[lines, to_x])])
    first, last = sorted((from_x, to_x))

    def cost(index: int) -> tuple[int, bool, int]:
        y = between[index]
        across = int(occupied[y, first : last + 1].sum()) + int(occupied[y, from_x]) + int(occupied[y, to_x])
        down = int(hidden_before[index]) + int(hidden_after[-1] - hidden_after[index + 1])
        return across + down, y in rule_lines, -index

    return between[min(range(len(between)), key=cost)]
