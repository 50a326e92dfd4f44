"""The line from a launch to its GPU work: which blank cells of the lanes it goes through, and an arrow at the edge
where one end is out of sight. Pure geometry; bars are never covered."""

from __future__ import annotations

from dataclasses import dataclass

DOWN, ACROSS = "┊", "┄"
TO_LEFT, TO_RIGHT, TO_ABOVE, TO_BELOW = "◀", "▶", "▲", "▼"


@dataclass(frozen=True, slots=True)
class End:
    """Where an end lies in cells: `y` a screen line, None where its row is scrolled out of sight (`above` says
    which way); `x` may lie outside the screen."""

    x: int
    y: int | None
    above: bool = False


def link_cells(launch: End, work: End, width: int, height: int) -> dict[tuple[int, int], str]:
    """Glyph by (line, column), at most one line down, one across and two arrows."""
    cells: dict[tuple[int, int], str] = {}
    if launch.y is not None and work.y is not None and 0 <= launch.x < width and 0 <= work.x < width:
        _elbow(cells, launch, work)
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


def _elbow(cells: dict[tuple[int, int], str], launch: End, work: End) -> None:
    """Down from the launch to the line before the work's, across to it."""
    assert launch.y is not None
    assert work.y is not None
    if launch.y == work.y:
        return
    step = 1 if work.y > launch.y else -1
    turn = work.y - step
    cells.update({(y, launch.x): DOWN for y in range(launch.y + step, turn, step)})
    if turn == launch.y:
        return
    if work.x == launch.x:
        cells[turn, work.x] = DOWN
        return
    right = work.x > launch.x
    down = step > 0
    cells[turn, launch.x] = ("╰" if right else "╯") if down else ("╭" if right else "╮")
    cells.update({(turn, x): ACROSS for x in range(min(launch.x, work.x) + 1, max(launch.x, work.x))})
    cells[turn, work.x] = ("╮" if right else "╭") if down else ("╯" if right else "╰")
