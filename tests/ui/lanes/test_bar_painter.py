"""The bar painter: exact widths, few segments, and edges, shades and glyphs that need no colour."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.strip import Strip

from tests.helpers.long_run import scale_examples
from tests.helpers.trace_builder import Entry, cpu, kernel, trace
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.cells import Cells, compute_cells
from torchprof_tui.ui.common.event_styles import (
    BLANK,
    BLANK_MARKED,
    CellForm,
    ColorSupport,
    Emphasis,
    ThemeColors,
    build_palette,
    style_index,
)
from torchprof_tui.ui.common.name_display import DisplayNames
from torchprof_tui.ui.lanes.bar_painter import (
    BarTexts,
    Decoration,
    build_strips,
    draw_level_graph,
    merge_deepest,
    style_cells,
)

PALETTE = build_palette(ThemeColors(), ColorSupport.MANY)


def lane(*entries: Entry) -> Trace:
    """Build one lane whose times count from 0: an empty event of a second thread is the first of the trace."""
    return trace(*entries, cpu("", 0, 0, thread=999))


def drawn(
    shown: Trace, t0: float, t1: float, width: int, decoration: Decoration | None = None, rows: slice = slice(0, 1)
) -> list[Strip]:
    """Paint some rows between two times, µs."""
    found = compute_cells(shown.row_index, rows, int(t0 * 1000), int(t1 * 1000), width)
    styled = style_cells(shown, found, (t1 - t0) * 1000 / width, decoration or Decoration())
    return build_strips(styled, shown, BarTexts(DisplayNames(shown.names)), PALETTE.cells)


def text(shown: Trace, t0: float, t1: float, width: int, decoration: Decoration | None = None) -> str:
    return drawn(shown, t0, t1, width, decoration)[0].text


def style_at(strip: Strip, cell: int) -> int:
    """Return the style index of one cell (the first of equal ones)."""
    at = 0
    for piece, style, _ in strip:
        at += cell_len(piece)
        if cell < at:
            return PALETTE.cells.index(style) if style is not None else -1
    raise AssertionError(cell)


class TestBars:
    def test_a_long_event_has_an_edge_and_its_name(self) -> None:
        assert text(lane(cpu("aten::mm", 10, 20)), 0, 40, 40) == " " * 10 + "▏aten::mm" + " " * 21

    def test_a_name_that_does_not_fit_is_shortened_then_cut(self) -> None:
        shown = lane(cpu("aten::convolution", 10, 20))
        assert text(shown, 0, 80, 40)[5:15] == "▏convolut…"

    def test_neighbours_are_told_apart_by_their_edges(self) -> None:
        shown = lane(cpu("aa", 0, 10), cpu("bb", 10, 10), cpu("cc", 20, 1), cpu("dd", 21, 1), cpu("ee", 22, 2))
        assert text(shown, 0, 24, 24) == " aa       ▏bb       ▉▉█▉"[:23] + "█"

    def test_a_bar_that_begins_before_the_screen_has_no_edge(self) -> None:
        assert text(lane(cpu("work", 0, 100)), 20, 60, 20).startswith(" work")

    def test_an_event_shorter_than_a_cell_is_as_wide_as_its_share(self) -> None:
        shown = lane(cpu("x", 10, 5), cpu("y", 30, 1))
        assert text(shown, 0, 40, 4) == " ▌ ▏"

    def test_a_short_event_over_two_cells_is_one_piece(self) -> None:
        assert text(lane(cpu("x", 16, 8)), 0, 40, 4) == " ▕▌ "

    def test_many_events_are_a_shade_by_how_busy_the_cell_is(self) -> None:
        def many(share: float) -> str:
            return text(lane(*(cpu(f"e{k}", k * 10, 10 * share) for k in range(10))), 0, 300, 3)

        assert [many(share) for share in (0.1, 0.5, 0.9)] == ["░  ", "▒  ", "▓  "]

    def test_the_colour_is_that_of_what_fills_most(self) -> None:
        shown = lane(
            kernel("k", 0, 3),
            {"ph": "X", "cat": "gpu_memcpy", "name": "m", "pid": 0, "tid": 7, "ts": 4, "dur": 5, "args": {"device": 0}},
        )
        strip = drawn(shown, 0, 10, 1, rows=slice(1, 2))[0]  # below the thread that `lane` adds
        assert style_at(strip, 0) == style_index(Kind.COPY, CellForm.SHADE)


class TestSigns:
    def test_the_selected_bar_is_marked(self) -> None:
        shown = lane(cpu("work", 10, 20))
        strip = drawn(shown, 0, 40, 40, Decoration(selected=0))[0]
        assert strip.text[10:15] == "▶work"
        assert (
            PALETTE.cells[style_at(strip, 12)] == PALETTE.cells[style_index(Kind.OP, CellForm.BAR, Emphasis.SELECTED)]
        )

    def test_a_selected_event_too_small_for_a_name_is_marked(self) -> None:
        assert text(lane(cpu("x", 10, 1)), 0, 40, 4, Decoration(selected=0)) == " ◆  "

    def test_highlighted_bars_have_a_glyph(self) -> None:
        shown = lane(cpu("work", 10, 20), cpu("rest", 30, 10))
        assert text(shown, 0, 40, 40, Decoration(highlighted=np.array([0], np.int32)))[10:15] == "◆work"
        assert text(shown, 0, 40, 40, Decoration(highlighted=np.array([0], np.int32)))[30:35] == "▏rest"

    def test_selected_wins_over_matched_over_highlighted(self) -> None:
        shown = lane(cpu("a", 0, 10), cpu("b", 10, 10), cpu("c", 20, 10))
        everything = Decoration(1, np.arange(2, dtype=np.int32), np.array([True, True, False]))
        strip = drawn(shown, 0, 30, 30, everything)[0]
        tones = [style_at(strip, cell) // style_index(0, 0, 1) for cell in (3, 13, 23)]
        assert tones == [Emphasis.MATCHED, Emphasis.SELECTED, Emphasis.NORMAL]

    def test_a_marked_range_shows_in_the_blank(self) -> None:
        strip = drawn(lane(cpu("x", 0, 1)), 0, 40, 40, Decoration(marked_cells=(10, 20)))[0]
        assert strip.text[10] == strip.text[19] == "┆"
        assert style_at(strip, 15) == BLANK_MARKED
        assert style_at(strip, 25) != BLANK_MARKED


def test_blank_cells_join_the_run_of_a_shade_beside_them() -> None:
    shown = lane(*(cpu(f"e{k}", k * 10, 1) for k in range(20)))
    strip = drawn(shown, 0, 200, 100)[0]
    assert len(list(strip)) == 1
    assert strip.text.count("▌") == 20


def test_an_empty_row_is_one_blank_run() -> None:
    strip = drawn(lane(cpu("x", 0, 1)), 50, 90, 40)[0]
    assert [(piece, PALETTE.cells.index(style)) for piece, style, _ in strip if style] == [(" " * 40, BLANK)]


def test_names_are_escaped_and_wide_characters_keep_the_width() -> None:
    shown = lane(cpu("a\x1b[2J\nb", 0, 20), cpu("日本語のカーネル", 20, 20))
    strip = drawn(shown, 0, 40, 40)[0]
    assert cell_len(strip.text) == 40
    assert "\x1b" not in strip.text
    assert "\n" not in strip.text
    assert "日本語" in strip.text


def test_a_folded_lane_shows_the_innermost_event() -> None:
    shown = trace(cpu("outer", 0, 40), cpu("inner", 10, 10))
    found = merge_deepest(compute_cells(shown.row_index, slice(0, 2), 0, 40_000, 40))
    assert isinstance(found, Cells)
    names = [shown.names[shown.name[event]] for event in found.event[0]]
    assert names == ["outer"] * 10 + ["inner"] * 10 + ["outer"] * 20


def test_levels_reach_from_the_least_to_the_most() -> None:
    assert draw_level_graph(np.array([0.0, 1.0, 4.0, 8.0, np.nan]), 0, 8) == "▁▂▅█ "
    assert draw_level_graph(np.array([3.0, 3.0]), 3, 3) == "▁▁"


@st.composite
def rows_of_events(draw: st.DrawFn) -> Trace:
    entries: list[Entry] = []
    at = 0
    for _ in range(draw(st.integers(1, 12))):
        at += draw(st.integers(0, 30))
        length = draw(st.integers(0, 40))
        entries.append(cpu(draw(st.sampled_from(["a", "aten::mm", "日本", "x" * 30, "\x07"])), at, length))
        at += length
    return trace(*entries)


@settings(max_examples=scale_examples(2))
@given(rows_of_events(), st.integers(1, 60), st.integers(1, 200), st.integers(0, 100), st.data())
def test_strips_are_exact_merged_and_lose_nothing(
    shown: Trace, width: int, span: int, first: int, data: st.DataObject
) -> None:
    selected = data.draw(st.integers(-1, len(shown) - 1))
    marked = data.draw(st.one_of(st.none(), st.tuples(st.integers(-1, width), st.integers(0, width + 1))))
    if marked is not None and marked[0] >= marked[1]:
        marked = None
    t0, t1 = first * 1000, first * 1000 + max(span * 1000, width)
    found = compute_cells(shown.row_index, slice(0, shown.total_rows), t0, t1, width)
    styled = style_cells(shown, found, (t1 - t0) / width, Decoration(selected=selected, marked_cells=marked))
    for row, strip in enumerate(build_strips(styled, shown, BarTexts(DisplayNames(shown.names)), PALETTE.cells)):
        segments = list(strip)
        assert cell_len(strip.text) == strip.cell_length == width
        assert all(left.style is not right.style for left, right in itertools.pairwise(segments))
        # Every cell with an event differs from a blank one: by its character, or by being part of a filled bar.
        for column in np.flatnonzero(found.event[row] >= 0):
            glyph = chr(styled.glyph[row, column])
            is_selected_tail = (
                found.event[row, column] == selected and column and found.event[row, column - 1] == selected
            )
            assert styled.in_named_bar[row, column] or glyph != " " or is_selected_tail
        for column in np.flatnonzero(found.event[row] < 0):
            assert not styled.in_named_bar[row, column]
            assert chr(styled.glyph[row, column]) in " ┆"


@pytest.mark.parametrize("colors", list(ColorSupport))
def test_every_style_that_a_cell_can_have_exists(colors: ColorSupport) -> None:
    palette = build_palette(ThemeColors(), colors)
    top = style_index(max(Kind), max(CellForm), max(Emphasis))
    assert len(palette.cells) > BLANK_MARKED > BLANK > top
