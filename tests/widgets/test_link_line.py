"""The line from a launch to its kernel, drawn on a small field."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tui.widgets.link_line import End, link_cells


def field(launch: End, work: End, width: int = 12, height: int = 6) -> list[str]:
    cells = link_cells(launch, work, width, height)
    return ["".join(cells.get((y, x), ".") for x in range(width)) for y in range(height)]


def test_down_and_across() -> None:
    assert field(End(2, 0), End(7, 4)) == [
        "............",
        "..┊.........",
        "..┊.........",
        "..╰┄┄┄┄╮....",
        "............",
        "............",
    ]


def test_upwards_to_a_pinned_stream() -> None:
    assert field(End(7, 5), End(2, 1))[1:5] == [
        "............",
        "..╰┄┄┄┄╮....",
        ".......┊....",
        ".......┊....",
    ]


def test_neighbouring_lines_need_none() -> None:
    assert field(End(2, 1), End(7, 2)) == ["............"] * 6


def test_an_end_out_of_sight_is_pointed_at() -> None:
    assert field(End(2, 1), End(40, 4))[1] == "...........▶"
    assert field(End(-3, 1), End(5, 4))[4] == "◀..........."
    below = field(End(2, 1), End(6, None))
    assert below[2:] == ["......┊.....", "......┊.....", "......┊.....", "......▼....."]
    assert field(End(2, 4), End(6, None, above=True))[0] == "......▲....."


ENDS = st.builds(End, st.integers(-5, 25), st.none() | st.integers(0, 9), st.booleans())


@given(ENDS, ENDS)
def test_never_outside_the_screen_nor_on_an_end(launch: End, work: End) -> None:
    cells = link_cells(launch, work, 20, 10)
    assert all(0 <= y < 10 and 0 <= x < 20 for y, x in cells)
    assert all(len(glyph) == 1 for glyph in cells.values())
