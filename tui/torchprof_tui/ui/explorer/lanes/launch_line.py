"""The line from a launch to its GPU work: which blank cells of the lanes it goes through, and an arrow at the edge
where one end is out of sight. Pure geometry; bars are never covered, so it goes where the fewest of them hide it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import Bool

DOWN, ACROSS = "┊", "┄"
TO_LEFT, TO_RIGHT, TO_ABOVE, TO_BELOW = "◀", "▶", "▲", "▼"


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """Where an end lies in cells: `y` a screen line, None where its row is scrolled out of sight (`above` says
    which way); `x` may lie outside the screen."""

    x: int
    y: int | None
    above: bool = False


def route_link(
    launch: LinkEnd, work: LinkEnd, occupied: Bool, rule_lines: Collection[int] = frozenset()
) -> dict[tuple[int, int], str]:
    """Glyph by (line, column), at most one line down, one across and two arrows.

    `taken` bool[height, width]: cells where a bar would hide it. `ruled`: lines with a rule from side to side, on which
    a line across would be lost.
    """
    cells: dict[tuple[int, int], str] = {}
    height, width = occupied.shape
    if launch.y is not None and work.y is not None and 0 <= launch.x < width and 0 <= work.x < width:
        _draw_elbow(cells, launch, work, occupied, rule_lines)
        return cells
    for here, there in ((launch, work), (work, launch)):
        if here.y is None or not 0 <= here.x < width:
            continue
        if there.x >= width:
            cells[here.y, width - 1] = TO_RIGHT
        elif there.x < 0:
            cells[here.y, 0] = TO_LEFT
        elif there.y is None:
            edge, glyph = (0, TO_ABOVE) if there.above else (height - 1, TO_BELOW)
            step = 1 if edge > here.y else -1
            cells.update({(y, there.x): DOWN for y in range(here.y + step, edge, step)})
            cells[edge, there.x] = glyph
    return cells


def _draw_elbow(
    cells: dict[tuple[int, int], str], launch: LinkEnd, work: LinkEnd, taken: Bool, ruled: Collection[int]
) -> None:
    """Down from the launch, across on a line between the two, and down to the work."""
    assert launch.y is not None
    assert work.y is not None
    step = 1 if work.y > launch.y else -1
    between = range(launch.y + step, work.y, step)
    if not between:
        return
    if work.x == launch.x:
        cells.update({(y, work.x): DOWN for y in between})
        return
    turn = _choose_turn_line(between, launch.x, work.x, taken, ruled)
    right, down = work.x > launch.x, step > 0
    cells.update({(y, launch.x): DOWN for y in range(launch.y + step, turn, step)})
    cells[turn, launch.x] = ("╰" if right else "╯") if down else ("╭" if right else "╮")
    cells.update({(turn, x): ACROSS for x in range(min(launch.x, work.x) + 1, max(launch.x, work.x))})
    cells[turn, work.x] = ("╮" if right else "╭") if down else ("╯" if right else "╰")
    cells.update({(y, work.x): DOWN for y in range(turn + step, work.y, step)})


def _choose_turn_line(between: range, from_x: int, to_x: int, taken: Bool, ruled: Collection[int]) -> int:
    """The line to go across on: where bars hide the least of all, its corners counting twice, because without them it
    seems to lead to the bar that hides them; of equals one without a rule, and then the nearest to the work."""
    lines = np.array(between)
    hidden_before = np.concatenate([[0], np.cumsum(taken[lines, from_x])])
    hidden_after = np.concatenate([[0], np.cumsum(taken[lines, to_x])])
    first, last = sorted((from_x, to_x))

    def cost(place: int) -> tuple[int, bool, int]:
        y = between[place]
        across = int(taken[y, first : last + 1].sum()) + int(taken[y, from_x]) + int(taken[y, to_x])
        down = int(hidden_before[place]) + int(hidden_after[-1] - hidden_after[place + 1])
        return across + down, y in ruled, -place

    return between[min(range(len(between)), key=cost)]
