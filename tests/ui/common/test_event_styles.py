"""Colours that can be read, that are really in the cube, and that are not the only sign."""

from __future__ import annotations

import itertools

import pytest
from rich.color import ColorSystem
from rich.style import Style

from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.ui.common.event_styles import (
    ANSI_FILL,
    DARK_FILL,
    LIGHT_FILL,
    Colors,
    Form,
    Palette,
    Theme,
    Tone,
    build,
    lift,
    style_number,
)

DARK = build(Theme(), Colors.MANY)
LIGHT = build(Theme(False, "#ffffff", "#1c1c1c", "#005faf"), Colors.MANY)


def luminance(color: tuple[int, int, int]) -> float:
    """Relative luminance as WCAG 2 defines it."""
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(style: Style) -> float:
    assert style.color is not None
    assert style.bgcolor is not None
    one, two = sorted(luminance(tuple(color.get_truecolor())) for color in (style.color, style.bgcolor))
    return (two + 0.05) / (one + 0.05)


@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=["dark", "light"])
@pytest.mark.parametrize("kind", list(Kind))
def test_text_in_bars_can_be_read(palette: Palette, kind: Kind) -> None:
    for tone in Tone:
        assert contrast(palette.cells[style_number(kind, Form.BAR, tone)]) >= 4.5, tone
    assert contrast(palette.cells[style_number(kind, Form.SHADE)]) >= 3


@pytest.mark.parametrize("fills", [DARK_FILL, LIGHT_FILL], ids=["dark", "light"])
def test_fills_survive_256_colours_and_differ(fills: dict[Kind, str]) -> None:
    assert set(fills) == set(Kind) == set(ANSI_FILL)
    assert len(set(fills.values())) == len(fills)
    for fill in fills.values():
        color = Style(bgcolor=fill).bgcolor
        assert color is not None
        assert color.downgrade(ColorSystem.EIGHT_BIT).get_truecolor() == color.get_truecolor()


def test_the_kinds_of_one_lane_differ_in_16_colours() -> None:
    thread = (Kind.STEP, Kind.ANNOTATION, Kind.PYTHON, Kind.OP, Kind.RUNTIME)
    stream = (Kind.KERNEL, Kind.COPY, Kind.MEMSET, Kind.COLLECTIVE)
    for lane in (thread, stream):
        assert all(ANSI_FILL[one] != ANSI_FILL[two] for one, two in itertools.combinations(lane, 2))


def test_no_color_sends_no_colour() -> None:
    palette = build(Theme(), Colors.NONE)
    own = [value for value in vars(palette).values() if isinstance(value, Style)]
    for style in (*palette.cells, *own, *palette.bands):
        assert style.color is None
        assert style.bgcolor is None
    bar, shade = (palette.cells[style_number(Kind.OP, form)] for form in (Form.BAR, Form.SHADE))
    assert bar.reverse
    assert not shade.reverse
    selected = palette.cells[style_number(Kind.OP, Form.BAR, Tone.SELECTED)]
    assert selected != bar


def test_lifted_colours_stay_in_the_cube_or_on_the_ramp() -> None:
    assert lift("#5fafd7", 1) == "#87d7ff"
    assert lift("#ffffff", 1) == "#ffffff"
    assert lift("#005faf", -1) == "#000087"
    assert lift("#b2b2b2", 1) == "#d0d0d0"
