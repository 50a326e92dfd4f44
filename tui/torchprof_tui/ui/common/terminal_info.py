"""What the app knows about the terminal and the theme, as the palette wants to hear it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from textual.app import App
from textual.color import Color, ColorParseError
from textual.screen import Screen

from torchprof_tui.ui.common.event_styles import ColorSupport, Palette, ThemeColors, build_palette
from torchprof_tui.ui.common.painted_widget import PaintedWidget

_COLORS = {
    "truecolor": ColorSupport.MANY,
    "256": ColorSupport.MANY,
    "standard": ColorSupport.ANSI,
    "windows": ColorSupport.ANSI,
}


def palette_for(app: App[Any]) -> Palette:
    """The styles for the app's theme and as many colours as the terminal has; none with NO_COLOR."""
    colors = ColorSupport.NONE if app.no_color else _COLORS.get(app.console.color_system or "", ColorSupport.NONE)
    dark = app.current_theme.dark
    plain = ThemeColors() if dark else ThemeColors(False, "#ffffff", "#1f1f1f", "#005faf")
    variables = app.theme_variables
    return _cached_palette(
        ThemeColors(
            dark,
            _parse_hex(variables.get("background"), plain.background),
            _parse_hex(variables.get("foreground"), plain.foreground),
            _parse_hex(variables.get("accent"), plain.accent),
        ),
        colors,
    )


def follow_theme(screen: Screen[Any]) -> None:
    """All that is painted on a mounted screen gets its palette, now and whenever the theme changes."""

    def repaint(_: object = None) -> None:
        palette = palette_for(screen.app)
        for widget in screen.query(PaintedWidget):
            widget.palette = palette

    screen.app.theme_changed_signal.subscribe(screen, repaint)
    repaint()


@lru_cache(maxsize=8)
def _cached_palette(theme: ThemeColors, colors: ColorSupport) -> Palette:
    return build_palette(theme, colors)


def _parse_hex(value: str | None, otherwise: str) -> str:
    """`#rrggbb`; themes that leave colours to the terminal (`ansi_default`) have none to mix with."""
    try:
        color = Color.parse(value or "")
    except ColorParseError:
        return otherwise
    return otherwise if color.ansi is not None else color.hex6.lower()
