"""Colours of events: readable, in the 6×6×6 cube, and never the only sign."""

from __future__ import annotations

import colorsys
import itertools
import math

import pytest
from rich.color import Color, ColorSystem
from rich.style import Style

from tests.helpers.contrast import contrast
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.ui.common.event_styles import (
    ANSI_DARK_FILL,
    ANSI_LIGHT_FILL,
    DARK_FILL,
    LIGHT_FILL,
    CellForm,
    ColorSupport,
    Emphasis,
    Palette,
    ThemeColors,
    build_palette,
    lighten,
    style_index,
)
from torchprof_tui.ui.flame.icicle import LEGEND

DARK = build_palette(ThemeColors(), ColorSupport.MANY)
LIGHT = build_palette(ThemeColors(False, "#ffffff", "#1c1c1c", "#005faf"), ColorSupport.MANY)


@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=["dark", "light"])
@pytest.mark.parametrize("kind", list(Kind))
def test_text_in_bars_can_be_read(palette: Palette, kind: Kind) -> None:
    for emphasis in Emphasis:
        assert contrast(palette.cells[style_index(kind, CellForm.BAR, emphasis)]) >= 4.5, emphasis
    assert contrast(palette.cells[style_index(kind, CellForm.SHADE)]) >= 3


@pytest.mark.parametrize("fills", [DARK_FILL, LIGHT_FILL], ids=["dark", "light"])
def test_fills_survive_256_colours_and_differ(fills: dict[Kind, str]) -> None:
    assert set(fills) == set(Kind) == set(ANSI_DARK_FILL) == set(ANSI_LIGHT_FILL)
    assert len(set(fills.values())) == len(fills)
    for fill in fills.values():
        color = Style(bgcolor=fill).bgcolor
        assert color is not None
        assert color.downgrade(ColorSystem.EIGHT_BIT).get_truecolor() == color.get_truecolor()


@pytest.mark.parametrize("fills", [ANSI_DARK_FILL, ANSI_LIGHT_FILL], ids=["dark", "light"])
def test_the_kinds_of_one_lane_differ_in_16_colours(fills: dict[Kind, str]) -> None:
    thread = (Kind.STEP, Kind.ANNOTATION, Kind.PYTHON, Kind.OP, Kind.RUNTIME)
    stream = (Kind.KERNEL, Kind.COPY, Kind.MEMSET, Kind.COLLECTIVE)
    for lane in (thread, stream):
        assert all(fills[first] != fills[second] for first, second in itertools.combinations(lane, 2))


@pytest.mark.parametrize("fills", [DARK_FILL, LIGHT_FILL], ids=["dark", "light"])
def test_the_colours_of_a_flame_graph_can_be_told_apart(fills: dict[Kind, str]) -> None:
    shown = [Color.parse(fills[kind]).get_truecolor() for _, kind in LEGEND]
    for first, second in itertools.combinations(shown, 2):
        assert math.dist(first, second) > 80
    assert len({ANSI_DARK_FILL[kind] for _, kind in LEGEND}) == len({ANSI_LIGHT_FILL[kind] for _, kind in LEGEND}) == 5


def test_no_color_sends_no_colour() -> None:
    palette = build_palette(ThemeColors(), ColorSupport.NONE)
    named_styles = [value for value in vars(palette).values() if isinstance(value, Style)]
    for style in (*palette.cells, *named_styles, *palette.bands):
        assert style.color is None
        assert style.bgcolor is None
    bar, shade = (palette.cells[style_index(Kind.OP, form)] for form in (CellForm.BAR, CellForm.SHADE))
    assert bar.reverse
    assert not shade.reverse
    selected = palette.cells[style_index(Kind.OP, CellForm.BAR, Emphasis.SELECTED)]
    assert selected != bar


def test_lightened_colours_stay_in_the_cube_or_on_the_ramp() -> None:
    assert lighten("#5fafd7") == "#87d7ff"
    assert lighten("#ffffff") == "#ffffff"
    assert lighten("#b2b2b2") == "#d0d0d0"


@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=["dark", "light"])
def test_a_highlighted_bar_keeps_its_hue(palette: Palette) -> None:
    shown = set()
    for kind in Kind:
        hues = []
        for emphasis in (Emphasis.NORMAL, Emphasis.HIGHLIGHTED):
            fill = palette.cells[style_index(kind, CellForm.BAR, emphasis)].bgcolor
            assert fill is not None
            hue, lightness, saturation = colorsys.rgb_to_hls(*(value / 255 for value in fill.get_truecolor()))
            hues.append(hue if saturation > 0.05 and lightness < 1 else 0.0)
        shown.add(fill)
        assert abs(hues[0] - hues[1]) < 0.09, kind
    assert len(shown) == len(Kind)


def test_red_is_for_problems_alone() -> None:
    fills = (*DARK_FILL.values(), *LIGHT_FILL.values(), *ANSI_DARK_FILL.values(), *ANSI_LIGHT_FILL.values())
    assert "red" not in fills
