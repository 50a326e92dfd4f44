"""Wrap text, join columns and build strips: exact widths, no character lost."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style
from textual.app import App, ComposeResult

from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.common.painted_widget import Lines, TextPanel, build_strip, join_columns, wrap_text

PLAIN, BOLD = Style(), Style(bold=True)


@given(st.text(max_size=80), st.integers(2, 30))
def test_wrapping_keeps_every_character_but_the_blanks_it_breaks_at(text: str, width: int) -> None:
    shown = clean(text)
    lines = wrap_text(shown, width, PLAIN)
    texts = ["".join(text for text, _ in runs) for runs in lines]
    assert all(cell_len(text) <= width for text in texts)
    assert "".join(texts).replace(" ", "") == shown.replace(" ", "")


def test_a_name_of_megabytes_is_cut_before_it_is_laid_out() -> None:
    lines = wrap_text("x" * 3_000_000, 100, PLAIN)
    assert len(lines) <= 202
    assert lines[-1][0][0].endswith("… (3,000,000 characters)")


@pytest.mark.parametrize("unit", ["%", "µs", "ms,", "s", "MiB"])
def test_a_number_keeps_its_unit_and_what_follows_does_not_matter(unit: str) -> None:
    text = f"the GPU waits 29 {unit} of it"
    assert [runs[0][0] for runs in wrap_text(text, 17, PLAIN)] == ["the GPU waits", f"29 {unit} of it"]


def test_breaks_at_a_space_where_there_is_one_near() -> None:
    texts = [runs[0][0] for runs in wrap_text("the quick brown fox jumps", 10, PLAIN, indent="  ")]
    assert texts == ["the quick", "  brown", "  fox", "  jumps"]


def test_columns_stand_side_by_side() -> None:
    left = wrap_text("left", 10, PLAIN)
    right = [*wrap_text("right one", 10, BOLD), *wrap_text("right two", 10, BOLD)]
    lines = ["".join(text for text, _ in runs) for runs in join_columns(left, right, 8, PLAIN)]
    assert lines == ["left    right one", "        right two"]


@given(st.lists(st.tuples(st.text("ab日", max_size=6), st.sampled_from([PLAIN, BOLD])), max_size=6), st.integers(1, 20))
def test_a_line_is_exact_and_merged(runs: list[tuple[str, Style]], width: int) -> None:
    strip = build_strip(runs, width, PLAIN)
    segments = list(strip)
    assert cell_len(strip.text) == width
    assert all(left.style is not right.style for left, right in itertools.pairwise(segments))


class Numbers(TextPanel):
    """Twenty lines that end in a number at the panel's right edge."""

    def content(self, width: int) -> Lines:
        return [[(f"{number:>{width}}", PLAIN)] for number in range(1000, 1020)]


class NumbersApp(App[None]):
    def compose(self) -> ComposeResult:
        yield Numbers()


async def test_how_much_lies_below_covers_no_text() -> None:
    app = NumbersApp()
    async with app.run_test(size=(30, 5)) as pilot:
        await pilot.pause()
        lines = [strip.text.split() for strip in app.screen._compositor.render_strips()]
        assert lines == [["1000"], ["1001"], ["1002"], ["1003"], ["1004", "▾15"]]
        app.query_one(Numbers).scroll_lines(7)
        await pilot.pause()
        lines = [strip.text.split() for strip in app.screen._compositor.render_strips()]
        assert lines == [["1007", "▴7"], ["1008"], ["1009"], ["1010"], ["1011", "▾8"]]
