"""The link line from a launch to its kernel, drawn on a small screen."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.ui.lanes.launch_line import LinkEnd, route_link


def field(launch: LinkEnd, work: LinkEnd, width: int = 12, height: int = 6) -> list[str]:
    cells = route_link(launch, work, np.zeros((height, width), np.bool_))
    return ["".join(cells.get((y, x), ".") for x in range(width)) for y in range(height)]


def test_down_and_across() -> None:
    assert field(LinkEnd(2, 0), LinkEnd(7, 4)) == [
        "............",
        "..┊.........",
        "..┊.........",
        "..╰┄┄┄┄╮....",
        "............",
        "............",
    ]


def test_upwards_to_a_pinned_stream() -> None:
    assert field(LinkEnd(7, 5), LinkEnd(2, 1))[1:5] == [
        "............",
        "..╰┄┄┄┄╮....",
        ".......┊....",
        ".......┊....",
    ]


def test_neighbouring_lines_need_none() -> None:
    assert field(LinkEnd(2, 1), LinkEnd(7, 2)) == ["............"] * 6


def test_an_end_out_of_sight_is_pointed_at() -> None:
    assert field(LinkEnd(2, 1), LinkEnd(40, 4))[1] == "...........▶"
    assert field(LinkEnd(-3, 1), LinkEnd(5, 4))[4] == "◀..........."
    below = field(LinkEnd(2, 1), LinkEnd(6, None))
    assert below[2:] == ["......┊.....", "......┊.....", "......┊.....", "......▼....."]
    assert field(LinkEnd(2, 4), LinkEnd(6, None, above=True))[0] == "......▲....."


def drawn(*lines: str, rule_lines: frozenset[int] = frozenset()) -> list[str]:
    """Draw the visible part of the line from `L` to `W` over a picture of bars (`#`), which it never covers."""
    places = {letter: (x, y) for y, line in enumerate(lines) for x, letter in enumerate(line)}
    occupied = np.array([[letter != "." for letter in line] for line in lines])
    cells = route_link(LinkEnd(*places["L"]), LinkEnd(*places["W"]), occupied, rule_lines)
    return [
        "".join(cells.get((y, x), letter) if letter == "." else letter for x, letter in enumerate(line))
        for y, line in enumerate(lines)
    ]


def test_it_turns_where_no_bar_hides_the_corner() -> None:
    """The span of an annotation starts with its kernel, on the row above it, and would hide the corner."""
    assert drawn(
        "..L#........",
        "............",
        ".......####.",
        ".......W....",
    ) == [
        "..L#........",
        "..╰┄┄┄┄╮....",
        ".......####.",
        ".......W....",
    ]


def test_it_turns_on_a_rule_only_where_bars_hide_it_elsewhere() -> None:
    rule = frozenset({1})
    assert drawn("L.....", "......", "......", ".....W", rule_lines=rule)[1:3] == ["┊.....", "╰┄┄┄┄╮"]
    assert drawn("L.....", "......", "...###", ".....W", rule_lines=rule)[1:3] == ["╰┄┄┄┄╮", "...###"]


def test_past_another_threads_bars() -> None:
    assert drawn(
        "L.......",
        "........",
        ".###.#.#",
        "......##",
        "........",
        "...W....",
    ) == [
        "L.......",
        "┊.......",
        "┊###.#.#",
        "┊.....##",
        "╰┄┄╮....",
        "...W....",
    ]


@given(
    st.lists(st.lists(st.booleans(), min_size=9, max_size=9), min_size=4, max_size=8),
    st.integers(0, 8),
    st.integers(0, 8),
    st.booleans(),
)
def test_no_other_turn_would_be_hidden_less(bars: list[list[bool]], from_x: int, to_x: int, upwards: bool) -> None:
    occupied = np.array(bars)
    ends = (0, len(bars) - 1)[:: -1 if upwards else 1]

    def hidden(turn: int) -> int:
        down = {(y, from_x if (y < turn) != upwards else to_x) for y in range(1, len(bars) - 1) if y != turn}
        across = [(turn, x) for x in range(min(from_x, to_x), max(from_x, to_x) + 1)]
        return sum(bool(occupied[cell]) for cell in [*down, *across, (turn, from_x), (turn, to_x)])

    cells = route_link(LinkEnd(from_x, ends[0]), LinkEnd(to_x, ends[1]), occupied)
    if from_x != to_x:
        (turn,) = {y for (y, _), glyph in cells.items() if glyph in "╰╯╭╮"}
        assert hidden(turn) == min(hidden(y) for y in range(1, len(bars) - 1))
    assert {y for y, _ in cells} == set(range(1, len(bars) - 1))


ENDS = st.builds(LinkEnd, st.integers(-5, 25), st.none() | st.integers(0, 9), st.booleans())


@given(ENDS, ENDS)
def test_never_outside_the_screen_nor_on_an_end(launch: LinkEnd, work: LinkEnd) -> None:
    cells = route_link(launch, work, np.zeros((10, 20), np.bool_))
    assert all(0 <= y < 10 and 0 <= x < 20 for y, x in cells)
    assert all(len(glyph) == 1 for glyph in cells.values())
