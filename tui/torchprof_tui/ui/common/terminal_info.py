"""Choose the palette for the app's theme and the colours that the terminal supports."""

from __future__ import annotations

import weakref
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
    """Return the palette for the app's theme and the terminal's colours; without colours if NO_COLOR is set."""
    support = ColorSupport.NONE if app.no_color else _COLORS.get(app.console.color_system or "", ColorSupport.NONE)
    dark = app.current_theme.dark
    default = ThemeColors() if dark else ThemeColors(False, "#ffffff", "#1f1f1f", "#005faf")
    variables = app.theme_variables
    return _cached_palette(
        ThemeColors(
            dark,
            _parse_hex(variables.get("background"), default.background),
            _parse_hex(variables.get("foreground"), default.foreground),
            _parse_hex(variables.get("accent"), default.accent),
        ),
        support,
    )


def follow_theme(screen: Screen[Any]) -> None:
    """Set the palette of all painted widgets on a mounted screen, now and whenever the theme changes."""

    # The app keeps the callback: a reference to the screen in it would keep the screen and its trace for good.
    reference = weakref.ref(screen)

    def notify(_: object) -> None:
        followed = reference()
        if followed is not None:
            followed.call_next(_repaint, followed)

    screen.app.theme_changed_signal.subscribe(screen, notify, immediate=True)
    _repaint(screen)


def _repaint(screen: Screen[Any]) -> None:
    palette = palette_for(screen.app)
    for widget in screen.query(PaintedWidget):
        widget.palette = palette


@lru_cache(maxsize=8)
def _cached_palette(theme: ThemeColors, color_support: ColorSupport) -> Palette:
    return build_palette(theme, color_support)


def _parse_hex(value: str | None, default: str) -> str:
    """Parse a theme's colour into `#rrggbb`.

    Returns `default` for colours that the theme leaves to the terminal (`ansi_default`), which cannot be mixed.
    """
    try:
        color = Color.parse(value or "")
    except ColorParseError:
        return default
    return default if color.ansi is not None else color.hex6.lower()
