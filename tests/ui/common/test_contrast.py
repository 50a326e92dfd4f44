"""All text can be read: 4.5:1 (WCAG AA) in both themes, in 16 colours as xterm and as the Linux console show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import product

import pytest
from rich.cells import cell_len
from rich.style import Style
from textual.screen import Screen

from tests.helpers.contrast import AA_TEXT, VGA, XTERM, Rgb, contrast
from tests.helpers.explorer_app import explorer, settled
from tests.helpers.golden_files import load_sample
from tests.helpers.long_run import keep_some
from torchprof_tui.app import TorchprofApp
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.ui.common.event_styles import (
    CellForm,
    ColorSupport,
    Emphasis,
    Palette,
    ThemeColors,
    build_palette,
    style_index,
)
from torchprof_tui.ui.common.screen_styles import THEMES
from torchprof_tui.ui.start.start_screen import StartScreen

pytestmark = pytest.mark.usefixtures("many_colors")


@pytest.fixture
def many_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the screens in more than 16 colours, whatever the tests run in."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)


LINES = frozenset({"line"})
"""Styles in which no text is written."""


def theme_colors(name: str) -> ThemeColors:
    theme = THEMES[name]
    assert theme.background is not None
    assert theme.foreground is not None
    assert theme.accent is not None
    return ThemeColors(theme.dark, theme.background, theme.foreground, theme.accent)


def text_styles(palette: Palette) -> Iterator[tuple[str, Style]]:
    """Yield the styles that text is written in: those with a name, and text in bars."""
    for field in fields(palette):
        value = getattr(palette, field.name)
        if isinstance(value, Style) and field.name not in LINES:
            yield field.name, value
    yield from (("bands", style) for style in palette.bands)
    for kind in Kind:
        for emphasis in Emphasis:
            if emphasis is not Emphasis.DIMMED:  # off the critical path: made weak on purpose
                yield f"{kind!r} {emphasis!r}", palette.cells[style_index(kind, CellForm.BAR, emphasis)]


@pytest.mark.parametrize("theme", list(THEMES))
@pytest.mark.parametrize(
    ("colors", "sixteen"),
    [(ColorSupport.MANY, ()), (ColorSupport.ANSI, XTERM), (ColorSupport.ANSI, VGA)],
    ids=["many", "xterm-16", "vga-16"],
)
def test_every_text_style_can_be_read(theme: str, colors: ColorSupport, sixteen: Sequence[Rgb]) -> None:
    palette = build_palette(theme_colors(theme), colors)
    weak = {
        name: round(ratio, 2) for name, style in text_styles(palette) if (ratio := contrast(style, sixteen)) < AA_TEXT
    }
    assert weak == {}


@pytest.mark.parametrize("theme", list(THEMES))
def test_bars_differ_from_the_page_in_16_colours(theme: str) -> None:
    palette = build_palette(theme_colors(theme), ColorSupport.ANSI)
    page = palette.text.bgcolor
    assert all(palette.cells[style_index(kind, CellForm.BAR)].bgcolor != page for kind in Kind)


@pytest.mark.parametrize("theme", list(THEMES))
def test_the_accent_and_red_mean_one_thing_each(theme: str) -> None:
    """The accent is the keyboard (keys, cursor, focus), red a problem: no other style and no kind has them."""
    palette = build_palette(theme_colors(theme), ColorSupport.MANY)
    owners = {"key", "cursor", "focused", "warning"}
    taken = {colour for name in owners for colour in (getattr(palette, name).color, getattr(palette, name).bgcolor)}
    taken -= {palette.text.color, palette.text.bgcolor}
    for name, style in text_styles(palette):
        if name not in owners:
            assert style.color not in taken, name
            assert style.bgcolor not in taken, name


def weak_text(screen: Screen[object]) -> dict[str, float]:
    """Return the text on screen whose contrast is too low, with its contrast."""
    found: dict[str, float] = {}
    shown = [widget.region for widget in screen.query("*")] if screen.is_modal else [screen.region]
    for y, strip in enumerate(screen._compositor.render_strips()):
        x = 0
        for text, style, _ in strip:
            left, x = x, x + cell_len(text)
            if not any(region.contains(left, y) for region in shown):
                continue  # of the screen below, made weak on purpose
            has_text = any(character.isalnum() for character in text)
            if has_text and style is not None and style.color is not None and style.bgcolor is not None:
                assert style.color.number is None, (text, style)
                ratio = contrast(style)
                if ratio < AA_TEXT:
                    found[text.strip()] = round(ratio, 2)
    return found


SCREENS = {
    "lanes": (),
    "cheatsheet": ("c", "E"),
    "chain": ("l", "right"),
    "table": ("t", "down"),
    "tree": ("T",),
    "flame": ("F", "down"),
    "memory": ("M",),
    "learn": ("G",),
    "kernel": ("right", "k"),
    "range": ("right", "m", "right", "right", "m"),
    "path": ("C",),
    "charts": ("t", "shift+tab"),
    "go to": (":",),
    "compare with": ("D",),
    "diff": ("D", "down", "enter"),
    "help": ("question_mark",),
    "words": ("question_mark", "shift+tab"),
    "commands": ("ctrl+p",),
    "command of a name": ("ctrl+p", "z"),
}


@pytest.mark.parametrize(("name", "theme"), keep_some(product(SCREENS, THEMES), 1))
async def test_text_on_screens_can_be_read(name: str, theme: str) -> None:
    async with explorer(load_sample("train_gpt_stack_memory"), (120, 40)) as (screen, pilot):
        for each in THEMES.values():
            screen.app.register_theme(each)
        screen.app.theme = THEMES[theme].name
        await settled(pilot)
        for key in SCREENS[name]:
            await pilot.press(key)
            await settled(pilot)
        assert weak_text(screen.app.screen) == {}


@pytest.mark.parametrize(("key", "theme"), keep_some(product(["", "r", "i"], THEMES), 1))
async def test_text_of_forms_can_be_read(key: str, theme: str) -> None:
    app = TorchprofApp(theme=theme)
    async with app.run_test(size=(160, 48)) as pilot:
        await settled(pilot)
        assert isinstance(app.screen, StartScreen)
        if key:
            await pilot.press(key)
            await settled(pilot)
        assert weak_text(app.screen) == {}
